package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A tape is a log in memory: a source.
type tape struct {
	log    bus.Log
	window int
	begin  begin

	mu    sync.Mutex // guards the rest
	all   []bus.Delivery
	given int
	acked uint64
	moved chan struct{}
	again bool // begin anew from behind what was acked
	turn  bus.Turn
	idle  bool // nothing is given, and nothing begins
}

func (t *tape) add(entries ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range entries { // run/number
		run, n, _ := strings.Cut(s, "/")
		e := &event.Event{Tenant: "acme", Run: run, Type: "dev.cbcast.x", Kind: event.Msg, Data: []byte(s)}
		fmt.Sscan(n, &e.Seq)
		seq := uint64(len(t.all) + 1)
		d := bus.Delivery{Log: t.log, At: bus.Place{Seq: seq, Time: time.Unix(int64(seq), 0)}, Event: e}
		d.Raw = bus.Raw{Subject: "cbc.ev.0.acme." + run + "._._.msg", Data: e.Data}
		if run == "bad" {
			d.Event, d.Bad = nil, bus.ErrForeign
		}
		t.all = append(t.all, d)
	}
	t.move()
}

func (t *tape) move() {
	if t.moved != nil {
		close(t.moved)
	}
	t.moved = make(chan struct{})
}

func (t *tape) Run(ctx context.Context, fn func(context.Context, bus.Delivery) error) error {
	if t.idle {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	t.begin(bus.Place{}, bus.Kept)
	for {
		t.mu.Lock()
		if t.again {
			t.again, t.given = false, int(t.acked)
			t.mu.Unlock()
			t.begin(bus.Place{Seq: t.acked}, t.turn)
			continue
		}
		var next *bus.Delivery
		if t.given < len(t.all) && t.given-int(t.acked) < t.window {
			next = &t.all[t.given]
			t.given++
		}
		moved := t.moved
		t.mu.Unlock()
		if next != nil {
			if err := fn(ctx, *next); err != nil {
				return err
			}
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (t *tape) AckOf(_ uint64, at bus.Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked = max(t.acked, at.Seq)
	t.move()
}

func (t *tape) floor() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acked
}

func (t *tape) Settle(context.Context) error { return nil }

func (t *tape) Status() bus.DurableStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bus.DurableStatus{Reading: true, Unacked: t.given - int(t.acked), Pending: uint64(len(t.all) - t.given)}
}

// idleLog is a log that has nothing for its reader.
const idleLog bus.Log = 99

// A script is a handler that does as it is told.
type script struct {
	handle func(e *Entry) error
	commit func(pressed bool) (map[bus.Log]bus.Place, error)

	mu       sync.Mutex // guards the rest
	handled  []string
	commits  int
	pressed  int
	rebuilds int
}

func (s *script) Handle(_ context.Context, e *Entry) error {
	s.mu.Lock()
	s.handled = append(s.handled, string(e.Raw.Data))
	s.mu.Unlock()
	if s.handle != nil {
		return s.handle(e)
	}
	return nil
}

func (s *script) Commit(_ context.Context, pressed bool) (map[bus.Log]bus.Place, error) {
	s.mu.Lock()
	s.commits++
	if pressed {
		s.pressed++
	}
	s.mu.Unlock()
	if s.commit != nil {
		return s.commit(pressed)
	}
	return nil, nil
}

func (s *script) Rebuilt(bus.Log, bus.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebuilds++
}

func (s *script) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.handled)
}

// play runs a consumer over tapes in a bubble of time.
func play(t *testing.T, cfg Config, s Handler, test func(t *testing.T, c *Consumer, logs ...*tape)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg.Name, cfg.Dir = "cbcast-test", dir
		if cfg.Logs == nil {
			cfg.Logs = []bus.Log{0}
		}
		if cfg.Window == 0 {
			cfg.Window = 1000
		}
		tapes := map[bus.Log]*tape{}
		var all []*tape
		for _, l := range cfg.Logs {
			tapes[l] = &tape{log: l, window: cfg.Window, moved: make(chan struct{}), idle: l == idleLog}
			all = append(all, tapes[l])
		}
		cfg.sources = func(l bus.Log, b begin) source {
			tapes[l].begin = b
			return tapes[l]
		}
		c, err := New(cfg, s)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		test(t, c, all...)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func same(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("%s (-want +got):\n%s", what, d)
	}
}

var errNo = errors.New("no")

// Case 086: an entry that fails holds up its own run, in order, and no other; nothing
// behind it is acked until it is handled.
func TestOneRunWaits(t *testing.T) {
	fails := 3
	s := &script{handle: func(e *Entry) error {
		if string(e.Raw.Data) == "a/2" && fails > 0 {
			fails--
			return errNo
		}
		return nil
	}}
	play(t, Config{}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		logs[0].add("a/1", "b/1", "a/2", "b/2", "a/3", "bad/1", "a/4", "b/3")
		synctest.Wait()
		same(t, "handled at once", []string{"a/1", "b/1", "a/2", "b/2", "bad/1", "b/3"}, s.got())
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if st := c.Status(); st.Parked != 1 || !st.Oldest.Equal(time.Unix(3, 0)) || !st.Ready {
			t.Errorf("status %+v", st)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		same(t, "handled", []string{
			"a/1", "b/1", "a/2", "b/2", "bad/1", "b/3", "a/2", "a/2", "a/2", "a/3", "a/4",
		}, s.got())
		if logs[0].floor() != 8 || c.Status().Parked != 0 {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), c.Status())
		}
	})
}

// What waits is not acked, and what is before it is.
func TestAckBelowWaiting(t *testing.T) {
	s := &script{handle: func(e *Entry) error {
		if string(e.Raw.Data) == "a/1" {
			return ErrAgain
		}
		return nil
	}}
	play(t, Config{}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		logs[0].add("b/1", "b/2", "a/1", "b/3")
		time.Sleep(time.Hour) // it is nobody's fault: never a dead letter
		synctest.Wait()
		st := c.Status()
		if logs[0].floor() != 2 || st.Dead != 0 || st.Ready || !errors.Is(st.Err, ErrAgain) {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), st)
		}
	})
}

// Case 088: errors and panics end in a dead letter, with the reason and the message, and
// the run goes on. One that failed before fails faster.
func TestDeadLetters(t *testing.T) {
	s := &script{handle: func(e *Entry) error {
		switch string(e.Raw.Data) {
		case "a/1":
			panic("at the disco")
		case "a/2", "bad/1":
			return errNo
		}
		return nil
	}}
	play(t, Config{}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		logs[0].add("a/1", "a/2", "a/3", "bad/1", "bad/2")
		time.Sleep(time.Minute)
		synctest.Wait()
		ids, err := c.Dead().IDs()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range ids {
			d, err := c.Dead().Read(id)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s %d %q %d", d.Run, d.Data, d.Seq, d.Reason, d.Tries))
		}
		same(t, "letters", []string{`a a/1 1 "panic: at the disco" 8`, `a a/2 2 "no" 8`, `bad bad/1 4 "no" 8`}, got)
		tries := map[string]int{}
		for _, x := range s.got() {
			tries[x]++
		}
		same(t, "tries", map[string]int{"a/1": 8, "a/2": 1, "a/3": 1, "bad/1": 8, "bad/2": 1}, tries)
		if st := c.Status(); logs[0].floor() != 5 || st.Buried != 3 || st.Dead != 3 || !st.Ready {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), st)
		}
		if err := c.Dead().Remove(ids[0]); err != nil || c.Status().Dead != 2 {
			t.Errorf("%v, %d letters", err, c.Status().Dead)
		}
		if _, err := c.Dead().Read("../x"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a letter outside: %v", err)
		}
	})
}

// With as many dead letters as there may be, or no disk for one, the run waits and the
// consumer says why.
func TestTooManyDead(t *testing.T) {
	s := &script{handle: func(*Entry) error { return errNo }}
	play(t, Config{MaxDead: 2}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		logs[0].add("a/1", "b/1", "c/1")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		st := c.Status()
		if st.Dead != 2 || !errors.Is(st.Err, ErrDeadFull) || st.Parked != 1 || logs[0].floor() > 2 {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), st)
		}
		ids, _ := c.Dead().IDs()
		if err := c.Dead().Remove(ids[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := c.Status(); st.Dead != 2 || st.Err != nil || logs[0].floor() != 3 {
			t.Errorf("after one was removed: acked up to %d, %+v", logs[0].floor(), st)
		}
	})
}

// What waits for its run is bounded; past that nothing is read until it is handled.
func TestParkedIsBounded(t *testing.T) {
	var ok atomic.Bool
	s := &script{handle: func(*Entry) error {
		if !ok.Load() {
			return ErrAgain
		}
		return nil
	}}
	play(t, Config{Parked: 20 << 10, Window: 10_000}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		var want []string
		for n := range 5000 {
			want = append(want, fmt.Sprintf("a/%d", n+1))
		}
		logs[0].add(want...)
		time.Sleep(time.Minute)
		synctest.Wait()
		// One take of the queue may go past the bound.
		if st := c.Status(); st.ParkedBytes < 20<<10 || st.ParkedBytes > 20<<10+queueEntries*1100 {
			t.Errorf("status %+v", st)
		}
		// Below the bound there are so many at most, a queue was taken then, another is full,
		// and one entry waits for room in it.
		const under = 20 << 10 / 1024
		given := logs[0].Status().Unacked
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := logs[0].Status().Unacked; now != given || given > under+2*queueEntries+1 {
			t.Errorf("%d read, then %d", given, now)
		}
		ok.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		tail := s.got()
		same(t, "handled in the end", want, tail[len(tail)-5000:])
	})
}

// After a commit that fails nothing is acked, and it is tried again, later and later; a
// panic is no more than that.
func TestCommitFails(t *testing.T) {
	var mended atomic.Bool
	s := &script{commit: func(bool) (map[bus.Log]bus.Place, error) {
		if !mended.Load() {
			panic("disk full")
		}
		return nil, nil
	}}
	play(t, Config{Events: 10}, s, func(t *testing.T, c *Consumer, logs ...*tape) {
		for n := range 100 {
			logs[0].add(fmt.Sprintf("a/%d", n+1))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		st := c.Status()
		if logs[0].floor() > 0 || st.Ready || st.Err == nil || !strings.Contains(st.Err.Error(), "disk full") {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), st)
		}
		if n := s.commits; n < 5 || n > 15 {
			t.Errorf("%d commits in a minute", n)
		}
		if n := len(s.got()); n < 10 || n > 100 {
			t.Errorf("%d handled", n)
		}
		mended.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := c.Status(); logs[0].floor() != 100 || !st.Ready {
			t.Errorf("acked up to %d, %+v", logs[0].floor(), st)
		}
	})
}

// A handler that holds back is asked again, is pressed where the window is nearly
// full, and is acked as far as it says.
func TestHoldsBack(t *testing.T) {
	var upTo map[bus.Log]bus.Place
	s := &script{}
	s.commit = func(pressed bool) (map[bus.Log]bus.Place, error) {
		if pressed {
			return nil, nil
		}
		return upTo, nil
	}
	upTo = map[bus.Log]bus.Place{0: {Seq: 3}}
	play(t, Config{Logs: []bus.Log{0, bus.ControlLog}, Window: 40}, s, func(t *testing.T, _ *Consumer, logs ...*tape) {
		for n := range 10 {
			logs[0].add(fmt.Sprintf("a/%d", n+1))
		}
		logs[1].add("a/0", "a/0")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if logs[0].floor() != 3 || logs[1].floor() != 0 || s.commits < 5 || s.pressed > 0 {
			t.Errorf("acked up to %d and %d, %d commits, %d pressed", logs[0].floor(), logs[1].floor(), s.commits, s.pressed)
		}
		for n := range 100 {
			logs[0].add(fmt.Sprintf("a/%d", n+11))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.pressed == 0 || logs[0].floor() < 80 || len(s.got()) != 112 {
			t.Errorf("acked up to %d, %d pressed, %d handled", logs[0].floor(), s.pressed, len(s.got()))
		}
	})
	if s.pressed < 2 {
		t.Error("the last commit is not pressed")
	}
}

// Entries that come again were handled or wait; they are not handled twice. Those of
// a log that is another one are.
func TestComesAgain(t *testing.T) {
	s := &script{
		handle: func(e *Entry) error {
			if e.Event.Run == "b" {
				return ErrAgain
			}
			return nil
		},
		commit: func(bool) (map[bus.Log]bus.Place, error) { return map[bus.Log]bus.Place{}, nil },
	}
	play(t, Config{}, s, func(t *testing.T, _ *Consumer, logs ...*tape) {
		logs[0].add("a/1", "b/1", "a/2", "b/2")
		time.Sleep(time.Minute)
		synctest.Wait()
		again := func(turn bus.Turn) map[string]int {
			s.mu.Lock()
			s.handled = nil
			s.mu.Unlock()
			logs[0].mu.Lock()
			logs[0].again, logs[0].turn = true, turn
			logs[0].move()
			logs[0].mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			n := map[string]int{}
			for _, x := range s.got() {
				n[x]++
			}
			return n
		}
		if n := again(bus.Kept); len(n) != 1 || n["b/1"] < 3 {
			t.Errorf("handled %v", n)
		}
		n := again(bus.Rebuilt)
		same(t, "handled of another log", []string{"a/1", "a/2", "b/1"}, slices.Sorted(maps.Keys(n)))
		if n["a/1"] != 1 || s.rebuilds != 1 {
			t.Errorf("handled %v; rebuilt %d", n, s.rebuilds)
		}
	})
}

// A place that a handler has from a log that was there earlier acks nothing in the one that
// is there now: its sequence may be far behind what was read, its time is before that.
func TestAckOfAnEarlierLog(t *testing.T) {
	var at atomic.Int64
	at.Store(2)
	s := &script{}
	s.commit = func(bool) (map[bus.Log]bus.Place, error) {
		return map[bus.Log]bus.Place{0: {Seq: 1000, Time: time.Unix(at.Load(), 0)}}, nil
	}
	play(t, Config{}, s, func(t *testing.T, _ *Consumer, logs ...*tape) {
		logs[0].add("a/1", "a/2", "a/3")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := logs[0].floor(); n != 0 {
			t.Errorf("acked up to %d", n)
		}
		s.mu.Lock()
		n := s.commits
		s.mu.Unlock()
		if n < 5 {
			t.Errorf("%d commits: what is not acked is to be asked for again", n)
		}
		at.Store(3)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := logs[0].floor(); n != 3 {
			t.Errorf("acked up to %d by a place of this log", n)
		}
	})
}

// A waits is a handler with work of its own.
type waits struct {
	script
	left atomic.Int64 // commits that it takes
}

func (w *waits) Waiting() bool { return w.left.Load() > 0 }

func (w *waits) Commit(ctx context.Context, pressed bool) (map[bus.Log]bus.Place, error) {
	w.left.Add(-1)
	return w.script.Commit(ctx, pressed)
}

// A handler that waits is asked to commit again and again, whether all is acked, or its log
// gives nothing and does not even begin; one that does not wait is left alone.
func TestWaiter(t *testing.T) {
	for _, log := range []bus.Log{0, idleLog} {
		w := &waits{}
		w.left.Store(3)
		play(t, Config{Logs: []bus.Log{log}}, w, func(t *testing.T, _ *Consumer, logs ...*tape) {
			commits := func() int {
				time.Sleep(time.Minute)
				synctest.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.commits
			}
			if n := commits(); n != 3 {
				t.Errorf("%v: %d commits of a handler that waits for three", log, n)
			}
			if log == idleLog {
				return
			}
			w.left.Store(4) // by what it is given
			logs[0].add("a/1")
			if n := commits(); n != 7 || logs[0].floor() != 1 {
				t.Errorf("%d commits, acked up to %d", n, logs[0].floor())
			}
		})
	}
}
