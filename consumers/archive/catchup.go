package archive

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
)

// errAside ends a session in which the archive has unsealed records of a tenant that is set
// aside: the next one is opened without them.
var errAside = errors.New("a tenant was set aside")

// blame sets the tenants aside that an error is the fault of. It reports whether there were
// any, and returns an error where one could not be.
func (k *keeper) blame(ctx context.Context, err error) (found bool, _ error) {
	for _, t := range segment.TenantErrors(err) {
		if !t.Damaged() && !k.alone(ctx, t) {
			continue
		}
		if err := k.s.setAside(ctx, t.Tenant, t.Err); err != nil {
			return found, err
		}
		found = true
	}
	return found, nil
}

// alone reports whether a tenant fails again and again, and others do not: then it is not the
// store that is away or full.
func (k *keeper) alone(ctx context.Context, t *segment.TenantError) bool {
	for _, of := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, segment.ErrAnother, segment.ErrSigner, context.Canceled} {
		if errors.Is(t.Err, of) {
			return false
		}
	}
	if max(k.failed, k.uncommitted)+1 < maxFailures {
		return false
	}
	if len(k.sealed) > 0 { // since the first failure
		return !k.sealed[t.Tenant]
	}
	tenants, err := k.s.place.Reader().Tenants(ctx)
	if err != nil && !segment.Damaged(err) || k.sealing {
		return false
	}
	for _, other := range tenants {
		if other != t.Tenant && !k.s.isAside(other) {
			return segment.CheckChain(ctx, k.s.place.Store, k.s.openDir(), other) == nil
		}
	}
	return false
}

// pass goes on behind an entry of a tenant that is aside.
func (k *keeper) pass(e *consume.Entry) {
	k.ar.Pass(segment.Log(e.Log), segment.Place(e.At))
	k.s.m.passed.Inc()
}

// catchUp archives what a log has up to a place of the tenants that were aside. What comes
// behind that comes from the consumer.
func (k *keeper) catchUp(l bus.Log, to uint64) {
	for _, tenant := range k.s.returning() {
		if k.broken != nil || k.ctx.Err() != nil {
			return
		}
		if err := k.catchUpWith(k.ctx, tenant, l, to); err != nil && k.ctx.Err() == nil {
			_ = k.stop(fmt.Errorf("catch up with tenant %q: %w", tenant, err))
			return
		}
	}
	if k.ctx.Err() == nil {
		k.caught[l] = true
	}
}

// sealEach is how many messages are caught up with between two looks at what is to be sealed.
const sealEach = 5000

func (k *keeper) catchUpWith(ctx context.Context, tenant string, l bus.Log, to uint64) (err error) {
	var e *consume.Entry
	defer func() {
		if v := recover(); v != nil {
			err = k.s.panicked(e, v)
		}
	}()
	through, err := k.ar.Sealed(ctx, tenant)
	if err != nil {
		if found, err := k.blame(ctx, err); found || err != nil {
			return err
		}
		return err
	}
	var from bus.Place
	if l != bus.CommandLog { // of which there are few
		if from, _, err = k.s.o.Bus.Locate(ctx, l, bus.Place(through[segment.Log(l).String()])); err != nil {
			return err
		}
	}
	n := 0
	for d, err := range k.s.o.Bus.Between(ctx, l, tenant, from.Seq, to) {
		if err != nil {
			return err
		}
		e = &consume.Entry{Log: l, At: d.At, Raw: d.Raw, Event: d.Event, Bad: d.Bad}
		if reason := k.s.poison(e); reason != nil {
			if err := k.bury(e, reason, maxFaults); err != nil {
				return err
			}
			continue
		}
		r := recordOf(e)
		added, kept, err := k.keep(ctx, e, r)
		if err != nil {
			return err
		}
		if k.s.isAside(tenant) {
			return nil // again
		}
		if kept {
			k.note(e, r, added)
		}
		if n++; n%sealEach == 0 {
			if err := k.seal(ctx, k.s.o.SealAge); err != nil {
				return err
			}
		}
	}
	if n > 0 {
		k.s.o.Log.Info("messages of a tenant that was aside are archived", "tenant", tenant, "log", l, "messages", n, "up_to", to)
	}
	return nil
}

// catchUpIdle catches up in logs that have nothing for the consumer: they do not begin before
// something comes.
func (k *keeper) catchUpIdle() {
	for _, l := range k.s.logs() {
		if k.caught[l] || k.s.o.Bus == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(k.ctx, behindWait)
		last, err := k.s.o.Bus.HeadLog(ctx, l)
		var left uint64
		if err == nil { // what is acked now was acked up to last, at least
			left, _, err = k.s.o.Bus.Behind(ctx, Name, l)
		}
		cancel()
		switch {
		case err != nil:
			k.s.o.Log.Debug("what is acked of a log is not known", "log", l, "error", err)
		case left == 0:
			k.catchUp(l, last)
		}
	}
}

// allCaught reports whether every log was caught up with.
func (k *keeper) allCaught() bool {
	for _, l := range k.s.logs() {
		if !k.caught[l] {
			return false
		}
	}
	return true
}
