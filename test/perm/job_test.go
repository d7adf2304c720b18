package perm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

const tenant = "acme"

// both runs a test with static accounts and with an operator's.
func both(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("static", func(t *testing.T) { test(t, static(t, tenant, "globex.eu")) })
	t.Run("operator", func(t *testing.T) { test(t, operator(t, tenant, "globex.eu")) })
}

func conversation(session string) subject.Conversation {
	return subject.Conversation{Tenant: tenant, Dialect: "claude", Session: session, Host: "h1"}
}

// An edge, a relay and a consumer do everything that they do on the bus, and the
// server has nothing to complain about.
func TestWholeJob(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
		defer cancel()
		run := newRun(t)
		ref := bus.Ref{Tenant: tenant, Run: run}
		session := conversation("5f0c2b9e-7a1d-4a52-9d6b-0d7b0c3e9a11")
		edge := w.connect(w.edge(tenant, run, session))
		relay := w.connect(w.user(tenant, natsauth.Relay))
		reader := w.connect(w.user(tenant, natsauth.Consumer))

		// Publish, alone and in batches; go on after the connection broke.
		src := newTape(tenant, run, 1)
		p := bus.Publisher{Bus: edge, Ref: ref, Source: src}
		shipped := make(chan error, 1)
		go func() { shipped <- p.Run(ctx) }()
		src.until(t, 1)
		src.add(500, false)
		src.until(t, 501)
		before := edge.Generation()
		for _, c := range clients(w, edge) {
			_ = w.ns.DisconnectClientByID(c)
		}
		for edge.Generation() == before {
			wait(ctx, t)
		}
		src.add(500, true)
		must(t, <-shipped)
		if st := p.Stats(); st.Batches == 0 || st.Recovers < 2 || p.First() == 0 {
			t.Errorf("batches, recoveries, place of the first event: %+v, %d", st, p.First())
		}

		// Presence, registry, lease.
		must(t, edge.RenewPresence(ctx, run, time.Minute))
		must(t, edge.PutRun(ctx, bus.RunInfo{Run: run, Tenant: tenant, First: p.First(), State: "running"}))
		lease, err := edge.Lease(ctx, session, bus.Holder{Run: run}, time.Minute)
		must(t, err)
		must(t, lease.Renew(ctx))
		must(t, lease.Release(ctx))
		if alive, err := relay.Alive(ctx, run); err != nil || !alive {
			t.Errorf("alive: %v, %v", alive, err)
		}
		if i, err := relay.Run(ctx, run); err != nil || i.State != "running" || i.First == 0 {
			t.Errorf("registry: %+v, %v", i, err)
		}

		commands(ctx, t, edge, relay, run)

		// Lost and back.
		lost := &event.Event{
			Tenant: tenant, Run: run, Ref: "lost", Time: time.Now(), Type: event.TypeLost, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON,
		}
		_, err = relay.PutControl(ctx, lost, subject.Liveness, 0)
		must(t, err)
		last, seq, err := edge.LastLiveness(ctx, tenant, run)
		if err != nil || last.Type != event.TypeLost {
			t.Fatalf("last word: %+v, %v", last, err)
		}
		back := *lost
		back.Ref, back.Type = "resumed", event.TypeResumed
		_, err = edge.PutControl(ctx, &back, subject.Liveness, seq)
		must(t, err)
		must(t, edge.ClearPresence(ctx, run))

		for name, b := range map[string]*bus.Bus{"relay": relay, "consumer": reader} {
			t.Run(name, func(t *testing.T) { reads(ctx, t, b, run) })
		}
		whole(t, relay, tenant, run, 1001)
		if said := w.log.take(); len(said) > 0 {
			t.Errorf("the server complains: %q", said)
		}
	})
}

// commands gives a run commands: one that waits for the edge, and others while it
// listens, also after the connection broke.
func commands(ctx context.Context, t *testing.T, edge, relay *bus.Bus, run string) {
	t.Helper()
	give := func(id string) {
		t.Helper()
		_, err := relay.SendCommand(ctx, bus.Command{
			ID: id, Tenant: tenant, Run: run, Name: "interrupt", Time: time.Now(), DeliverBy: time.Now().Add(time.Minute),
		})
		must(t, err)
		if c, err := relay.FindCommand(ctx, id); err != nil || c.Run != run {
			t.Fatalf("find %s: %+v, %v", id, c, err)
		}
	}
	lctx, cancel := context.WithCancel(ctx)
	got, ended := make(chan string, 10), make(chan error, 1)
	give("c1")
	go func() { ended <- edge.Commands(lctx, tenant, run, func(c bus.Command) { got <- c.ID }) }()
	for n := 1; n <= 3; n++ {
		select {
		case id := <-got:
			if want := fmt.Sprintf("c%d", n); id != want {
				t.Errorf("command %s, want %s", id, want)
			}
		case <-time.After(patience):
			t.Fatalf("no command %d", n)
		}
		if n < 3 {
			give(fmt.Sprintf("c%d", n+1))
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Commands = %v", err)
	}
}

// reads does what readers do: lists, watches, history, live.
func reads(ctx context.Context, t *testing.T, b *bus.Bus, run string) {
	ref := bus.Ref{Tenant: tenant, Run: run}
	if e, _, err := b.Last(ctx, ref); err != nil || e.Seq != 1001 {
		t.Errorf("last: %+v, %v", e, err)
	}
	_, _, err := b.FirstKept(ctx, ref)
	must(t, err)
	_, err = b.Epoch(ctx, 0)
	must(t, err)
	if _, _, err := b.Control(ctx, tenant, run, subject.Liveness); err != nil {
		t.Error(err)
	}
	n := 0
	for _, err := range b.Controls(ctx, tenant, run) {
		must(t, err)
		n++
	}
	if n != 2 {
		t.Errorf("%d control facts", n)
	}
	if all, err := b.Runs(ctx); err != nil || len(all) != 1 {
		t.Errorf("runs: %+v, %v", all, err)
	}
	watch := func(name string, fn func(context.Context, func()) error) {
		ctx, cancel := context.WithCancel(ctx)
		if err := fn(ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	watch("runs", func(ctx context.Context, ready func()) error {
		return b.WatchRuns(ctx, ready, func(bus.RunInfo, bool) {})
	})
	watch("events", func(ctx context.Context, ready func()) error {
		return b.Tail(ctx, 0, ready, func(*event.Event, uint64) {})
	})
	watch("one run", func(ctx context.Context, ready func()) error {
		return b.TailRun(ctx, ref, ready, func(*event.Event, uint64) {})
	})
	watch("control facts", func(ctx context.Context, ready func()) error {
		return b.TailControl(ctx, ready, func(*event.Event, uint64) {})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait lets others go on, until ctx ends.
func wait(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
}

// clients are the server's ids of a bus's connections: all but those of others that
// wait, since there is one edge in these tests.
func clients(w *world, _ *bus.Bus) []uint64 {
	z, err := w.ns.Connz(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []uint64
	for _, c := range z.Conns {
		all = append(all, c.Cid)
	}
	return all
}
