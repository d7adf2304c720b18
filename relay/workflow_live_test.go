package relay_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/relay"
)

// begin is the start of a message that comes in deltas, chunk one of them.
func begin(id string) event.Event {
	e := frameOf(fmt.Sprintf(`{"type":"stream_event","session_id":"s1","event":{"type":"message_start","message":{"id":%q}}}`, id))
	e.Type = "dev.cbcast.claude.stream_event"
	return e
}

func chunk(text string) event.Event {
	b, _ := json.Marshal(text)
	e := frameOf(fmt.Sprintf(`{"type":"stream_event","session_id":"s1","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}}`, b))
	e.Type = "dev.cbcast.claude.stream_event"
	return e
}

func initFrame() event.Event {
	e := frameOf(`{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220","model":"m"}`)
	e.Type = "dev.cbcast.claude.system.init"
	return e
}

func result() event.Event {
	e := frameOf(`{"type":"result","subtype":"success","session_id":"s1","is_error":false,"result":"ok"}`)
	e.Type, e.Kind = "dev.cbcast.claude.result.success", event.End
	return e
}

func input() event.Event {
	return fact(event.TypeInput, event.Msg, event.Input{Bytes: 5, Type: "user", Session: "s1"})
}

// talking is an edge whose child works on a message.
func (r *rig) talking(run string) *edge {
	e := r.edge(run)
	e.emit(started(), input(), initFrame(), begin("m1"))
	return e
}

func deltaText(t testing.TB, list []sseEvent) string {
	t.Helper()
	var b strings.Builder
	for _, ev := range list {
		if ev.name != string(workflow.NodeOutputDelta) {
			continue
		}
		var d workflow.NodeOutputDeltaData
		if err := json.Unmarshal(envelopeOf(t, ev).Data, &d); err != nil {
			t.Fatal(err)
		}
		b.WriteString(d.Delta)
	}
	return b.String()
}

// Clients of three relays, each of which joins deltas as they come, are cut anywhere
// and go on at another one: the text is exact, and seqs rise.
func TestWorkflowMergedText(t *testing.T) {
	const clients, deltas = 6, 400
	r := newRig(t, small())
	e := r.talking("run-1")
	relays := []*served{r.relay(relay.Config{}), r.relay(relay.Config{QueueBytes: 6 << 10}), r.relay(relay.Config{Unmerged: true})}
	var want strings.Builder
	var wg sync.WaitGroup
	var mu sync.Mutex // guards counts
	counts := map[int]int{}
	for c := range clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			var got []sseEvent
			last := "0"
			for {
				n := rnd.IntN(len(relays))
				if c == 0 {
					n = 0 // joined by one relay, never cut
				}
				cl, err := relays[n].open(workflows+"run-1/stream?after="+last, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if cl.res.StatusCode == http.StatusNoContent {
					break
				}
				most := rnd.IntN(60)
				for ev, ok := cl.next(); ok; ev, ok = cl.next() {
					if ev.seq(t) <= atoi(t, last) {
						t.Errorf("client %d: %s after %s", c, ev.id, last)
						return
					}
					got, last = append(got, ev), ev.id
					if most--; most < 0 && c > 0 {
						break
					}
				}
				cl.close()
			}
			text := deltaText(t, got)
			mu.Lock()
			defer mu.Unlock()
			counts[c] = len(got)
			if text != want.String() { // complete before the run's end was on the bus
				t.Errorf("client %d: %d bytes of text, want %d", c, len(text), want.Len())
			}
		})
	}
	for i := range deltas {
		text := fmt.Sprintf("word%d \"é😀\n", i)
		want.WriteString(text)
		e.emit(chunk(text))
		if i%40 == 0 {
			e.shipped()
		}
	}
	e.emit(result(), exited())
	wg.Wait()
	t.Logf("events per client: %v", counts)
}

func atoi(t testing.TB, s string) uint64 { return sseEvent{id: s}.seq(t) }

// Retention took the beginning, or the cursor is none of the run: the client is told
// in an event of the closed set, without an id, before anything else.
func TestWorkflowGapAndReset(t *testing.T) {
	r := newRig(t, bus.Topology{MaxBytes: 64 << 10})
	e := r.talking("run-1")
	for i := range 60 {
		e.emit(chunk(fmt.Sprintf("%d%600d", i, 7)))
	}
	e.emit(result(), exited())
	e.shipped()
	first, _, err := r.bus.FirstKept(t.Context(), e.ref)
	if err != nil || first.Seq < 3 {
		t.Fatalf("first kept %v, %v", first, err)
	}
	whole := r.talking("run-2")
	whole.emit(chunk("x"), result(), exited())
	whole.shipped()
	if first, _, err = r.bus.FirstKept(t.Context(), e.ref); err != nil {
		t.Fatal(err)
	}
	s := r.relay(relay.Config{Unmerged: true})
	for _, tt := range []struct {
		run, cursor, phase string
		seq                uint64
		gap                workflow.Gap
	}{
		{"run-1", "0", "gap", 1, workflow.Gap{First: first.Seq*4096 + 1, Last: 66*4096 + 4095, Reason: "not_kept"}},
		{"run-1", "8193", "gap", 8194, workflow.Gap{Asked: 8193, First: first.Seq*4096 + 1, Last: 66*4096 + 4095, Reason: "not_kept"}},
		{"run-2", "99999999", "reset", 100000000, workflow.Gap{Asked: 99999999, First: 1, Last: 7*4096 + 4095, Reason: "beyond_head"}},
		{"run-2", "18446744073709551615", "reset", 1<<64 - 1, workflow.Gap{Asked: 1<<64 - 1, First: 1, Last: 7*4096 + 4095, Reason: "beyond_head"}},
	} {
		all := s.stream(workflows+tt.run+"/stream?after=0", nil).all()
		list := s.stream(workflows+tt.run+"/stream", map[string]string{"Last-Event-ID": tt.cursor}).all()
		v := envelopeOf(t, list[0])
		var d workflow.NodeProgressData
		if err := json.Unmarshal(v.Data, &d); err != nil || list[0].id != "" || v.Event != workflow.NodeProgress || v.NodeID != "" || v.Seq != tt.seq ||
			d.Phase != tt.phase || !d.Synthesised || d.Gap == nil || *d.Gap != tt.gap {
			t.Errorf("%s: %+v %s, %v", tt.cursor, v, v.Data, err)
		}
		if list[1] != all[min(1, len(all)-len(list)+1)] || len(list) < len(all) {
			t.Errorf("%s: %d events, want %d", tt.cursor, len(list), len(all))
		}
		var p workflowPage
		s.get(workflows+tt.run+"/events?limit=3&after="+tt.cursor, nil).into(t, &p)
		if len(p.Events) != 3 || p.Events[0].Seq != v.Seq || string(p.Events[0].Data) != string(v.Data) || itoa(p.Next) != list[2].id {
			t.Errorf("%s: page %+v", tt.cursor, p)
		}
	}
}

// What falls behind is cut and delays nobody; a relay that ends gives everybody what
// is on the bus, and the rest is there for who comes back.
func TestWorkflowSlowAndDrain(t *testing.T) {
	r := newRig(t, small())
	e := r.talking("run-1")
	e.shipped()
	s := r.narrow(relay.Config{QueueBytes: 256 << 10, WriteTimeout: time.Minute, Unmerged: true})
	n := len(mapped(t, workflow.ID{Run: "run-1"}, e.events))
	stalled := s.stream(workflows+"run-1/stream", nil)
	stalled.take(n)
	quick := s.stream(workflows+"run-1/stream", nil)
	quick.take(n)
	text := strings.Repeat("x", 4000)
	for range 30 { // in steps, so that the quick client is never behind what is held
		for range 20 {
			e.emit(chunk(text))
		}
		quick.take(20)
	}
	<-time.After(1500 * time.Millisecond) // the stalled one takes nothing
	e.emit(chunk("more"))
	quick.take(1)
	e.emit(chunk("last"))
	e.shipped()
	s.stop()
	if got := deltaText(t, quick.all()); got != "last" {
		t.Errorf("at the relay's end: %q", got)
	}
	got := stalled.all()
	if len(got) > 600 || stalled.sc.Err() == nil {
		t.Errorf("the stalled client got %d events, %v", len(got), stalled.sc.Err())
	}
	last := "1"
	if len(got) > 0 {
		last = got[len(got)-1].id
	}
	e.emit(result(), exited())
	s = r.relay(relay.Config{Unmerged: true})
	rest := deltaText(t, s.stream(workflows+"run-1/stream?after="+last, nil).all())
	if want := strings.Repeat(text, 600) + "morelast"; deltaText(t, got)+rest != want {
		t.Errorf("%d bytes of text, want %d", len(deltaText(t, got)+rest), len(want))
	}
}

// An event that says more than the protocol can number ends the stream, and it says
// so; the native stream has it.
func TestWorkflowNotMappable(t *testing.T) {
	r := newRig(t, small())
	e := r.talking("run-1")
	blocks := strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, 4200), ",")
	e.emit(frameOf(`{"type":"assistant","session_id":"s1","uuid":"u","message":{"id":"m9","role":"assistant","content":[`+blocks+`]}}`), exited())
	e.shipped()
	s := r.relay(relay.Config{})
	list := s.stream(workflows+"run-1/stream", nil).all()
	last := list[len(list)-1]
	if d := dataIn[workflow.RunFailedData](t, last); last.id != "" || d.Error.Code != workflow.CodeNotMappable || !d.Synthesised || len(list) < 3 {
		t.Errorf("the end of %d events: %+v", len(list), last)
	}
	envelopeOf(t, last)
	for _, path := range []string{"/stream?after=" + list[len(list)-2].id, "/events?after=" + list[len(list)-2].id, ""} {
		var body relay.ErrorBody
		a := s.get(workflows+"run-1"+path, nil)
		if a.into(t, &body); a.status != http.StatusInternalServerError || body.Code != relay.CodeUnmappable {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	if got := s.stream("/v1/runs/run-1/stream", nil).all(); len(got) < 6 {
		t.Errorf("native: %s", ids(got))
	}
}
