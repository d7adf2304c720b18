package metrics

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Series that count nothing yet leave room for counts, and none is refused for them.
func TestZerosLeaveRoom(t *testing.T) {
	f := feed(t, testOptions())
	for n := range 2 * maxSeries {
		f.c.zero(mCost, fmt.Sprint("m", n), "acme", "claude")
	}
	if got := len(f.c.families[mCost].series); got != maxSeries/2 {
		t.Errorf("%d series, want %d", got, maxSeries/2)
	}
	if got := f.c.sum(mFull); got != 0 {
		t.Errorf("%d were refused, want 0", got)
	}
	f.c.add(mCost, 5, "late", "acme", "claude")
	if got := f.c.sum(mCost, "model", "late"); got != 5 {
		t.Errorf("the model that came last has %d, want 5", got)
	}
}

// What a run can count is there, as zero, before it counts; a snapshot has it, and the
// run's end makes no other series.
func TestSeriesBeginAtZero(t *testing.T) {
	f := feed(t, testOptions())
	s := claudeRun("r1")
	s.started(event.Started{})
	s.init()
	f.play(s.events...)
	const who = "tenant=acme,dialect=claude"
	want := map[string]string{
		"runs_lost_total{tenant=acme}": "0", "runs_resumed_total{tenant=acme}": "0", "cost_usd_total{model=m-1," + who + "}": "0",
	}
	for _, v := range run.Verdicts {
		want["runs_finished_total{"+who+",ci=none,repo=none,workflow=none,verdict="+string(v)+"}"] = "0"
	}
	for _, typ := range tokenTypes {
		want["tokens_total{type="+typ+",model=m-1,"+who+"}"] = "0"
	}
	has(t, f.c, want)

	data, err := f.c.encode(f.at)
	if err != nil {
		t.Fatal(err)
	}
	again := newTally(f.c.opt)
	if err := again.decode(data); err != nil {
		t.Fatal(err)
	}
	has(t, again, want)

	had := len(s.events)
	s.result("u", 0.5, `,"usage":{"input_tokens":10,"output_tokens":5}`)
	s.exited(0)
	f.play(s.events[had:]...)
	got := map[string]int{}
	for _, d := range []*def{mFinished, mCost, mTokens} {
		got[d.name] = len(f.c.families[d].series)
	}
	if d := cmp.Diff(map[string]int{mFinished.name: len(run.Verdicts), mCost.name: 1, mTokens.name: len(tokenTypes)}, got); d != "" {
		t.Errorf("series after the run (-want +got):\n%s", d)
	}
	if got := f.c.sum(mCost); got != 5e8 {
		t.Errorf("cost is %d nano dollars, want half a dollar", got)
	}
}

// Of a run of which nothing but its loss is known there is a series for its end, too.
func TestLostRunBeginsAtZero(t *testing.T) {
	f := feed(t, testOptions())
	f.play(fact("acme", "r2", event.TypeLost, "liveness", map[string]string{"reason": "x"}))
	has(t, f.c, map[string]string{"runs_finished_total{tenant=acme,dialect=unknown,ci=none,repo=none,workflow=none,verdict=lost}": "0"})
}

func has(t *testing.T, c *tally, want map[string]string) {
	t.Helper()
	got := c.values()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}
