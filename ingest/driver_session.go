package ingest

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// claimed is what an edge has of its session before it is known to be the run's.
type claimed struct {
	lease  *bus.Lease // nil for none
	leased string     // its session
	claims *bus.Bus   // connected early, until the shipper has it
}

// disclaim closes a connection that nobody took.
func (e *edge) disclaim() {
	if e.claims != nil {
		if e.lease != nil {
			ctx, cancel := context.WithTimeout(context.Background(), lastWords)
			defer cancel()
			_ = e.lease.Release(ctx) // else it ends by itself
		}
		e.claims.Close()
	}
}

// leaseWait is how long the start of a driven run waits for the bus, to see
// whether another run uses its conversation.
const leaseWait = 3 * time.Second

// requested is the conversation that a command names, "" where it names none or
// makes a new one of it.
func requested(argv []string, r *event.Resume) string {
	switch {
	case r != nil && r.Fork:
		return ""
	case r != nil:
		return r.Session
	}
	id, _ := flagValue(argv, "--session-id")
	return id
}

// resume is what the run was told to go on with, nil for nothing.
func (e *edge) resume() *event.Resume {
	r := resumeOf(e.o.Argv)
	if d := e.o.Drive; d != nil && d.Resume != (event.Resume{}) {
		r = &d.Resume
	}
	if r == nil {
		return nil
	}
	r = &event.Resume{Session: e.rec.published(r.Session, false), Run: r.Run, Fork: r.Fork}
	return r
}

// conversation names a session of the run for its lease.
func (e *edge) conversation(session string) subject.Conversation {
	host, _ := os.Hostname()
	return subject.Conversation{
		Tenant: e.o.Tenant, Dialect: string(e.rec.track.Dialect()), Session: session, Host: host,
	}
}

func (e *edge) holder() bus.Holder {
	host, _ := os.Hostname()
	return bus.Holder{Run: e.id, Host: host, Since: e.start.UTC().Truncate(time.Second)}
}

// prepare makes what a driven run needs before its child starts.
func (e *edge) prepare(ctx context.Context) error {
	if err := e.keep(); err != nil {
		return err
	}
	if err := e.claim(ctx); err != nil {
		return errors.Join(err, e.spool.Remove())
	}
	return nil
}

// claim takes the lease on a driven run's conversation before its child starts.
// Its error is a [*bus.HeldError]: another live run uses the conversation. Without
// a bus there is no lease, and the run goes on.
func (e *edge) claim(ctx context.Context) error {
	d := e.o.Drive
	session := requested(e.o.Argv, &d.Resume)
	if d.Resume == (event.Resume{}) {
		session = requested(e.o.Argv, nil)
	}
	if session == "" {
		return nil
	}
	if e.o.Dial == nil {
		e.say("no bus: that no other run uses session " + session + " is not checked")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	b, err := e.o.Dial(ctx)
	if err != nil {
		e.say("the bus is away: that no other run uses session " + session + " is not checked")
		e.log.Warn("no lease", "error", err)
		return nil
	}
	e.claims = b
	dial := e.o.Dial
	e.o.Dial = func(ctx context.Context) (*bus.Bus, error) { // the shipper goes on with it
		if b := e.claims; b != nil {
			e.claims = nil
			return b, nil
		}
		return dial(ctx)
	}
	e.lease, err = b.Lease(ctx, e.conversation(session), e.holder(), e.o.PresenceTTL)
	var held *bus.HeldError
	switch {
	case errors.As(err, &held):
		e.disclaim()
		return err
	case err != nil:
		e.say("that no other run uses session " + session + " could not be checked")
		e.log.Warn("no lease", "error", err)
	default:
		e.leased = session
	}
	return nil
}

// session is the run's main session by now.
func (r *recorder) session() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.main
}

// say tells the person who started the run something.
func (e *edge) say(text string) {
	e.log.Info("session", "note", text)
	if e.o.Say != nil {
		e.o.Say(text)
	}
}

// leases holds the lease on the run's conversation while the run lives. Where
// another run has it, that is a fact of this run, told once; both go on.
func (s *shipper) leases(b *bus.Bus) {
	if s.e.pipe {
		return // the agent is not here
	}
	if !s.isOurs(s.signsCtx) {
		s.lease = s.e.lease
		return
	}
	k := keeper{s: s, b: b, lease: s.e.lease, session: s.e.leased, told: map[string]bool{}}
	t := time.NewTicker(s.e.o.PresenceTTL / 3)
	defer t.Stop()
	if r := requested(s.e.o.Argv, resumeOf(s.e.o.Argv)); k.session == "" && r != "" {
		k.take(r)
	}
	for {
		if m := s.e.rec.session(); m != "" && m != k.session {
			k.give()
			k.take(m)
		}
		select {
		case <-t.C:
			k.renew()
		case <-s.e.rec.named:
		case <-s.signsCtx.Done():
			s.lease = k.lease
			return
		}
	}
}

// A keeper holds one lease after the other, as the run's session changes.
type keeper struct {
	s       *shipper
	b       *bus.Bus
	session string
	lease   *bus.Lease // nil while another has it
	denied  bool       // the bus does not permit to ask for it
	told    map[string]bool
}

func (k *keeper) take(session string) {
	k.session = session
	l, err := k.b.Lease(k.s.signsCtx, k.s.e.conversation(session), k.s.e.holder(), k.s.e.o.PresenceTTL)
	k.lease, k.denied = l, errors.Is(err, bus.ErrDenied)
	k.lost(err)
}

func (k *keeper) renew() {
	switch {
	case k.session == "", k.denied:
	case k.lease == nil:
		k.take(k.session) // the other may have ended
	default:
		err := k.lease.Renew(k.s.signsCtx)
		if errors.Is(err, bus.ErrConflict) {
			k.lease = nil // it expired; if nobody has it the next round takes it
		}
		k.lost(err)
	}
}

// maxTold bounds the conflicts that are told.
const maxTold = 16

// lost tells of another run that uses the session.
func (k *keeper) lost(err error) {
	var held *bus.HeldError
	switch {
	case err == nil || k.s.signsCtx.Err() != nil:
		return
	case !errors.As(err, &held):
		k.s.log.Debug("session lease", "error", err)
		return
	}
	key := k.session + " " + held.Holder.Run
	if k.told[key] || len(k.told) >= maxTold {
		return
	}
	k.told[key] = true
	e := k.s.e
	e.say("session " + k.session + " is also used by run " + held.Holder.Run)
	e.rec.mu.Lock()
	defer e.rec.mu.Unlock()
	if e.rec.closed {
		return
	}
	e.rec.factLocked(time.Now(), event.TypeConflict, event.Life,
		event.Conflict{Session: e.rec.published(k.session, false), Run: held.Holder.Run}, true)
}

func (k *keeper) give() {
	if k.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(k.s.ctx, lastWords)
	defer cancel()
	if err := k.lease.Release(ctx); err != nil {
		k.s.log.Debug("release the session", "error", err)
	}
	k.lease = nil
}

// giveBack gives the lease back that is left at the end, once: the next run of the
// session need not wait for its expiry.
func (s *shipper) giveBack(ctx context.Context) error {
	l := s.lease
	s.lease = nil
	if l == nil {
		return nil
	}
	return l.Release(ctx)
}
