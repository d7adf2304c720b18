package ui

import (
	"fmt"
	"syscall"
	"testing"
)

// saidOnce counts how often a text stands in the transcript.
func saidOnce(s string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".said")].filter((e) => e.textContent.includes(%q)).length === 1`, s)
}

// TestRestart takes the relay away while a text is being written, and brings it back.
func TestRestart(t *testing.T) {
	s := newSite(t)
	p := s.start("claude")
	p.say(initFrame(), assistant(words("before the end")), delta("half of "))
	b := s.open("/")
	b.firstRun()
	b.sees(".draft", "half of")
	s.down()
	b.sees(".contact", "no connection")
	b.sees("[data-alert=away]", "No connection")
	p.say(delta("a sentence"), assistant(words("half of a sentence, and the rest")), assistant(words("while it was away")))
	s.up(s.addr())
	b.sees(".contact", "live")
	b.until("what came meanwhile, once", saidOnce("while it was away"))
	for _, want := range []string{"before the end", "half of a sentence"} {
		b.until("once: "+want, saidOnce(want))
	}
	b.until("no alert stays", `document.querySelector("[data-alert=away]") === null`)
	p.say(assistant(words("after it")), done("ok"))
	b.until("and it goes on", saidOnce("after it"))
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "ended")
	seqs := eval[[]float64](b, `[...document.querySelectorAll(".block")].map((e) => Number(e.dataset.seq))`)
	for i := 1; i < len(seqs); i++ {
		if seqs[i] < seqs[i-1] {
			t.Errorf("block %d of event %v stands behind one of %v", i, seqs[i], seqs[i-1])
		}
	}
	b.clean()
}

// TestStale stops the relay's process, so that nothing comes and nothing ends.
func TestStale(t *testing.T) {
	s := newSite(t, "CBCAST_RELAY_HEARTBEAT=500ms")
	p := s.start("claude")
	p.say(initFrame(), assistant(words("hello")))
	b := s.open("/")
	b.firstRun()
	b.sees(".contact", "live")
	pid := s.relay.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "nothing heard for")
	b.until("it says so", `document.querySelector("[data-alert=stale], [data-alert=away]") !== null`)
	b.shot("stale")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "live")
	p.say(assistant(words("again")))
	b.until("and goes on", saidOnce("again"))
	b.until("no alert stays", `document.querySelector("[data-alert=stale], [data-alert=away]") === null`)
	b.clean()
}

// TestLost kills an edge, whose run is lost until its spool is shipped.
func TestLost(t *testing.T) {
	s := newSite(t, "CBCAST_RELAY_LOST_GRACE=1s")
	p := s.start("claude")
	p.say(initFrame(), assistant(words("hello")))
	b := s.open("/")
	b.firstRun()
	b.sees(".said", "hello")
	p.kill()
	b.until("it says so", `Boolean(document.querySelector("[data-alert=lost]")?.textContent.includes("No word from the edge")) && document.querySelector(".run-head .s-lost") !== null`)
	b.shot("lost")
	// Whoever ships the spool later resolves it; that it was lost stays in the transcript, once.
	b.until("said once in the transcript", `[...document.querySelectorAll(".b-gap")].filter((e) => e.textContent.startsWith("Lost.")).length === 1`)
	b.clean()
}

// TestGap opens a run whose beginning is no longer kept.
func TestGap(t *testing.T) {
	s := newSiteWith(t, []string{"CBCAST_MAX_BYTES=1048576"})
	p := s.start("claude")
	p.say(initFrame())
	text := words(fmt.Sprintf("%01000d", 0))
	for range 40 {
		for range 100 {
			p.say(assistant(text))
		}
	}
	p.say(assistant(words("the last one")))
	b := s.open("/")
	b.firstRun()
	b.until("the end", saidOnce("the last one"))
	b.sees("[data-alert=gap]", "no longer kept")
	for eval[bool](b, edgeMore) {
		b.readOlder()
	}
	b.sees(".edge", "are no longer kept")
	b.shot("gap")
	b.clean()
}
