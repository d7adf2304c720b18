package archive

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
)

func recordOf(e *consume.Entry) *segment.Record {
	return segment.NewRecord(segment.Log(e.Log), e.Event, e.Raw.Subject, e.Raw.Header, e.Raw.Data, e.At.Seq, e.At.Time)
}

// keep appends a record, waiting while that is not possible. It is not kept where it is
// none, or its tenant is aside.
func (k *keeper) keep(ctx context.Context, e *consume.Entry, r *segment.Record) (added segment.Added, kept bool, _ error) {
	for {
		if k.s.isAside(r.Tenant) {
			k.pass(e)
			return 0, false, nil
		}
		added, err := k.append(ctx, e, r)
		k.sealing = false
		switch {
		case err == nil:
			k.failed = 0
			return added, true, nil
		case errors.Is(err, segment.ErrRecord):
			return 0, false, k.bury(e, err, 1)
		case errors.Is(err, segment.ErrFull):
			err = k.seal(ctx, k.s.o.SealAge/2)
			if err == nil && k.ar.Stats().Open >= k.s.o.OpenSegments {
				err = k.seal(ctx, 0)
			}
		}
		if err != nil {
			if err := k.wait(ctx, err); err != nil {
				return 0, false, err
			}
		}
	}
}

func (k *keeper) append(ctx context.Context, e *consume.Entry, r *segment.Record) (segment.Added, error) {
	if k.s.o.before != nil {
		if err := k.s.o.before(e); err != nil {
			return 0, err
		}
	}
	return k.ar.Append(ctx, r)
}

// wait waits a little after a failure. It returns an error when the session is over.
func (k *keeper) wait(ctx context.Context, err error) error {
	switch found, ferr := k.blame(ctx, err); {
	case ferr != nil:
		return k.stop(ferr)
	case found && k.sealing:
		return k.stop(errAside)
	case found:
		return nil
	}
	if k.failed++; k.fail(err) {
		return k.stop(err)
	}
	k.s.o.Log.Warn("nothing more is archived for now", "error", err)
	t := time.NewTimer(min(firstWait<<(k.failed-1), lastWait))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return k.stop(context.Cause(ctx))
	}
}

// fail takes note of a failure and reports whether it is not to be waited out here.
func (k *keeper) fail(err error) (over bool) {
	k.s.stalled(err)
	return max(k.failed, k.uncommitted) >= maxFailures || errors.Is(err, segment.ErrRolledBack) || errors.Is(err, segment.ErrAnother) ||
		errors.Is(err, segment.ErrSigner) || errors.Is(err, fs.ErrClosed)
}

// bury makes a dead letter of an entry that the archive cannot take. It is not left to
// the consumer, which would take the entries behind it first.
func (k *keeper) bury(e *consume.Entry, reason error, tries int) error {
	if err := k.s.Dead().Bury(Name, e, reason, tries); err != nil {
		// What is before the entry is acked, or it would come again, with the letters of it
		// that somebody removes.
		if errors.Is(err, consume.ErrDeadFull) && k.seal(k.ctx, 0) == nil {
			k.sealedAll = true
		}
		return k.stop(err)
	}
	k.ar.Pass(segment.Log(e.Log), segment.Place(e.At))
	k.s.m.buried.Inc()
	k.s.o.Log.Error("message not archived: it is a dead letter", "log", e.Log, "stream_seq", e.At.Seq, "error", reason)
	return nil
}
