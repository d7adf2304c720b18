package notify_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// Every recorded session, through the bus, is told to be over once, with the verdict
// that folding it gives.
func TestCaptures(t *testing.T) {
	b, r := serve(t), receive(t)
	_, stop := start(t, notify.Options{Bus: b, Partitions: 1, Config: notify.Config{Rules: rulesFile(t, r, `
version: 1
destinations:
  hook: {type: webhook, url: $URL/hook, allow: [127.0.0.1]}
rules:
  - {name: ends, match: {kind: [finished, failed, interrupted]}, to: [hook]}
`)}})
	want := map[string]string{}
	every := 8 // all of them with NOTIFY_TEST_LONG
	if os.Getenv("NOTIFY_TEST_LONG") != "" {
		every = 1
	}
	for i, name := range capture.List() {
		if i%every != 0 {
			continue
		}
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("run-", i)
		st := run.New(id)
		events := capture.Events(c, tenant, id)
		for _, e := range events {
			st.Apply(e)
		}
		j := st.Verdict()
		if j == nil {
			continue // recorded while it lived
		}
		kind := "finished"
		switch j.Verdict {
		case run.Failed:
			kind = "failed"
		case run.Interrupted:
			kind = "interrupted"
		}
		want[id] = kind + " " + string(j.Verdict)
		publish(t, b, id, events)
	}
	all := r.n(t, len(want))
	stop()
	told := map[string]string{}
	for _, g := range all {
		if told[g.Run] != "" {
			t.Errorf("%s is told twice: %s and %s", g.Run, told[g.Run], g.Kind)
		}
		told[g.Run] = g.Kind + " " + g.Verdict
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("ends (-want +got):\n%s", d)
	}
	t.Logf("%d recordings", len(want))
}
