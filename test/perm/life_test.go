package perm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsauth"
)

// shutOut waits until a connection has ended and a new one is refused.
func shutOut(t *testing.T, w *world, r *raw, cfg bus.Config) {
	t.Helper()
	late := time.After(patience)
	for !r.IsClosed() && !r.IsReconnecting() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			t.Fatal("it is still connected")
		}
	}
	for {
		nc, err := nats.Connect(cfg.URL, nats.UserCredentials(cfg.Creds))
		switch {
		case err == nil: // times are in whole seconds
			nc.Close()
		case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), strings.Contains(err.Error(), "uthoriz"), strings.Contains(err.Error(), "Expired"):
			return
		default:
			t.Fatalf("connect: %v", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatal("it is let in again")
		}
	}
}

// A credential ends by itself, when it is revoked, and when the tenant's signing key is
// replaced; others stay.
func TestEndOfCredentials(t *testing.T) {
	w := operator(t, tenant, "globex.eu")
	run := func(life time.Duration) (natsauth.User, bus.Config) {
		t.Helper()
		u, err := w.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Edge, Run: newRun(t)}, life)
		must(t, err)
		return u, w.env(u.Env)
	}
	_, short := run(2 * time.Second)
	u1, first := run(time.Hour)
	_, second := run(time.Hour)
	other := w.raw(w.user("globex.eu", natsauth.Relay))
	r0, r1, r2 := w.raw(short), w.raw(first), w.raw(second)

	must(t, w.store.Revoke(tenant, u1.Key))
	w.reload()
	shutOut(t, w, r1, first)
	must(t, r2.FlushTimeout(patience))
	shutOut(t, w, r0, short) // by its time

	must(t, w.store.PutTenant(natsauth.Tenant{Name: tenant, Rotate: true}))
	w.reload()
	shutOut(t, w, r2, second)
	_, third := run(time.Hour) // signed by the new key
	must(t, w.raw(third).FlushTimeout(patience))
	must(t, other.FlushTimeout(patience))
	if err := w.store.Revoke(tenant, "nobody"); err == nil {
		t.Error("Revoke takes anything for a key")
	}
}

// An edge goes on with a credential that replaces its file before the old one ends.
func TestRenewedCredential(t *testing.T) {
	w := operator(t, tenant)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	run := newRun(t)
	u, err := w.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Edge, Run: run}, 3*time.Second)
	must(t, err)
	cfg := w.env(u.Env)
	src := newTape(tenant, run, 10)
	b := w.connect(cfg)
	p := bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: run}, Source: src}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	src.until(t, 10)

	// Another machine makes it, with the same store.
	must(t, os.Rename(u.Creds, u.Creds+".old"))
	_, err = w.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Edge, Run: run}, time.Hour)
	must(t, err)
	for before := b.Generation(); b.Generation() == before; { // the old one ends
		wait(ctx, t)
	}
	src.add(10, true)
	must(t, <-done)
	whole(t, w.connect(w.user(tenant, natsauth.Relay)), tenant, run, 20)
}

// A static user whose key is replaced is shut out at a reload, others stay.
func TestStaticRotation(t *testing.T) {
	w := static(t, tenant)
	edge, relay := w.raw(w.user(tenant, natsauth.Edge)), w.raw(w.user(tenant, natsauth.Relay))
	must(t, os.Remove(filepath.Join(w.store.Dir, "keys", tenant+"-edge.nk")))
	_, err := w.store.Static([]string{tenant})
	must(t, err)
	w.reload()
	late := time.After(patience)
	for edge.IsConnected() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			t.Fatal("it is still connected")
		}
	}
	must(t, relay.FlushTimeout(patience))
	must(t, w.raw(w.user(tenant, natsauth.Edge)).FlushTimeout(patience))
}

// A run id that is used twice: the second one publishes nothing and takes nothing.
func TestRunIDTwice(t *testing.T) {
	w := operator(t, tenant)
	run := newRun(t)
	cfg := w.edge(tenant, run)
	publish(t, w.connect(cfg), tenant, run, 10)
	relay := w.connect(w.user(tenant, natsauth.Relay))
	for _, n := range []uint64{1, 10, 20} {
		src := newTape(tenant, run, n)
		src.start = src.start.Add(time.Second)
		src.add(0, true)
		p := bus.Publisher{Bus: w.connect(cfg), Ref: bus.Ref{Tenant: tenant, Run: run}, Source: src}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := p.Run(ctx); !errors.Is(err, bus.ErrRunUsed) {
			t.Errorf("a second run of %d events: %v", n, err)
		}
		cancel()
	}
	whole(t, relay, tenant, run, 10)
	// Both at once: one is the run, the other is told.
	twins := newRun(t)
	cfg = w.edge(tenant, twins)
	errs := make(chan error, 2)
	for i := range 2 {
		src := newTape(tenant, twins, 300)
		src.start = src.start.Add(time.Duration(i) * time.Second)
		src.add(0, true)
		p := bus.Publisher{Bus: w.connect(cfg), Ref: bus.Ref{Tenant: tenant, Run: twins}, Source: src}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			errs <- p.Run(ctx)
		}()
	}
	used := 0
	for range 2 {
		switch err := <-errs; {
		case errors.Is(err, bus.ErrRunUsed):
			used++
		case err != nil:
			t.Error(err)
		}
	}
	if used != 1 {
		t.Errorf("%d of two are told", used)
	}
	whole(t, relay, tenant, twins, 300)
	if _, err := w.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Edge, Run: run}, time.Hour); err == nil {
		t.Error("a second credential for one run, without a word")
	}
}
