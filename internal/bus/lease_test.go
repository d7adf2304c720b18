package bus_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
)

func conversation(session string) subject.Conversation {
	return subject.Conversation{Tenant: "acme", Dialect: "claude", Session: session, Host: "h"}
}

// Of many runs that want one conversation at once exactly one gets it, and the
// others learn who.
func TestLeaseOneWins(t *testing.T) {
	b := open(t, serve(t, natsd.Options{}))
	key := conversation("5f0c2f46-95a1-4c12-9f7c-3a2c3d1d9a10")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won, held := []string{}, []string{}
	for _, run := range []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"} {
		wg.Go(func() {
			l, err := b.Lease(t.Context(), key, bus.Holder{Run: run, Host: "h", Since: time.Now()}, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			var he *bus.HeldError
			switch {
			case err == nil && l != nil:
				won = append(won, run)
			case errors.As(err, &he) && errors.Is(err, bus.ErrConflict):
				held = append(held, he.Holder.Run)
			default:
				t.Errorf("%s: %v", run, err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 || len(held) != 7 {
		t.Fatalf("%v won, %v were told", won, held)
	}
	for _, h := range held {
		if h != won[0] {
			t.Errorf("told of %s, but %s has it", h, won[0])
		}
	}
}

// A lease is kept by renewing, ends by release or by itself, and whoever lost it
// is told by whom.
func TestLeaseLife(t *testing.T) {
	b := open(t, serve(t, natsd.Options{}))
	ctx := t.Context()
	key := conversation("nightly")
	if _, err := b.LeaseHolder(ctx, key); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("nobody has it: %v", err)
	}
	first, err := b.Lease(ctx, key, bus.Holder{Run: "r1"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Renew(ctx); err != nil {
		t.Fatalf("renew: %v", err)
	}
	if _, err := b.Lease(ctx, key, bus.Holder{Run: "r1"}, time.Minute); err != nil {
		t.Fatalf("the same run again: %v", err)
	}
	if err := first.Renew(ctx); err != nil {
		t.Fatalf("renew after a write of the same run: %v", err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := b.Lease(ctx, key, bus.Holder{Run: "r2"}, time.Second)
	if err != nil {
		t.Fatalf("after a release: %v", err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatalf("release what is another's: %v", err)
	}
	if h, err := b.LeaseHolder(ctx, key); err != nil || h.Run != "r2" {
		t.Fatalf("holder %v %v", h, err)
	}
	var third *bus.Lease
	for end := time.Now().Add(patience); third == nil && time.Now().Before(end); { // r2 does not renew
		third, err = b.Lease(ctx, key, bus.Holder{Run: "r3"}, time.Minute)
	}
	if err != nil {
		t.Fatalf("after the expiry: %v", err)
	}
	var he *bus.HeldError
	if err := second.Renew(ctx); !errors.As(err, &he) || he.Holder.Run != "r3" {
		t.Fatalf("renew what is another's: %v", err)
	}
}

// A name that is no UUID is another conversation on another machine.
func TestLeaseKey(t *testing.T) {
	b := open(t, serve(t, natsd.Options{}))
	other := func(c subject.Conversation) subject.Conversation { c.Host = "h2"; return c }
	uuid, name := conversation("5F0C2F46-95a1-4c12-9f7c-3a2c3d1d9a10"), conversation("nightly > *")
	for _, key := range []subject.Conversation{uuid, name, other(name), {Tenant: "other", Dialect: "claude", Session: uuid.Session}} {
		if _, err := b.Lease(t.Context(), key, bus.Holder{Run: "r-" + key.Key()}, time.Minute); err != nil {
			t.Errorf("%v: %v", key, err)
		}
	}
	if _, err := b.Lease(t.Context(), other(uuid), bus.Holder{Run: "r9"}, time.Minute); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("the same UUID on another machine: %v", err)
	}
}
