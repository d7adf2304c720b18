package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
)

// A keeper is the handler of one session: from one opening of the archive to the next.
// It never takes an entry after one that it left out, since what a head says of a log
// is that everything up to a place is there. Where an entry cannot be appended because
// the disk is full or the store is away, Handle waits. Where that does not pass, or
// after a panic, the session ends: nothing that is not sealed was acked, and the next
// session begins with the archive opened anew.
type keeper struct {
	s         *Service
	ar        *segment.Archive
	end       context.CancelCauseFunc // of the session
	broken    error                   // why it is over
	sealedAll bool                    // and then all that was taken is sealed
	// stopping is done when the service is to end: then all is sealed.
	stopping    context.Context
	ctx         context.Context  // of the session
	failed      int              // tries in a row that failed, in Handle
	uncommitted int              // and in Commit
	sealed      map[string]bool  // tenants that were sealed meanwhile
	sealing     bool             // it was sealing that failed last
	caught      map[bus.Log]bool // logs of which what tenants lack that were aside is here

	notes map[open]map[string]*Note // by run, of what is not sealed
	old   map[string]bool           // uids of segments of an earlier session: what was in them is not in notes
	lags  map[bus.Log]*lag

	heads []*segment.Head // sealed, not looked after yet
	pages map[*segment.Head]*page
}

// An open is where records go: the archive has an open segment for each tenant and day.
type open struct{ tenant, day string }

var errSession = errors.New("the archive is opened anew")

// Bounds of waiting in place.
const (
	firstWait = 200 * time.Millisecond
	lastWait  = 5 * time.Second
	// maxFailures in a row end a session: what a failed fsync leaves, say, needs the
	// archive to be opened anew, and an instance that stands by may have a better way.
	maxFailures = 8
)

func newKeeper(stopping context.Context, s *Service, ar *segment.Archive, end context.CancelCauseFunc) *keeper {
	k := &keeper{
		stopping: stopping, s: s, ar: ar, end: end, notes: map[open]map[string]*Note{}, old: map[string]bool{},
		lags: map[bus.Log]*lag{}, pages: map[*segment.Head]*page{}, ctx: stopping, caught: map[bus.Log]bool{},
		sealed: map[string]bool{},
	}
	for _, r := range ar.Recovered() {
		k.old[r.UID] = true
	}
	return k
}

// stop ends the session.
func (k *keeper) stop(err error) error {
	if k.broken == nil {
		k.broken = err
		k.end(err)
	}
	return fmt.Errorf("%w: %w: %w", consume.ErrAgain, errSession, k.broken)
}

// Handle appends an entry to the archive.
func (k *keeper) Handle(ctx context.Context, e *consume.Entry) (err error) {
	if k.broken != nil {
		return k.stop(k.broken)
	}
	defer func() {
		if v := recover(); v != nil {
			err = k.stop(k.s.panicked(e, v))
		}
	}()
	if reason := k.s.poison(e); reason != nil {
		return k.bury(e, reason, maxFaults)
	}
	r := recordOf(e)
	added, kept, err := k.keep(ctx, e, r)
	if err == nil && kept {
		k.taken(e, r, added)
	}
	return err
}

// taken notes what was appended.
func (k *keeper) taken(e *consume.Entry, r *segment.Record, added segment.Added) {
	l := k.lags[e.Log]
	if l == nil {
		l = &lag{}
		k.lags[e.Log] = l
	}
	l.add(e.At)
	k.note(e, r, added)
}

// note keeps what the catalogue says of an entry until that is sealed.
func (k *keeper) note(e *consume.Entry, r *segment.Record, added segment.Added) {
	if added != segment.New || e.Event == nil {
		return
	}
	n := Note{Run: r.Run}
	if n.add(e.Event); n.empty() {
		return
	}
	at := open{r.Tenant, segment.Day(r.Stored)}
	runs := k.notes[at]
	if runs == nil {
		runs = map[string]*Note{}
		k.notes[at] = runs
	}
	if have := runs[r.Run]; have != nil {
		have.merge(&n)
	} else {
		runs[r.Run] = &n
	}
}

// Rebuilt forgets what is known by places.
func (k *keeper) Rebuilt(l bus.Log, after bus.Place) {
	delete(k.lags, l)
	k.ar.Rebuilt(segment.Log(l))
	k.caught[l] = after.Seq == 0 // all of it comes
	k.s.o.Log.Warn("log was made anew: what it gives again is known by the runs' own numbers", "log", l, "after", after.Seq)
}

// Begun notes that nothing before a place comes again.
func (k *keeper) Begun(l bus.Log, after bus.Place) {
	k.catchUp(l, after.Seq) // before what an earlier process left of it is taken for all there is
	k.ar.Gone(segment.Log(l), after.Seq)
}

// Waiting says that something is to be sealed, whether or not the bus waits for it.
func (k *keeper) Waiting() bool {
	return k.broken == nil && (k.ar.Stats().Open > 0 || len(k.s.returning()) > 0)
}

// awaited asks the bus whether what an earlier process left still comes again.
func (k *keeper) awaited(ctx context.Context) {
	if k.s.o.Bus == nil {
		return
	}
	for l := range k.ar.Awaited() {
		if !slices.Contains(k.s.logs(), bus.Log(l)) {
			k.ar.Rebuilt(l) // it is no more
			continue
		}
		first, err := k.s.o.Bus.First(ctx, bus.Log(l))
		if err != nil {
			k.s.o.Log.Debug("first message of a log not known", "log", bus.Log(l), "error", err)
			continue
		}
		k.ar.Gone(l, max(first, 1)-1)
	}
}

// Commit seals what has to be, and says up to where everything is sealed.
func (k *keeper) Commit(ctx context.Context, pressed bool) (upTo map[bus.Log]bus.Place, err error) {
	if k.broken != nil && k.sealedAll {
		return k.upTo(), nil
	}
	if k.broken != nil {
		return nil, k.stop(k.broken)
	}
	defer func() {
		if v := recover(); v != nil {
			err = k.stop(k.s.panicked(nil, v))
		}
	}()
	age := k.s.o.SealAge
	switch {
	case k.stopping.Err() != nil:
		age = 0
	case pressed: // what holds the bus up: the older half
		if o := k.ar.Stats().Oldest; !o.IsZero() {
			age = min(age, time.Since(o)/2)
		}
	}
	k.awaited(ctx)
	back := k.s.returning()
	if len(back) > 0 {
		k.catchUpIdle()
		if k.broken != nil {
			return nil, k.stop(k.broken)
		}
	}
	if len(back) > 0 && k.allCaught() {
		age = 0
	} else {
		back = nil
	}
	if err := k.seal(ctx, age); err != nil {
		switch found, ferr := k.blame(ctx, err); {
		case ferr != nil:
			return nil, k.stop(ferr)
		case found:
			return nil, k.stop(errAside)
		}
		if k.uncommitted++; k.fail(err) {
			return nil, k.stop(err)
		}
		return nil, err
	}
	k.failed, k.uncommitted = 0, 0
	clear(k.sealed)
	k.s.returned(ctx, back)
	k.s.goesOn()
	k.s.at("committed")
	if k.s.o.committed != nil {
		defer k.s.o.committed()
	}
	return k.upTo(), nil
}

// upTo is up to where the bus may forget.
func (k *keeper) upTo() map[bus.Log]bus.Place {
	out := map[bus.Log]bus.Place{}
	for l, p := range k.ar.Through() {
		out[bus.Log(l)] = bus.Place(p)
	}
	oldest := time.Time{}
	for log, l := range k.lags {
		if t := l.sealed(out[log]); !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	k.s.sealedUpTo(oldest)
	return out
}

// seal seals what is due and sees to what follows from new heads.
func (k *keeper) seal(ctx context.Context, age time.Duration) error {
	if err := k.s.copies.room(); err != nil {
		return err
	}
	begin := time.Now()
	k.sealing = true
	k.s.at("seal")
	heads, err := k.ar.Seal(ctx, age)
	if len(heads) > 0 {
		k.s.at("sealed")
		k.s.m.sealed(heads, time.Since(begin))
	}
	for _, h := range heads {
		k.heads = append(k.heads, h)
		k.sealed[h.Tenant] = true
		if h.Segment != nil {
			k.pages[h] = k.page(h)
		}
	}
	if err != nil {
		return err
	}
	return k.follow(ctx)
}

// page is what the catalogue says of a new segment, nil where that has to be read from
// its records.
func (k *keeper) page(h *segment.Head) *page {
	at := open{h.Tenant, h.Segment.Day}
	notes := k.notes[at]
	delete(k.notes, at)
	if k.old[h.Segment.UID] {
		delete(k.old, h.Segment.UID)
		return nil
	}
	p := &page{Tenant: h.Tenant, Number: h.Number}
	for _, n := range notes {
		if k.ar.IsErased(h.Tenant, n.Run) {
			continue
		}
		p.Notes = append(p.Notes, *n)
	}
	return p
}

// follow puts new heads into the catalogue and hands them to the copier.
func (k *keeper) follow(ctx context.Context) error {
	if len(k.heads) == 0 {
		return nil
	}
	for _, h := range k.heads {
		if err := k.s.upTo(ctx, h, k.pages[h]); err != nil {
			return err
		}
	}
	k.heads = k.heads[:0]
	clear(k.pages)
	if err := k.s.known.save(); err != nil {
		return err
	}
	k.s.at("known")
	return nil
}
