package metrics_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/metrics"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

// An archive exports commands beside events and facts. They count by what became of them,
// which facts say, and are no frames.
func TestOnceFromLeavesCommandsOut(t *testing.T) {
	c, err := capture.Load("claude-2.1.220/30-perm-allow")
	if err != nil {
		t.Fatal(err)
	}
	var events []byte
	for _, e := range capture.Events(c, "acme", "r1") {
		events = append(e.AppendJSON(events), '\n')
	}
	command := &event.Event{
		Tenant: "acme", Run: "r1", Ref: "answer-r1-a1-1", Time: time.Now().UTC(), Type: event.TypeCmd, Kind: event.Cmd, ContentType: event.JSON,
		Data: []byte(`{"ask":"a1"}`), Ext: map[string]string{"cmdname": "answer"},
	}
	count := func(data []byte) string {
		t.Helper()
		text, err := metrics.OnceFrom(t.Context(), metrics.Options{Partitions: 1}, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := count(events)
	if d := cmp.Diff(want, count(append(command.AppendJSON(events), '\n'))); d != "" {
		t.Errorf("with a command (-without +with):\n%s", d)
	}
}
