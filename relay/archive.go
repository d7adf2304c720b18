package relay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// An Archive has what the bus has not any more. [segment.Reader] is one.
type Archive interface {
	// Run finds a run, of any tenant where tenant is "". Its error wraps
	// segment.ErrNotFound where there is none.
	Run(ctx context.Context, tenant, run string) (*segment.RunInfo, error)
	// Records yields a run's messages; see segment.Reader.
	Records(ctx context.Context, q segment.Query) iter.Seq2[*segment.Record, error]
}

// A past reads runs: from the bus, and from the archive what the bus has let go. The
// cursor is the run's seq in both, so nobody notices where one goes over into the other.
// Without an archive it is the bus.
type past struct {
	*bus.Bus
	archive Archive // nil without one
	log     *slog.Logger
	unknown unknown
}

// A reader is where a run's events are read from.
type reader interface {
	Last(ctx context.Context, r bus.Ref) (*event.Event, uint64, error)
	FirstKept(ctx context.Context, r bus.Ref) (*event.Event, uint64, error)
	History(ctx context.Context, r bus.Ref, after uint64) iter.Seq2[*event.Event, error]
	Controls(ctx context.Context, r bus.Ref) iter.Seq2[*event.Event, error]
}

// History is [bus.Bus.History]. Where the bus does not go on behind after, what the archive
// has comes first.
func (p *past) History(ctx context.Context, ref bus.Ref, after uint64) iter.Seq2[*event.Event, error] {
	if p.archive == nil {
		return p.Bus.History(ctx, ref, after)
	}
	return func(yield func(*event.Event, error) bool) {
		first := true
		for e, err := range p.Bus.History(ctx, ref, after) {
			if err == nil && first && (e.Seq > after+1 || e.Part.I > 1) && !p.archived(ctx, ref, after, e, yield) {
				return
			}
			first = false
			if !yield(e, err) || err != nil {
				return
			}
		}
		if !first {
			return
		}
		if _, _, err := p.Bus.Last(ctx, ref); notFoundErr(err) {
			p.archived(ctx, ref, after, nil, yield)
		}
	}
}

// archived yields the events of the archive behind after that come before e, all where e is nil.
// It returns false where reading is over. What was erased or deleted there, or is damaged, is left
// out, as it is where the bus has let it go: whoever reads sees the seq jump.
func (p *past) archived(ctx context.Context, ref bus.Ref, after uint64, e *event.Event, yield func(*event.Event, error) bool) bool {
	q := segment.Query{Tenant: ref.Tenant, Run: ref.Run, After: after}
	for rec, err := range p.archive.Records(ctx, q) {
		var erased *segment.ErasedError
		var gone *segment.GoneError
		switch {
		case errors.Is(err, segment.ErrNotFound):
			return true
		case errors.As(err, &erased), errors.As(err, &gone), p.damaged(err):
			continue
		case err != nil:
			return yield(nil, archiveErr(ctx, err)) && false
		case rec.Log < 0 || rec.Seq == 0:
			continue
		case e != nil && (rec.Seq > e.Seq || rec.Seq == e.Seq && rec.Part.I >= e.Part.I):
			return true
		}
		old, err := rec.Event()
		if err != nil {
			continue // the bus leaves it out, too
		}
		if !yield(old, nil) {
			return false
		}
	}
	return true
}

// damaged reports an error about a segment that cannot be read whole: trying again does not help.
func (p *past) damaged(err error) bool {
	var d *segment.DamagedError
	if !errors.As(err, &d) {
		return false
	}
	p.log.Error("the archive is damaged: cbcast archive verify says more", "error", err)
	return true
}

// errArchive says that the archive could not be read, so that it is tried again.
var errArchive = fmt.Errorf("archive: %w", bus.ErrUnavailable)

func archiveErr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errArchive, err)
}

// only reports whether the archive alone has a run: the bus has nothing of it, and its edge is
// not there. Then nothing more comes and nobody takes a command, however the run ended.
func (r *Relay) only(ctx context.Context, ref bus.Ref) (bool, error) {
	if r.past.archive == nil || r.reg.alive(ref.Run) {
		return false, nil
	}
	if _, _, err := r.bus.Last(ctx, ref); !notFoundErr(err) {
		return false, err
	}
	i, err := r.past.info(ctx, ref)
	return i != nil, err
}

// commandable says that a run is kept in the archive only. It is the answer that a run gives
// that has ended.
func (r *Relay) commandable(ctx context.Context, i bus.RunInfo) *apiErr {
	only, err := r.only(ctx, i.Ref())
	switch {
	case err != nil:
		return r.busErr(err)
	case only:
		return fail(CodeEnded, "the run is over, and kept in the archive only; nothing was done").with("run", i.Run)
	}
	return nil
}

// Last is [bus.Bus.Last]. The stream sequence of an event from the archive is 0.
func (p *past) Last(ctx context.Context, ref bus.Ref) (*event.Event, uint64, error) {
	e, seq, err := p.Bus.Last(ctx, ref)
	if p.archive == nil || !notFoundErr(err) {
		return e, seq, err
	}
	i, aerr := p.info(ctx, ref)
	if aerr != nil {
		return nil, 0, aerr
	}
	if i == nil || i.LastSeq == 0 {
		return nil, 0, err
	}
	var last *event.Event
	for _, after := range []uint64{i.LastSeq - 1, 0} { // that one may be damaged
		p.archived(ctx, ref, after, nil, func(e *event.Event, err error) bool {
			last, aerr = e, err
			return true
		})
		if aerr != nil {
			return nil, 0, aerr
		}
		if last != nil {
			break
		}
	}
	if last == nil {
		return nil, 0, err
	}
	return last, 0, nil
}

// info is what the archive knows of a run, nil where that is nothing that can be read.
func (p *past) info(ctx context.Context, ref bus.Ref) (*segment.RunInfo, error) {
	i, err := p.archive.Run(ctx, ref.Tenant, ref.Run)
	switch {
	case errors.Is(err, segment.ErrNotFound):
		return nil, nil //nolint:nilnil // it is not there
	case err != nil:
		return nil, archiveErr(ctx, err)
	case i.Erased != nil:
		return nil, nil //nolint:nilnil // not any more
	}
	return i, nil
}

// FirstKept is [bus.Bus.FirstKept]. Of an event that only the archive has, it is the seq.
func (p *past) FirstKept(ctx context.Context, ref bus.Ref) (*event.Event, uint64, error) {
	e, seq, err := p.Bus.FirstKept(ctx, ref)
	if p.archive == nil || err == nil && e.Seq == 1 || err != nil && !notFoundErr(err) {
		return e, seq, err
	}
	var first *event.Event
	var aerr error
	p.archived(ctx, ref, 0, e, func(e *event.Event, err error) bool {
		first, aerr = e, err
		return false
	})
	switch {
	case aerr != nil:
		return nil, 0, aerr
	case first != nil:
		return first, 0, nil
	}
	return e, seq, err
}

// Controls is [bus.Bus.Controls]. Those of a run whose beginning the bus has let go come from the
// archive, too, and may come from both.
func (p *past) Controls(ctx context.Context, ref bus.Ref) iter.Seq2[*event.Event, error] {
	if p.archive == nil {
		return p.Bus.Controls(ctx, ref.Tenant, ref.Run)
	}
	return func(yield func(*event.Event, error) bool) {
		if e, _, err := p.Bus.FirstKept(ctx, ref); notFoundErr(err) || err == nil && e.Seq > 1 {
			if !p.archivedControls(ctx, ref.Tenant, ref.Run, yield) {
				return
			}
		}
		p.Bus.Controls(ctx, ref.Tenant, ref.Run)(yield)
	}
}

func (p *past) archivedControls(ctx context.Context, tenant, run string, yield func(*event.Event, error) bool) bool {
	q := segment.Query{Tenant: tenant, Run: run, Logs: []segment.Log{segment.Control}}
	for rec, err := range p.archive.Records(ctx, q) {
		var erased *segment.ErasedError
		var gone *segment.GoneError
		switch {
		case errors.Is(err, segment.ErrNotFound):
			return true
		case errors.As(err, &erased), errors.As(err, &gone), p.damaged(err):
			continue
		case err != nil:
			return yield(nil, archiveErr(ctx, err)) && false
		}
		if e, err := rec.Event(); err == nil && !yield(e, nil) {
			return false
		}
	}
	return true
}

// answerableHere is [Relay.commandable] for an ask: that of a run which is over is closed.
func (r *Relay) answerableHere(ctx context.Context, i bus.RunInfo, a Asked) *apiErr {
	aerr := r.commandable(ctx, i)
	if aerr == nil || aerr.code != CodeEnded {
		return aerr
	}
	if a.View == nil {
		return noAsk(a.ID)
	}
	a.Ended = true
	var closed *apiErr
	if errors.As(answerable(a), &closed) {
		return closed
	}
	return aerr
}

// findArchived looks for a run that the bus does not know any more, among the tenants that the
// caller may see. It has ended: nothing can be commanded or answered; see [Relay.commandable].
func (r *Relay) findArchived(q *http.Request, run string) (bus.RunInfo, error) {
	p := r.past
	if p.archive == nil {
		return bus.RunInfo{}, bus.ErrNotFound
	}
	tenants := callerOf(q).tenants
	if tenants == nil {
		tenants = []string{""}
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	if !p.unknown.enter(ctx, run) {
		return bus.RunInfo{}, bus.ErrNotFound
	}
	defer p.unknown.leave()
	for _, t := range tenants {
		i, err := p.info(ctx, bus.Ref{Tenant: t, Run: run})
		if err != nil {
			return bus.RunInfo{}, err
		}
		if i != nil {
			return bus.RunInfo{
				Run: i.Run, Tenant: i.Tenant, Partition: subject.Partition(i.Run, r.partitions),
				State: stateDone, Started: i.First, Updated: i.Last, LastSeq: i.LastSeq,
			}, nil
		}
	}
	if callerOf(q).tenants == nil {
		p.unknown.note(run)
	}
	return bus.RunInfo{}, bus.ErrNotFound
}

// unknown keeps who asks for runs that are nowhere from having the archive read again and
// again.
type unknown struct {
	slots chan struct{}

	mu   sync.Mutex // guards the rest
	runs map[string]time.Time
}

const (
	unknownFor  = 30 * time.Second
	maxUnknown  = 1024
	lookupsOnce = 4 // in the archive, at once
)

// enter waits for a slot. It returns false for a run that was not there a moment ago, and at the
// end of ctx.
func (u *unknown) enter(ctx context.Context, run string) bool {
	u.mu.Lock()
	at, ok := u.runs[run]
	u.mu.Unlock()
	if ok && time.Since(at) < unknownFor {
		return false
	}
	select {
	case u.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (u *unknown) leave() { <-u.slots }

func (u *unknown) note(run string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.runs) >= maxUnknown {
		clear(u.runs)
	}
	u.runs[run] = time.Now()
}

func newPast(b *bus.Bus, a Archive, log *slog.Logger) *past {
	return &past{Bus: b, archive: a, log: log, unknown: unknown{slots: make(chan struct{}, lookupsOnce), runs: map[string]time.Time{}}}
}
