package ingest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// The start says what the arguments show. A fact follows when the lines show more,
// and none when they show the same.
func TestAbilities(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.CBC
	r := wrap(t, o, streamArgs...)
	r.write(`{"type":"control_request","request_id":"h1","request":{"subtype":"initialize","capabilities":{"askUserQuestion":true}}}` + "\n")
	if _, err := r.read(); err != nil {
		t.Fatal(err)
	}
	const initCBC = `{"type":"system","subtype":"init","session_id":"s1","permissionMode":"default","tools":["AskUserQuestion"],"__timestamp":"x"}`
	r.say(`{"type":"control_response","response":{"subtype":"success","request_id":"h1","response":{}}}`, initCBC)
	r.await("the fact", func(e *event.Event) bool { return e.Type == event.TypeCapabilities })
	r.say(initCBC, `{"type":"result","subtype":"success","is_error":false,"session_id":"s1","num_turns":1,"result":"d","__timestamp":"x"}`)
	evs := r.w.history(t, r.exit(0).Run)

	b := event.Capabilities{
		StructuredEvents: true, BidirectionalControl: true, HumanApproval: true, SessionResume: true, Interrupt: true, Level: "B",
		Commands: dialect.Capabilities(dialect.CBC, ""),
	}
	if d := cmp.Diff(&b, one[event.Started](t, evs, event.TypeStarted).Capabilities); d != "" {
		t.Errorf("at the start (-want +got)\n%s", d)
	}
	a := b
	a.InteractiveQuestions, a.Level = true, "A"
	if d := cmp.Diff(a, one[event.Capabilities](t, evs, event.TypeCapabilities)); d != "" {
		t.Errorf("later (-want +got)\n%s", d)
	}
	info, err := r.w.bus.Run(t.Context(), r.run)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&a, info.Abilities); d != "" {
		t.Errorf("in the registry (-want +got)\n%s", d)
	}
}

// What is learnt with the child's last words is told, too.
func TestAbilitiesAtTheEnd(t *testing.T) {
	o := options(t)
	r := wrap(t, o, "--output-format", "stream-json")
	r.say(initS1)
	evs := r.w.history(t, r.exit(0).Run)
	got := one[event.Capabilities](t, evs, event.TypeCapabilities)
	if got.Level != dialect.LevelC || !got.SessionResume || got.BidirectionalControl {
		t.Errorf("%+v", got)
	}
	if start := one[event.Started](t, evs, event.TypeStarted).Capabilities; start.Level != dialect.LevelD {
		t.Errorf("at the start %+v", start)
	}
}

// A pipe or a file has frames, and no way back.
func TestAbilitiesOfAPipe(t *testing.T) {
	o := options(t)
	o.Source, o.CaptureOutputs = "import", true
	out, err := ingest.Import(t.Context(), o, strings.NewReader(initS1+"\n"+done+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := out.State.Capabilities(); got.Level != dialect.LevelC || got.Interrupt {
		t.Errorf("%+v", got)
	}
}
