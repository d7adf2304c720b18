package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

func liveness(run, typ string, n int) *event.Event {
	e := fact("acme", run, typ, "liveness", map[string]string{"reason": "presence expired"})
	e.Time = startOf(n)
	return e
}

// Cases 095 and 121: a lost run is a gauge while it may come back. What comes back is
// counted, and so is its true end, once.
func TestLostRunComesBack(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	a.init()
	f.play(a.events...)
	f.play(liveness("r1", event.TypeLost, 60))
	lost := map[string]string{
		"runs_active{tenant=acme,state=lost}": "1", "runs_lost_total{tenant=acme}": "1",
	}
	if d := cmp.Diff(lost, f.c.nonzero(mActive, mLost, mFinished, mResumed)); d != "" {
		t.Errorf("while it is lost (-want +got):\n%s", d)
	}
	had := len(a.events)
	for range 20 {
		a.out("assistant", `{"type":"assistant","message":{"id":"m","content":[]}}`)
	}
	a.result("a", 0.1, "")
	a.exited(0)
	f.play(liveness("r1", event.TypeResumed, 70))
	f.play(a.events[had:]...)
	f.c.expire(startOf(100 * 24 * 3600))
	back := map[string]string{
		"runs_lost_total{tenant=acme}": "1", "runs_resumed_total{tenant=acme}": "1",
		"runs_finished_total{tenant=acme,dialect=claude,ci=none,repo=none,workflow=none,verdict=success}": "1",
	}
	if d := cmp.Diff(back, f.c.nonzero(mActive, mLost, mFinished, mResumed, mCorrected)); d != "" {
		t.Errorf("when it came back (-want +got):\n%s", d)
	}
	if got := f.c.sum(mFrames, "type", "assistant"); got != 20 {
		t.Errorf("%d late frames, want 20", got)
	}
}

// A run that stays lost is counted as lost once its time is over. One that ends after that
// is no second finished run.
func TestLostForGood(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	a.init()
	f.play(a.events...)
	had := len(a.events)
	f.play(liveness("r1", event.TypeLost, 60))
	const key = "runs_finished_total{tenant=acme,dialect=claude,ci=none,repo=none,workflow=none,verdict=lost}"
	steps := []struct {
		name string
		do   func()
		want map[string]string
	}{
		{
			"before its time", func() { f.c.expire(startOf(60 + 23*3600)) },
			map[string]string{"runs_active{tenant=acme,state=lost}": "1"},
		},
		{"after it", func() { f.c.expire(startOf(60 + 25*3600)) }, map[string]string{key: "1"}},
		{"again", func() { f.c.expire(startOf(60 + 26*3600)) }, map[string]string{key: "1"}},
		{"after a restart", func() { f.restart() }, map[string]string{key: "1"}},
		{
			"when it ended after all", func() {
				a.clock = 40 * 3600
				a.result("a", 0.1, "")
				a.exited(0)
				f.play(liveness("r1", event.TypeResumed, a.clock))
				f.play(a.events[had:]...)
			},
			map[string]string{key: "1", "runs_corrected_total{tenant=acme,verdict=success}": "1"},
		},
	}
	for _, s := range steps {
		s.do()
		if d := cmp.Diff(s.want, f.c.nonzero(mActive, mFinished, mCorrected)); d != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, d)
		}
	}
	if got := f.recount(f.at); !cmp.Equal(f.c.counted(), got) {
		t.Errorf("a recount differs (-counted +recounted):\n%s", cmp.Diff(f.c.counted(), got))
	}
}

// The time that counts is when the bus stored something, so that a recount agrees: an exit
// that came after the time is a correction, also where nothing ticked in between.
func TestLostTimeIsTheBus(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	f.play(a.events...)
	f.play(liveness("r1", event.TypeLost, 60))
	a.clock = 30 * 3600
	a.exited(0)
	f.play(a.events[1:]...)
	if lost, corrected := f.c.sum(mFinished), f.c.sum(mCorrected); lost != 1 || corrected != 1 {
		t.Errorf("finished %d, corrected %d; want 1 and 1", lost, corrected)
	}
}

// The control facts may be read before or after the events: a run that ended is never
// shown as lost, and one that is lost is.
func TestLostInAnyOrder(t *testing.T) {
	a := claudeRun("r1")
	a.started(event.Started{})
	a.init()
	b := claudeRun("r2")
	b.started(event.Started{})
	b.exited(1)
	f := feed(t, testOptions())
	var events, facts []fed
	for _, e := range append(a.events, b.events...) {
		events = append(events, f.store(0, e))
	}
	facts = append(facts, f.store(bus.ControlLog, liveness("r1", event.TypeLost, 60)), f.store(bus.ControlLog, liveness("r2", event.TypeLost, 60)))
	want := map[string]string{
		"runs_active{tenant=acme,state=lost}": "1", "runs_lost_total{tenant=acme}": "2",
		"runs_finished_total{tenant=acme,dialect=claude,ci=none,repo=none,workflow=none,verdict=failed}": "1",
	}
	for name, order := range map[string][]fed{"events first": append(events, facts...), "facts first": append(facts, events...)} {
		f.reset()
		for _, x := range order {
			f.count(x)
		}
		if d := cmp.Diff(want, f.c.nonzero(mActive, mLost, mFinished)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		f.c.expire(startOf(60).Add(25 * time.Hour))
		if got := f.c.sum(mFinished, "verdict", "lost"); got != 1 {
			t.Errorf("%s: %d lost for good, want 1", name, got)
		}
	}
}
