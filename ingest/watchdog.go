package ingest

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/event"
)

// killStep is how long a child that is to leave gets for each step: its stdin
// closed, SIGTERM, SIGKILL.
const killStep = 5 * time.Second

// A watchdog states what takes too long. It acts in one case only, and only when
// it was asked to: a one-shot child that stays after its result. None of it
// happens while an ask is open: a person may take as long as a person takes.
type watchdog struct {
	e       *edge
	p       *child.Process
	oneShot bool // the child reads no messages: its result is its end
	wg      sync.WaitGroup
	cancel  context.CancelFunc

	mu    sync.Mutex
	ended string // what of ours ended the child
}

func (e *edge) watchdog(ctx context.Context, p *child.Process) *watchdog {
	w := &watchdog{e: e, p: p, oneShot: !readsStream(e.o.Argv)}
	ctx, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() { w.run(ctx) }) // ends with stop
	return w
}

// stop ends the watch and says what of it ended the child.
func (w *watchdog) stop() string {
	w.cancel()
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// run looks again after each recorded line has been followed by silence.
func (w *watchdog) run(ctx context.Context) {
	o := w.e.o
	for {
		after, what := w.next()
		var fire <-chan time.Time
		t := time.NewTimer(after)
		if what != "" {
			fire = t.C
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-w.p.Exited():
			t.Stop()
			return
		case <-w.e.rec.watched:
			t.Stop()
			continue
		case <-fire:
		}
		w.e.rec.fact(event.TypeStalled, event.Life, event.Stalled{What: what, Seconds: int(after.Seconds())})
		if what == stalledExit && o.KillAfterResult > 0 {
			w.end(ctx)
			return
		}
		select { // say it once: the next line starts over
		case <-ctx.Done():
			return
		case <-w.p.Exited():
			return
		case <-w.e.rec.watched:
		}
	}
}

// What a [event.Stalled] can be about.
const (
	stalledExit = "no_exit_after_end"
	stalledTurn = "silent_turn"
)

// next says which silence would be worth a word now, and how long it must last.
func (w *watchdog) next() (time.Duration, string) {
	r := w.e.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	open, o := r.state.Open(), w.e.o
	switch {
	case open.Asks > 0:
	case w.oneShot && !open.Any() && r.state.TurnsEnded() > 0 && o.KillAfterResult > 0:
		return o.KillAfterResult, stalledExit
	case w.oneShot && !open.Any() && r.state.TurnsEnded() > 0 && o.StallAfter > 0:
		return o.StallAfter, stalledExit
	case open.Any() && o.StallAfter > 0:
		return o.StallAfter, stalledTurn
	}
	return time.Hour, ""
}

// end makes the child leave, step by step.
func (w *watchdog) end(ctx context.Context) {
	w.mu.Lock()
	w.ended = "kill_after_result"
	w.mu.Unlock()
	w.p.ReleaseStdin()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t := time.NewTimer(killStep)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		case <-w.p.Exited():
			t.Stop()
			return
		}
		if err := w.p.Signal(sig); err != nil {
			w.e.log.Debug("end the child", "signal", sig, "error", err)
		}
	}
}

// readsStream reports whether a child was told to read messages from stdin.
func readsStream(argv []string) bool {
	in, _ := flagValue(argv, "--input-format")
	return in == "stream-json"
}

// flagValue finds the value of a flag in a child's arguments.
func flagValue(argv []string, flag string) (string, bool) {
	for i, a := range argv {
		if a == flag && i+1 < len(argv) {
			return argv[i+1], true
		}
		if len(a) > len(flag) && a[:len(flag)] == flag && a[len(flag)] == '=' {
			return a[len(flag)+1:], true
		}
	}
	return "", false
}
