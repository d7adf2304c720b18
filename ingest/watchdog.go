package ingest

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// killStep is how long a child that is to leave gets for each step: its stdin
// closed, SIGTERM, SIGKILL.
var killStep = 5 * time.Second // shortened by tests

// What a [event.Stalled] can be about.
const (
	stalledExit = "no_exit_after_end"
	stalledTurn = "silent_turn"
	stalledAsk  = "open_ask"
	streamShut  = "stream_closed"
)

// endedAfterResult is what [event.Exited] says of a child that a watchdog ended.
const endedAfterResult = "kill_after_result"

// endable is the child, as the watchdog needs it.
type endable interface {
	Exited() <-chan struct{}
	ReleaseStdin()
	Signal(syscall.Signal) error
}

// A watchdog states what takes too long. It acts in one case only, and only when
// it was asked to: a one-shot child that stays after its result. While an ask is
// open it says nothing but that, once: a person may take as long as a person takes.
type watchdog struct {
	rec        *recorder
	p          endable
	afterEnd   time.Duration // Config.KillAfterResult
	stallAfter time.Duration // Config.StallAfter
	oneShot    bool          // the child reads no messages: its result is its end
	mute       bool          // its output is one text or document: silence says nothing
	wg         sync.WaitGroup
	cancel     context.CancelFunc
	ended      string // what of ours ended the child; read after wg

	asked uint64 // place of the last ask that was said to be open
	shut  bool   // it was said that the child's stdin is closed
}

func newWatchdog(rec *recorder, p endable, o *Options) *watchdog {
	out := dialect.OutputOf(o.Argv)
	return &watchdog{
		rec: rec, p: p, afterEnd: o.KillAfterResult, stallAfter: o.StallAfter, oneShot: !readsStream(o.Argv),
		mute: out == dialect.OutputText || out == dialect.OutputJSON,
	}
}

func (w *watchdog) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() { w.run(ctx) }) // ends with stop, or the child's exit
}

// stop ends the watch and says what of it ended the child.
func (w *watchdog) stop() string {
	w.cancel()
	w.wg.Wait()
	return w.ended
}

// run looks again after each recorded line.
func (w *watchdog) run(ctx context.Context) {
	for {
		w.denied()
		after, what := w.next()
		switch w.wait(ctx, after) {
		case waitOver:
			return
		case waitLine:
			continue
		case waitSilent:
		}
		if what == stalledAsk {
			w.askOpen()
			continue
		}
		w.rec.fact(event.TypeStalled, event.Life, event.Stalled{What: what, Seconds: int(after.Seconds())})
		if what == stalledExit && w.afterEnd > 0 && w.end(ctx) {
			return
		}
		if w.wait(ctx, 0) == waitOver { // said once: the next line starts over
			return
		}
	}
}

type waited int

const (
	waitOver   waited = iota // the watch, or the child, has ended
	waitLine                 // a line was recorded
	waitSilent               // none was for the time given
)

// wait waits for a line, for d at most; 0 is without end.
func (w *watchdog) wait(ctx context.Context, d time.Duration) waited {
	var silent <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		silent = t.C
	}
	select {
	case <-ctx.Done():
		return waitOver
	case <-w.p.Exited():
		return waitOver
	case <-w.rec.watched:
		return waitLine
	case <-silent:
		return waitSilent
	}
}

// next says which silence would be worth a word now, and how long it must last;
// 0 is none.
func (w *watchdog) next() (time.Duration, string) {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	st := w.rec.state
	open := st.Open()
	switch {
	case open.Asks > 0 && w.stallAfter > 0:
		if _, _, opened, ok := st.OpenAskAfter(w.asked); ok {
			return max(1, time.Until(opened.Add(w.stallAfter))), stalledAsk
		}
		return 0, ""
	case w.mute || open.Asks > 0:
		return 0, ""
	case w.oneShot && !open.Any() && st.TurnsEnded() > 0:
		if w.afterEnd > 0 {
			return w.afterEnd, stalledExit
		}
		return w.stallAfter, stalledExit
	case open.Turns > 0:
		return w.stallAfter, stalledTurn
	}
	return 0, ""
}

// askOpen says of the next ask that is open for too long that it is.
func (w *watchdog) askOpen() {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	id, seq, opened, ok := w.rec.state.OpenAskAfter(w.asked)
	now := time.Now()
	if !ok || now.Sub(opened) < w.stallAfter {
		return // it was answered meanwhile
	}
	w.asked = seq
	w.rec.factLocked(now, event.TypeStalled, event.Life, event.Stalled{
		What: stalledAsk, Seconds: int(now.Sub(opened).Seconds()), Ask: id,
	}, true)
}

// denied says once that the child has nobody to ask any more: its stdin is
// closed, and it takes that for a no to whatever it wants to do.
func (w *watchdog) denied() {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	if w.shut || !w.rec.state.StreamClosed() {
		return
	}
	w.shut = true
	w.rec.factLocked(time.Now(), event.TypeStalled, event.Life, event.Stalled{What: streamShut}, true)
}

// end makes the child leave, step by step. It gives up, and reports false, when
// the child has begun something again.
func (w *watchdog) end(ctx context.Context) bool {
	w.ended = endedAfterResult
	w.p.ReleaseStdin()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for deadline := time.Now().Add(killStep); ; {
			left := max(1, time.Until(deadline))
			got := w.wait(ctx, left)
			if got == waitOver {
				return true
			}
			if _, what := w.next(); what != stalledExit {
				w.ended = ""
				return false
			}
			if got == waitSilent {
				break
			}
		}
		if err := w.p.Signal(sig); err != nil {
			w.rec.log.Debug("end the child", "signal", sig, "error", err)
		}
	}
	return true
}
