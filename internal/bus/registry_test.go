package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

func TestRegistry(t *testing.T) {
	b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true})})
	// Events live for a second, and so do entries.
	if _, err := b.Ensure(t.Context(), bus.Topology{MaxBytes: 1 << 20, MaxAge: time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r1 := bus.RunInfo{
		Run: "r1", Tenant: "acme", First: 5, Dialect: "cbc", Sessions: []string{"s1"}, State: "running", Started: epoch,
		Labels: map[string]string{"a": "b"}, Versions: map[string]string{"cbc": "2"},
	}
	if err := b.PutRun(ctx, r1); err != nil {
		t.Fatal(err)
	}
	got, err := b.Run(ctx, "r1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r1, got); diff != "" {
		t.Error(diff)
	}
	if _, err := b.Run(ctx, "r9"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Run(r9) = %v", err)
	}
	type change struct {
		run   string
		state string
		gone  bool
	}
	changes := make(chan change, 10)
	done := make(chan error, 1)
	go func() {
		done <- b.WatchRuns(ctx, func() { changes <- change{run: "ready"} }, func(r bus.RunInfo, gone bool) {
			changes <- change{r.Run, r.State, gone}
		})
	}()
	want := func(w change) {
		t.Helper()
		select {
		case got := <-changes:
			if got != w {
				t.Errorf("%+v, want %+v", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("no %+v", w)
		}
	}
	want(change{run: "r1", state: "running"})
	want(change{run: "ready"})
	r1.State = "ended"
	if err := b.PutRun(ctx, r1); err != nil {
		t.Fatal(err)
	}
	want(change{run: "r1", state: "ended"})
	all, err := b.Runs(ctx)
	if err != nil || len(all) != 1 || all[0].State != "ended" {
		t.Errorf("Runs = %+v, %v", all, err)
	}
	want(change{run: "r1", gone: true})
	if all, err := b.Runs(ctx); err != nil || len(all) != 0 {
		t.Errorf("Runs after expiry = %+v, %v", all, err)
	}
	if _, err := b.Run(ctx, "r1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Run after expiry = %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("WatchRuns = %v", err)
	}
}

func TestPresence(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	ctx, cancel := context.WithCancel(t.Context())
	renew := func(run string, ttl time.Duration) {
		t.Helper()
		if err := b.RenewPresence(ctx, run, ttl); err != nil {
			t.Fatal(err)
		}
	}
	renew("old", time.Minute)
	type change struct {
		run string
		p   bus.Presence
	}
	changes := make(chan change, 100)
	done := make(chan error, 1)
	go func() {
		done <- b.WatchPresence(ctx, func() { changes <- change{run: "ready"} }, func(run string, p bus.Presence) { changes <- change{run, p} })
	}()
	want := func(w change) {
		t.Helper()
		select {
		case got := <-changes:
			if got != w {
				t.Errorf("%+v, want %+v", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("no %+v", w)
		}
	}
	want(change{"old", bus.Alive})
	want(change{run: "ready"})
	for range 3 { // renewals are no changes
		renew("r1", time.Minute)
	}
	want(change{"r1", bus.Alive})
	if ok, err := b.Alive(ctx, "r1"); err != nil || !ok {
		t.Errorf("Alive = %v, %v", ok, err)
	}
	if err := b.ClearPresence(ctx, "r1"); err != nil {
		t.Fatal(err)
	}
	want(change{"r1", bus.Absent})
	renew("r2", time.Second)
	want(change{"r2", bus.Alive})
	want(change{"r2", bus.Expired})
	if p, err := b.Presence(ctx, "r2"); err != nil || p != bus.Absent {
		t.Errorf("Presence = %v, %v", p, err)
	}
	renew("r2", time.Minute)
	want(change{"r2", bus.Alive})
	if p, err := b.Presence(ctx, "never"); err != nil || p != bus.Absent {
		t.Errorf("Presence of a stranger = %v, %v", p, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("WatchPresence = %v", err)
	}
}
