package ui

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// TestTellApart has two runs without a name in the list, and looks at one.
func TestTellApart(t *testing.T) {
	s := newSite(t)
	var end []func() error
	for _, id := range []string{"aaaa1111-0000-4000-8000-000000000001", "bbbb2222-0000-4000-8000-000000000002"} {
		p := s.start("claude")
		p.say(strings.ReplaceAll(initFrame(), session, id), strings.ReplaceAll(done("ok"), session, id))
		end = append(end, p.end)
	}
	b := s.open("/")
	b.sees("a.run .sub", "session aaaa1111 · claude 2.1.220")
	b.sees("a.run .sub", "session bbbb2222 · claude 2.1.220")
	b.until("the header is as wide as the window", `document.querySelector(".top").getBoundingClientRect().width === innerWidth`)
	for _, f := range end {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	b.until("both have ended", `document.querySelectorAll(".v-success").length === 2`)
	b.shot("two")
	b.firstRun()
	b.sees(".contact", "ended")
	b.until("the verdict and its evidence", `/^success$/.test([...document.querySelectorAll("dt")].find((e) => e.textContent === "verdict")?.nextSibling.textContent) && /^result: event \d+/.test([...document.querySelectorAll("dt")].find((e) => e.textContent === "evidence")?.nextSibling.textContent)`)
	b.shot("run")

	const hash = "b34accb2b34accb2b34accb2b34accb2"
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`(async () => {
		const { argvNodes, argvText } = await import("/ui/argv.js");
		const argv = ["claude", "-p", "13:`+hash+`", "--settings=1:`+hash+`", "13:30"];
		const nodes = argvNodes(argv);
		return [argvText(argv), nodes.map((n) => n.textContent ?? n).join(""), ...nodes.filter((n) => n.title).map((n) => n.title.split(",")[0])];
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	const words = "claude -p [masked: 13 bytes] --settings=[masked: 1 byte] 13:30"
	if d := cmp.Diff([]string{words, words, "masked: 13 bytes", "masked: 1 byte"}, got); d != "" {
		t.Errorf("a masked command line (-want +got):\n%s", d)
	}
	b.clean()
}
