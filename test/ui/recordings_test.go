package ui

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

// readings builds what the page shows of a run three ways: from all of it at once;
// from two parts, the later one first, as somebody who scrolls back does; and from
// all of it with its end let go and read again. It returns what differs.
const readings = `(async (events) => {
	const { Builder } = await import("/ui/blocks.js");
	const { decode } = await import("/ui/events.js");
	const all = events.map(decode);
	const build = (list) => {
		const b = new Builder();
		for (const e of list) b.apply(e);
		return b;
	};
	// What is told once for a group, or leans on what stands before, may be told twice.
	const told = (b) => b.blocks.filter((x) => x.kind === "text" || x.kind === "tool" || x.kind === "ask" || x.kind === "command")
		.map((x) => JSON.stringify([x.kind, x.who, x.by, x.text, x.name, x.title, x.state, x.output, x.reason, x.decision, x.facts?.map((f) => f.fact)]));
	const whole = told(build(all));
	const wrong = [];
	const compare = (what, got) => {
		const at = got.findIndex((s, i) => s !== whole[i]);
		if (at >= 0 || got.length !== whole.length) wrong.push(what + ": block " + at + " of " + got.length + " is " + String(got[at]).slice(0, 300) + ", want (of " + whole.length + ") " + String(whole[at]).slice(0, 300));
	};
	for (let n = 1; n < 8; n++) {
		const cut = Math.floor(all.length * n / 8);
		const later = build(all.slice(cut));
		later.behind(build(all.slice(0, cut)));
		compare("cut before event " + all[cut]?.seq, told(later));
		const b = build(all);
		const gone = b.blocks.splice(Math.floor(b.blocks.length * n / 8));
		if (gone.length === 0) continue;
		b.drop(gone);
		const hi = Math.max(b.blocks.at(-1)?.seq ?? 0, gone[0].seq - 1);
		for (const e of all) if (e.seq > hi) b.apply(e);
		compare("read again behind " + hi, told(b));
	}
	return wrong;
})(%s)`

// TestRecordings shows every recorded session of a real agent.
func TestRecordings(t *testing.T) {
	s := newSite(t)
	b := s.open("/")
	blocks := 0
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		var join event.Joiner
		for _, e := range capture.Events(c, "default", "r1") {
			if whole, _, _ := join.Add(e); whole != nil {
				list = append(list, string(whole.AppendJSON(nil)))
			}
		}
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		wrong, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](fmt.Sprintf(readings, "["+strings.Join(list, ",")+"]"), chromedp.EvalAwaitPromise))
		cancel()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", name, w)
		}
		blocks++
	}
	t.Logf("%d recordings", blocks)
	b.clean()
}
