package ui

import (
	"bufio"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// flood has the agent say n messages, each of its own.
func (p *puppet) flood(from, n int) {
	p.t.Helper()
	w := bufio.NewWriterSize(p.conn, 1<<20)
	for i := from; i < from+n; i++ {
		_, _ = w.WriteString(assistant(words(fmt.Sprintf("message %d of many, with some words behind it", i))) + "\n")
	}
	if err := w.Flush(); err != nil {
		p.t.Fatal(err)
	}
}

// busy is the CPU time that the page's own thread has used, in seconds.
func (b *tab) busy() float64 {
	b.t.Helper()
	m, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range m.Metrics {
		if x.Name == "TaskDuration" {
			return x.Value
		}
	}
	b.t.Fatal("no TaskDuration")
	return 0
}

// burst says some messages and returns the CPU time that the page took for them.
func (b *tab) burst(p *puppet, from, n int) float64 {
	b.t.Helper()
	before := b.busy()
	p.flood(from, n)
	b.until("the burst", saidOnce(fmt.Sprintf("message %d of many", from+n-1)))
	return b.busy() - before
}

// TestLong opens a run of 50 000 events. What the page holds, what it reads and what
// an event costs it must not depend on the run's length.
func TestLong(t *testing.T) {
	s := newSite(t)
	const long, few = 50_000, 1000
	short := s.start("claude")
	short.say(initFrame())
	b := s.open("/")
	if _, err := chromedp.Call(b.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
		t.Fatal(err)
	}
	b.firstRun()
	short.flood(0, few)
	b.until("the short run", saidOnce(fmt.Sprintf("message %d of many", few-1)))
	cost := b.burst(short, few, few)
	if err := short.end(); err != nil {
		t.Fatal(err)
	}

	p := s.start("claude")
	p.say(initFrame())
	p.flood(0, long)
	b.run(goTo("#/"))
	b.until("the second run is there", `document.querySelectorAll("a.run").length === 2`)
	s.shipped(long)
	b.run(evaluate(`performance.clearResourceTimings(); performance.setResourceTimingBufferSize(10000)`))
	b.press(`a.run:has(.s-working)`, "")
	b.until("its end", saidOnce(fmt.Sprintf("message %d of many", long-1)))
	b.bounded("opened")
	read := eval[float64](b, `performance.getEntriesByType("resource").filter((r) => r.name.includes("/events") || r.name.includes("/stream")).reduce((n, r) => n + r.transferSize, 0)`)
	if read > 2<<20 {
		t.Errorf("to open it %.0f bytes of events were read", read)
	}

	costLong := b.burst(p, long, few)
	t.Logf("CPU time of the page for %d live messages: %.0f ms in a run of %d events, %.0f ms in one of %d: %.2f", few, 1000*cost, 2*few, 1000*costLong, long, costLong/cost)
	if costLong > 3*cost+0.2 {
		t.Errorf("a burst costs %.0f ms in the long run and %.0f ms in the short one", 1000*costLong, 1000*cost)
	}
	b.bounded("after a burst")

	// Older parts are read on demand, and let go again.
	for range 6 {
		b.readOlder()
		b.bounded("behind its end")
	}
	p.flood(long+few, few)
	b.sees(".jump", "newer")
	b.press(".jump", "↓")
	b.until("the end again", saidOnce(fmt.Sprintf("message %d of many", long+2*few-1)))
	b.bounded("at its end again")
	b.shot("long")
	gaps := eval[int](b, `[...document.querySelectorAll(".said")].map((e) => Number(/message (\d+)/.exec(e.textContent)?.[1])).filter((n, i, a) => i > 0 && n !== a[i - 1] + 1).length`)
	if gaps != 0 {
		t.Errorf("%d messages do not follow on the one before", gaps)
	}
	b.clean()
}

// shipped waits until the newest run has so many events on the bus.
func (s *site) shipped(n uint64) {
	s.t.Helper()
	var list struct{ Runs []struct{ Run string } }
	s.get("/v1/runs?limit=1", &list)
	for end := time.Now().Add(patience); ; {
		var page struct{ Head uint64 }
		s.get("/v1/runs/"+list.Runs[0].Run+"/events?limit=1", &page)
		if page.Head >= n {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d events are on the bus", page.Head, n)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// bounded checks how much of a run the page holds.
func (b *tab) bounded(when string) {
	b.t.Helper()
	if n := eval[int](b, `document.querySelectorAll(".block").length`); n > 650 {
		b.t.Errorf("%s: %d blocks are on the page", when, n)
	}
	if n := eval[int](b, `document.querySelectorAll("*").length`); n > 6000 {
		b.t.Errorf("%s: %d elements are on the page", when, n)
	}
}
