package consume_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/testbus"
)

// A list is a Source of events that exist.
type list []*event.Event

func (l list) Event(n uint64) (*event.Event, bool, error) {
	if n > uint64(len(l)) {
		return nil, false, nil
	}
	return l[n-1], true, nil
}

func (l list) Wait(_ context.Context, n uint64) error {
	if n > uint64(len(l)) {
		return bus.ErrDone
	}
	return nil
}
func (l list) Acked(uint64) {}

// A comparer folds every entry twice: once into states that are held to the end, once
// into states that are let go at random.
type comparer struct {
	t           *testing.T
	held, loose *consume.Folds
	rnd         *rand.Rand

	mu       sync.Mutex // guards the rest
	handled  int
	compared int
	grown    chan struct{}
}

func view(s *run.State) string {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (c *comparer) Handle(ctx context.Context, e *consume.Entry) error {
	if c.rnd.IntN(12) == 0 {
		c.loose.Drop(e.Event.Run)
	}
	was := c.loose.Rebuilds()
	want, err := c.held.At(ctx, e)
	if err != nil {
		return err
	}
	got, err := c.loose.At(ctx, e)
	if err != nil {
		return err
	}
	same := 0
	if c.loose.Rebuilds() > was {
		same++
		if d := cmp.Diff(view(want), view(got)); d != "" {
			c.t.Errorf("%s before %s %d (-held +folded again):\n%.2000s", e.Event.Run, e.Log, e.Event.Seq, d)
		}
	}
	c.held.Apply(e)
	c.loose.Apply(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handled++
	c.compared += same
	close(c.grown)
	c.grown = make(chan struct{})
	return nil
}

func (c *comparer) Commit(context.Context, bool) (map[bus.Log]bus.Place, error) { return nil, nil }

func (c *comparer) wait(n int) {
	c.t.Helper()
	deadline := time.After(long)
	for {
		c.mu.Lock()
		handled, grown := c.handled, c.grown
		c.mu.Unlock()
		if handled >= n {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			c.t.Fatalf("%d of %d handled", handled, n)
		}
	}
}

// A state that was let go and is folded again from the bus is the one that was held, at
// any event of any recording, with facts of relays between them.
func TestFoldsAgain(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	c := &comparer{
		t: t, grown: make(chan struct{}), rnd: rand.New(rand.NewPCG(1, 2)),
		held: &consume.Folds{Bus: b, Controls: true}, loose: &consume.Folds{Bus: b, Controls: true, Runs: 3},
	}
	start(t, consume.Config{Bus: b, Logs: consume.Logs(1)}, c)
	recordings := 0
	n := 0
	for i, name := range capture.List() {
		if i%4 != 0 { // some of each program
			continue
		}
		rec, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("r", i)
		all := capture.Events(rec, "acme", id)
		if len(all) > 500 {
			continue
		}
		if recordings++; recordings > 50 {
			break
		}
		half := len(all) / 2
		for _, part := range []list{all[:half], all} {
			p := &bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: "acme", Run: id}, Source: part, Resumed: true}
			if err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			n += half
			if len(part) == len(all) {
				n += len(all) - 2*half
			}
			c.wait(n)
			// The log of facts is another one: the order is known only once both are read.
			for _, typ := range []string{event.TypeLost, event.TypeResumed} {
				at := part[len(part)-1].Time.Add(time.Nanosecond)
				fact := &event.Event{
					Tenant: "acme", Run: id, Ref: typ + fmt.Sprint(n), Time: at, Type: typ, Kind: event.Life, Stream: event.Edge,
					ContentType: event.JSON, Data: []byte(`{"reason":"presence"}`),
				}
				if _, err := b.PutControl(t.Context(), fact, subject.Liveness, bus.Any); err != nil {
					t.Fatal(err)
				}
				n++
				c.wait(n)
			}
		}
	}
	runs, _ := c.loose.Held()
	if c.compared < 50 || runs > 3 || c.held.Rebuilds() > 2*recordings {
		t.Errorf("%d compared of %d; %d held", c.compared, n, runs)
	}
	t.Logf("%d entries of %d recordings, %d states compared", n, recordings, c.compared)
}

// call asks the server something that must be granted.
func call(tb testing.TB, s *natsd.Server, api, body string) {
	tb.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		tb.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.Request("$JS.API."+api, []byte(body), long)
	if err != nil || bytes.Contains(m.Data, []byte(`"error"`)) {
		tb.Fatalf("%s: %v %s", api, err, m.Data)
	}
}

// Where retention has taken the beginning of a run, its state is that of the rest.
func TestFoldsWithoutBeginning(t *testing.T) {
	s, b := testbus.Start(t, testbus.Streams)
	publish(t, b, "r1", 10)
	call(t, s, "STREAM.PURGE.EV_0", `{"seq":5}`)
	f := &consume.Folds{Bus: b}
	e := &consume.Entry{Event: ev("r1", 9)}
	st, err := f.At(t.Context(), e)
	if err != nil || st.LastSeq() != 8 || st.View().Counts.Frames["out"] != 4 {
		t.Fatalf("%v, %+v", err, st.View())
	}
	f.Apply(e)
	// An event that was left out is read, and one that comes again is gone back to.
	for _, n := range []uint64{10, 9, 6} {
		st, err := f.At(t.Context(), &consume.Entry{Event: ev("r1", n)})
		if err != nil || st.LastSeq() != n-1 {
			t.Errorf("before %d: %v, up to %d", n, err, st.LastSeq())
		}
	}
}

// What is held is bounded in number and by guess in bytes.
func TestFoldsAreBounded(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := &consume.Folds{Bus: b, Runs: 10, Bytes: 100 << 10}
	for i := range 50 {
		e := &consume.Entry{Event: ev(fmt.Sprint("r", i), 1)}
		if _, err := f.At(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		f.Apply(e)
		if runs, bytes := f.Held(); runs > 10 || bytes > 100<<10 {
			t.Fatalf("%d runs, %d bytes", runs, bytes)
		}
	}
	if runs, _ := f.Held(); runs < 5 {
		t.Errorf("%d runs", runs)
	}
}
