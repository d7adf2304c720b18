package bus_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// A durableReader is a Durable that runs, and what it was given.
type durableReader struct {
	*bus.Durable
	got   chan bus.Delivery
	begun chan bus.Turn
	stop  func()

	mu   sync.Mutex
	mark bus.Mark
}

func (r *durableReader) last() bus.Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark
}

// readDurable reads a log until stop, or the test's end.
func readDurable(tb testing.TB, b *bus.Bus, cfg bus.DurableConfig) *durableReader {
	tb.Helper()
	r := &durableReader{got: make(chan bus.Delivery), begun: make(chan bus.Turn, 100), mark: cfg.Mark}
	if cfg.Name == "" {
		cfg.Name = "cbcast-test"
	}
	cfg.Save = func(m bus.Mark) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mark = m
	}
	cfg.Begin = func(_ bus.Place, turn bus.Turn) { r.begun <- turn }
	r.Durable = b.Durable(cfg)
	r.Hold(time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func(ctx context.Context, d bus.Delivery) error {
			select {
			case r.got <- d:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(r.stop)
	return r
}

// take returns the next n messages.
func (r *durableReader) take(tb testing.TB, n int) (all []bus.Delivery) {
	tb.Helper()
	for range n {
		select {
		case d := <-r.got:
			all = append(all, d)
		case <-time.After(2 * time.Minute):
			tb.Fatalf("%d of %d messages came; %+v", len(all), n, r.Status())
		}
	}
	return all
}

func (r *durableReader) settle(tb testing.TB, at bus.Place) {
	tb.Helper()
	r.Ack(at)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Settle(ctx); err != nil {
		tb.Fatal(err)
	}
}

// seqs are the stream sequences of messages.
func seqs(all []bus.Delivery) (list []uint64) {
	for _, d := range all {
		list = append(list, d.At.Seq)
	}
	return list
}

func row(from, to uint64) (list []uint64) {
	for ; from <= to; from++ {
		list = append(list, from)
	}
	return list
}

func same(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// What was not acked comes again, in order, and what was does not: for the process
// that comes after, and for one without a memory of its own.
func TestDurableGivesAgain(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 20)...).end())

	r := readDurable(t, b, bus.DurableConfig{})
	first := r.take(t, 12)
	same(t, "first", row(1, 12), seqs(first))
	if e := first[4].Event; e == nil || e.Seq != 5 || e.Run != "r1" || len(first[4].Raw.Data) == 0 {
		t.Errorf("the fifth is %+v", first[4])
	}
	r.settle(t, first[6].At)
	r.stop()

	r = readDurable(t, b, bus.DurableConfig{Mark: r.last()})
	again := r.take(t, 13)
	same(t, "behind the ack", row(8, 20), seqs(again))
	r.settle(t, again[1].At)
	r.stop()

	// Another directory, and nobody has said that he is gone.
	b.Conn().Close() // of the one who reads
	r = readDurable(t, b, bus.DurableConfig{})
	same(t, "without a mark", row(10, 20), seqs(r.take(t, 11)))
}

// One instance reads; the other takes over, from the first one's ack on, when that
// stops, and when it is gone without a word.
func TestDurableStandby(t *testing.T) {
	for _, way := range []string{"stops", "is gone"} {
		t.Run(way, func(t *testing.T) {
			s := serve(t, natsd.Options{})
			px := newProxy(t, s.ClientURL())
			b1, b2 := connect(t, bus.Config{URL: px.url()}), connect(t, bus.Config{InProcess: s})
			ensure(t, b2)
			publish(t, b2, "r1", newMemory(evs("r1", 30)...).end())
			r1 := readDurable(t, b1, bus.DurableConfig{Window: 20})
			first := r1.take(t, 10)
			r1.settle(t, first[4].At)
			r2 := readDurable(t, b2, bus.DurableConfig{Window: 20})
			waitFor(t, func() bool { return r2.Status().Standby })
			select {
			case d := <-r2.got:
				t.Fatalf("the second one got %d", d.At.Seq)
			default:
			}
			if way == "stops" {
				r1.stop()
			} else {
				px.aim("")
				px.cut()
			}
			var got []uint64
			for range 25 {
				d := r2.take(t, 1)[0]
				got = append(got, d.At.Seq)
				r2.settle(t, d.At)
			}
			same(t, "taken over", row(6, 30), got)
		})
	}
}

// waitFor waits until something holds.
func waitFor(tb testing.TB, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatal("it does not come to pass")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A stream made anew, one whose end was lost, and a consumer that somebody deleted are
// noticed, while reading and after a restart; what is there is read.
func TestDurableOtherLog(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, b *bus.Bus)
		turn bus.Turn
		want []uint64 // what is read, 10 having been read and 6 acked
	}{
		{"stream made anew", func(t *testing.T, b *bus.Bus) {
			call(t, b, "STREAM.DELETE.EV_0", "")
			ensure(t, b)
			publish(t, b, "r2", newMemory(evs("r2", 4)...).end())
		}, bus.Rebuilt, row(1, 4)},
		{"made anew and longer", func(t *testing.T, b *bus.Bus) {
			call(t, b, "STREAM.DELETE.EV_0", "")
			ensure(t, b)
			publish(t, b, "r2", newMemory(evs("r2", 40)...).end())
		}, bus.Rebuilt, row(1, 40)},
		{"consumer deleted", func(t *testing.T, b *bus.Bus) {
			call(t, b, "CONSUMER.DELETE.EV_0.cbcast-test", "")
		}, bus.Kept, row(7, 10)},
		{"consumer deleted, beginning gone", func(t *testing.T, b *bus.Bus) {
			call(t, b, "STREAM.PURGE.EV_0", `{"seq":9}`)
			call(t, b, "CONSUMER.DELETE.EV_0.cbcast-test", "")
		}, bus.NotKept, row(9, 10)},
		{"set back by somebody", func(t *testing.T, b *bus.Bus) {
			call(t, b, "CONSUMER.RESET.EV_0.cbcast-test", `{"seq":1}`)
		}, bus.Kept, row(7, 10)},
	} {
		for _, when := range []string{"reading", "stopped"} {
			t.Run(c.name+", "+when, func(t *testing.T) {
				b := open(t, serve(t, natsd.Options{DontListen: true}))
				publish(t, b, "r1", newMemory(evs("r1", 10)...).end())
				r := readDurable(t, b, bus.DurableConfig{})
				first := r.take(t, 10)
				r.settle(t, first[5].At)
				if turn := <-r.begun; turn != bus.Kept {
					t.Errorf("it begins with turn %d", turn)
				}
				if when == "stopped" {
					r.stop()
				}
				c.do(t, b)
				if when == "stopped" {
					r = readDurable(t, b, bus.DurableConfig{Mark: r.last()})
				}
				got := r.take(t, len(c.want))
				same(t, "read", c.want, seqs(got))
				var turn bus.Turn
				for len(r.begun) > 0 {
					turn = max(turn, <-r.begun)
				}
				if turn != c.turn {
					t.Errorf("turn %d, want %d", turn, c.turn)
				}
				if st := r.Status(); (st.Missed > 0) != (c.turn == bus.NotKept) || (st.Rebuilt > 0) != (c.turn == bus.Rebuilt) {
					t.Errorf("status %+v", st)
				}
				r.settle(t, got[len(got)-1].At)
				if at := r.last().At; at != got[len(got)-1].At {
					t.Errorf("mark %+v", at)
				}
			})
		}
	}
}

// call asks the server something that must be granted.
func call(tb testing.TB, b *bus.Bus, api, body string) {
	tb.Helper()
	m, err := b.Conn().RequestWithContext(tb.Context(), "$JS.API."+api, []byte(body))
	if err != nil {
		tb.Fatal(err)
	}
	if bytes.Contains(m.Data, []byte(`"error"`)) {
		tb.Fatalf("%s: %s", api, m.Data)
	}
}

// A log whose end was lost and written again past the old one is another one.
func TestDurableLostEnd(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, natsd.Options{Dir: dir, DontListen: true})
	b := open(t, s)
	publish(t, b, "r1", newMemory(evs("r1", 6)...).end())
	b.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s = serve(t, natsd.Options{Dir: dir, DontListen: true})
	b = open(t, s)
	publish(t, b, "r1", newMemory(evs("r1", 10)...).end())
	r := readDurable(t, b, bus.DurableConfig{})
	first := r.take(t, 10)
	r.settle(t, first[8].At)
	r.stop()
	b.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	b = open(t, serve(t, natsd.Options{Dir: kept, DontListen: true}))
	publish(t, b, "r2", newMemory(evs("r2", 20)...).end())
	r = readDurable(t, b, bus.DurableConfig{Mark: r.last()})
	same(t, "read", row(1, 26), seqs(r.take(t, 26)))
	if turn := <-r.begun; turn != bus.Rebuilt {
		t.Errorf("turn %d", turn)
	}
}

// A place of the log that was there before acks nothing in the one that is there now,
// though it has as many messages.
func TestDurableLateAck(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 10)...).end())
	r := readDurable(t, b, bus.DurableConfig{})
	<-r.begun
	before, old := r.Status().Rebuilt, r.take(t, 10)
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "EV_0"); err != nil {
		t.Fatal(err)
	}
	ensure(t, b)
	publish(t, b, "r2", newMemory(evs("r2", 20)...).end())
	for now := r.take(t, 1)[0]; ; now = r.take(t, 1)[0] {
		if now.Event != nil && now.Event.Run == "r2" && now.At.Seq >= 15 {
			break
		}
	}
	r.AckOf(before, old[9].At)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := r.Settle(ctx); err != nil || r.Status().At.Seq != 0 {
		t.Errorf("acked up to %d, %v", r.Status().At.Seq, err)
	}
	r.AckOf(r.Status().Rebuilt, bus.Place{Seq: 5})
	if err := r.Settle(ctx); err != nil || r.Status().At.Seq != 5 {
		t.Errorf("acked up to %d, %v", r.Status().At.Seq, err)
	}
}

// A message that no cbcast wrote is given as it is, and stops nothing.
func TestDurableForeign(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 3)...).end())
	nc := b.Conn()
	copied := bus.Encode(0, ev("r1", 2))
	copied.Header.Set("Nats-Subject", copied.Subject)
	odd := nats.NewMsg("cbc.ev.0.acme.r1._._.msg")
	odd.Data = []byte("\x00odd")
	odd.Header["X-Odd"] = []string{"1", "2"}
	odd.Header.Set("Status", "503")
	odd.Header.Set("Nats-Pin-Id", "mine")
	for _, m := range []*nats.Msg{copied, odd, nats.NewMsg("cbc.ev.0.x")} {
		if _, err := nc.RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "r2", newMemory(evs("r2", 1)...).end())
	r := readDurable(t, b, bus.DurableConfig{})
	got := r.take(t, 7)
	for i, d := range got {
		if bad := i >= 3 && i < 6; bad != errors.Is(d.Bad, bus.ErrForeign) || bad == (d.Event != nil) {
			t.Errorf("message %d: %v, event %v", i, d.Bad, d.Event)
		}
	}
	same(t, "the odd one", bus.Raw{
		Subject: odd.Subject, Data: odd.Data,
		Header: [][2]string{{"Nats-Pin-Id", "mine"}, {"Status", "503"}, {"X-Odd", "1"}, {"X-Odd", "2"}},
	}, got[4].Raw)
}

// A consumer that is set up otherwise is not read from and not altered.
func TestDurableDrift(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 3)...).end())
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.ConsumerConfig{Durable: "cbcast-test", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 7}
	if _, err := js.CreateConsumer(t.Context(), "EV_0", cfg); err != nil {
		t.Fatal(err)
	}
	r := readDurable(t, b, bus.DurableConfig{})
	waitFor(t, func() bool { return errors.Is(r.Status().Err, bus.ErrDrift) })
	if text := r.Status().Err.Error(); !strings.Contains(text, "ack_policy is AckExplicit, not AckAll") {
		t.Error(text)
	}
	if err := js.DeleteConsumer(t.Context(), "EV_0", "cbcast-test"); err != nil {
		t.Fatal(err)
	}
	r.take(t, 3) // goes on as soon as that is gone
}

// Connections break, and the server comes and goes, while messages are read and acked:
// each is given in order and none is left out.
func TestDurableThroughFaults(t *testing.T) {
	const n = 3000
	dir := t.TempDir()
	s := serve(t, natsd.Options{Dir: dir})
	px := newProxy(t, s.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	publish(t, b, "r1", newMemory(evs("r1", n)...).end())
	r := readDurable(t, b, bus.DurableConfig{Window: 100})
	next := uint64(1)
	for k := 0; next <= n; k++ {
		d := r.take(t, 1)[0]
		if d.At.Seq > next {
			t.Fatalf("%d comes where %d should", d.At.Seq, next)
		}
		if d.At.Seq == next {
			next++
		}
		if k%37 == 0 {
			r.Ack(d.At)
		}
		switch {
		case k%400 == 399:
			px.cut()
		case k == 1000 || k == 2000:
			px.aim("")
			px.cut()
			_ = s.Shutdown(context.Background())
			s = serve(t, natsd.Options{Dir: dir})
			px.aim(s.ClientURL())
		}
	}
	r.settle(t, bus.Place{Seq: n})
	t.Logf("%+v", r.Status())
}
