package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// placed is where the timeline puts the agents of a task, in seconds behind the
// task's beginning: from and to of each that has a bar, and how far it was moved.
const placed = `(async (task, ended) => {
	const { rowsOf } = await import("/ui/timeline.js");
	const T = Date.UTC(2026, 2, 1, 17, 20);
	const at = (s) => new Date(T + 1000 * s).toISOString();
	const agents = task.map(([from, to, more], i) => ({ key: "a" + i, state: "done", started_ms: T + 1000 * from, ended_ms: T + 1000 * to, ...more }));
	const state = { started_at: at(-5), ended_at: at(ended + 5), turns: [], tasks: [{ id: "t", status: "completed", started_at: at(0), ended_at: at(ended), agents }] };
	return rowsOf(state).filter((r) => r.kind === "agent").map((r) => r.from > 0 ? [(r.from - T) / 1000, (r.to - T) / 1000, r.by / 1000].join(" ") : r.after);
})(%s, 60)`

// TestClocks places agents whose clock is not that of the edge.
func TestClocks(t *testing.T) {
	s := newSite(t)
	b := s.open("/")
	for _, tt := range []struct {
		name, agents string
		want         []string
	}{
		{"the same clock", `[[1, 20], [15, 58]]`, []string{"1 20 0", "15 58 0"}},
		{"a little before its task", `[[-100, 20], [15, 58]]`, []string{"-100 20 0", "15 58 0"}},
		{"ten hours behind", `[[-36000, -35980], [-35990, -35942]]`, []string{"0 20 36000", "10 58 36000"}},
		{"ten hours ahead", `[[36010, 36020], [36000, 36050]]`, []string{"10 20 -36000", "0 50 -36000"}},
		{"begun in time, ended long after its task", `[[2, 20], [15, 4000]]`, []string{"2 20 0", "15 4000 0"}},
		{"a recording of last year", `[[-3e7, -29999970], [-29999990, -29999950]]`, []string{"0 30 30000000", "10 50 30000000"}},
		{"one of three has a clock of its own", `[[1, 20], [-3e7, -29999970], [15, 58]]`, []string{"1 20 0", "its clock is wrong", "15 58 0"}},
		{"a cached one of the day before", `[[-80000, -79990, {cached: true}], [3, 58]]`, []string{"cached", "3 58 0"}},
	} {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		got, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](fmt.Sprintf(placed, tt.agents), chromedp.EvalAwaitPromise))
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: agents from, to and moved by (-want +got):\n%s", tt.name, d)
		}
	}

	// A replay: the agents of a task of today began ten hours ago. They get bars, and the page says why.
	p := s.start("cbc")
	old := time.Now().Add(-10 * time.Hour).UnixMilli()
	p.say(initFrame(), taskStarted("t1", "nightly review"), workflow("t1",
		obj{"index": 0, "label": "one", "phaseIndex": 1, "phaseTitle": "Gather", "agentId": "a1", "state": "done", "startedAt": old, "durationMs": 8000},
		obj{"index": 1, "label": "two", "phaseIndex": 2, "phaseTitle": "Review", "agentId": "a2", "state": "done", "startedAt": old + 8000, "durationMs": 4000}))
	b.firstRun()
	b.sees(".timeline .clock", "agents' clock differs by 10 h 00 m")
	b.until("bars that can be seen", `[...document.querySelectorAll(".k-agent rect:not(.hit)")].filter((e) => e.getBBox().width > 60).length === 2`)
	b.shot("replay")
	p.say(taskOver("t1", "completed"), done("ok"))
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "ended")
	b.clean()
}
