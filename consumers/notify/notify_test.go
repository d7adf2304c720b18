package notify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/event"
)

func brief(all []got) (list []string) {
	for _, g := range all {
		list = append(list, g.Run+" "+g.Kind)
	}
	return list
}

// A run's end is told once, by its verdict; an ask when it opens; nothing before.
func TestNotices(t *testing.T) {
	b, r := serve(t), receive(t)
	o := notify.Options{Bus: b, Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, r, plain)}}
	_, stop := start(t, o)
	publish(t, b, "r1", script("r1", initLine, prompt, done, "exit 0"))
	r.n(t, 1)
	publish(t, b, "r2", script("r2", initLine, prompt, failed, "exit 1"))
	r.n(t, 2)
	r3 := script("r3", initLine, prompt, askLine("q1", "ls"))
	publish(t, b, "r3", r3)
	r.n(t, 3)
	fact(t, b, "r3", event.TypeLost, "lost-1")
	r.n(t, 4)
	fact(t, b, "r3", event.TypeResumed, "resumed-2")
	r.n(t, 5)
	publish(t, b, "r3", append(r3, script("r3", initLine, prompt, askLine("q1", "ls"), done, "exit 0")[len(r3):]...))
	all := r.n(t, 6)
	stop()
	want := []string{"r1 finished", "r2 failed", "r3 waiting", "r3 lost", "r3 resumed", "r3 finished"}
	if d := cmp.Diff(want, brief(all)); d != "" {
		t.Errorf("notices (-want +got):\n%s", d)
	}
	// A new one over the same state tells nothing again.
	_, stop = start(t, o)
	publish(t, b, "r4", script("r4", initLine, prompt, done, "exit 0"))
	all = r.n(t, 7)
	stop()
	if d := cmp.Diff(append(want, "r4 finished"), brief(all)); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
}
