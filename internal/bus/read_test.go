package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// fill publishes several runs side by side, so that their events interleave.
func fill(t *testing.T, b *bus.Bus, runs int, each uint64) {
	t.Helper()
	done := make(chan error, runs)
	for i := range runs {
		run := fmt.Sprint("r", i)
		p := &bus.Publisher{Bus: b, Ref: ref(run), Source: newMemory(evs(run, each)...).end()}
		go func() { done <- p.Run(t.Context()) }()
	}
	for range runs {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestHistoryFromAnywhere(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	const each = 700
	fill(t, b, 3, 200)
	fill(t, b, 4, each) // the others go on, r3 begins late
	for i := range 4 {
		if i == 1 {
			continue // as r0
		}
		r := ref(fmt.Sprint("r", i))
		_, first, err := b.FirstKept(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, hint := range []uint64{first, 0} {
			r.First = hint
			for _, after := range []uint64{0, 1, 199, 200, 255, 256, 257, 443, 444, each - 1, each, each + 1, 1 << 60} {
				want := after + 1
				for e, err := range b.History(t.Context(), r, after) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Seq != want {
						t.Fatalf("%s after %d: event %d, want %d", r.Run, after, e.Seq, want)
					}
					want++
				}
				if want != each+1 && after < each {
					t.Fatalf("%s after %d ends before %d", r.Run, after, want)
				}
			}
		}
	}
	for range b.History(t.Context(), ref("none"), 0) {
		t.Error("a run that is none has an event or an error")
	}
}

// A page is a loop left early; large events come in batches bounded by bytes;
// events stored meanwhile are not part of it.
func TestHistoryPagesAndGrowth(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	events := evs("r1", 100)
	for _, e := range events {
		e.Data = bytes.Repeat([]byte("x"), 200<<10)
	}
	publish(t, b, "r1", newMemory(events...).end())
	n := 0
	for e, err := range b.History(t.Context(), ref("r1"), 10) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			publish(t, b, "r1", newMemory(append(events, ev("r1", 101))...).end())
		}
		if e.Seq == 101 {
			t.Error("an event stored after the call")
		}
	}
	if n != 90 {
		t.Errorf("%d events, want 90", n)
	}
	n = 0
	for range b.History(t.Context(), ref("r1"), 0) {
		if n++; n == 3 {
			break
		}
	}
}

// Retention takes the beginning: the caller sees where the rest begins.
func TestHistoryAfterRetention(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 1000)...).end())
	api(t, b, "STREAM.PURGE.EV_0", map[string]any{"seq": 601}, nil)
	if e, sseq, err := b.FirstKept(t.Context(), ref("r1")); err != nil || e.Seq != 601 || sseq != 601 {
		t.Errorf("FirstKept = %v %d %v", e, sseq, err)
	}
	for after, want := range map[uint64]int{0: 400, 500: 400, 601: 399, 990: 10} {
		if got := history(t, b, ref("r1"), after); len(got) != want {
			t.Errorf("after %d: %d events, want %d", after, len(got), want)
		}
	}
}

func TestHistoryThroughCuts(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	publish(t, b, "r1", newMemory(evs("r1", 4000)...).end())
	want := uint64(0)
	for e, err := range b.History(t.Context(), ref("r1"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if want++; e.Seq != want {
			t.Fatalf("event %d, want %d", e.Seq, want)
		}
		if want%1500 == 0 {
			px.cut()
		}
	}
	if want != 4000 {
		t.Errorf("%d events", want)
	}
	px.aim("127.0.0.1:1")
	px.cut()
	for _, err := range b.History(t.Context(), ref("r1"), 0) {
		if !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("with the bus away: %v", err)
		}
	}
}

// tailing runs a Tail and gives what it saw.
type tailing struct {
	events chan *event.Event
	done   chan error
	stop   context.CancelFunc
}

func startTail(t *testing.T, b *bus.Bus) *tailing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tl := &tailing{events: make(chan *event.Event, 100_000), done: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	go func() {
		tl.done <- b.Tail(ctx, 0, func() { close(ready) }, func(e *event.Event, _ uint64) { tl.events <- e })
	}()
	select {
	case <-ready:
	case err := <-tl.done:
		t.Fatal(err)
	}
	return tl
}

func (tl *tailing) want(t *testing.T, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		select {
		case e := <-tl.events:
			if e.Seq != n {
				t.Fatalf("event %d, want %d", e.Seq, n)
			}
		case err := <-tl.done:
			t.Fatalf("tail ended: %v", err)
		case <-time.After(patience):
			t.Fatalf("no event %d", n)
		}
	}
}

func TestTailThroughCuts(t *testing.T) {
	dir := t.TempDir()
	server := serve(t, natsd.Options{Dir: dir})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	src := newMemory(evs("r1", 100)...)
	publish(t, b, "r1", newMemory(evs("r1", 100)...).end())
	tl := startTail(t, b)
	done := make(chan error, 1)
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src}
	go func() { done <- p.Run(t.Context()) }()
	all := evs("r1", 4100)
	src.add(all[100:1100]...)
	tl.want(t, 101, 1000)
	px.cut()
	src.add(all[1100:2100]...)
	tl.want(t, 1001, 2050)
	px.aim("127.0.0.1:1")
	px.cut()
	_ = server.Shutdown(context.Background())
	src.add(all[2100:3100]...)
	server = serve(t, natsd.Options{Dir: dir})
	px.aim(server.ClientURL())
	tl.want(t, 2051, 3100)
	src.add(all[3100:]...)
	src.end()
	tl.want(t, 3101, 4100)
	if err := <-done; err != nil {
		t.Error(err)
	}
	tl.stop()
	if err := <-tl.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Tail = %v", err)
	}
}

// A stream made anew is told, not silently waited for.
func TestTailEpoch(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	before, err := b.Epoch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, "r1", newMemory(evs("r1", 10)...).end())
	tl := startTail(t, b)
	publish(t, b, "r2", newMemory(evs("r2", 10)...).end())
	tl.want(t, 1, 10)
	api(t, b, "STREAM.DELETE.EV_0", nil, nil)
	ensure(t, b)
	publish(t, b, "r3", newMemory(evs("r3", 50)...).end())
	select {
	case err := <-tl.done:
		if !errors.Is(err, bus.ErrEpoch) {
			t.Errorf("Tail = %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the tail did not notice")
	}
	if after, err := b.Epoch(t.Context(), 0); err != nil || !after.After(before) {
		t.Errorf("Epoch = %v, %v; before %v", after, err, before)
	}
}

func TestNoStreams(t *testing.T) {
	b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true})})
	ctx := t.Context()
	if _, _, err := b.Last(ctx, ref("r1")); !errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Last = %v", err)
	}
	if err := b.Tail(ctx, 0, nil, nil); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Tail = %v", err)
	}
	if _, err := b.SendCommand(ctx, command("c1")); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("SendCommand = %v", err)
	}
}
