package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// registerEvery is the least time between two writes of a run's registry
	// entry: a busy run changes its state many times a second.
	registerEvery = time.Second
	// lastWords bounds the registry write and the goodbye after the last event
	// was acknowledged.
	lastWords = 500 * time.Millisecond
	// maxLeft is how large a spool that an earlier run left may be, in bytes, to
	// be shipped beside this run: reading it must not delay the end. Larger ones
	// are for cbcast flush and up.
	maxLeft = 16 << 20
)

// A shipper is the bus side of one run: it connects, publishes, shows presence,
// keeps the registry entry and takes commands. Everything it starts has ended
// when drain returns.
type shipper struct {
	e        *edge
	ref      bus.Ref
	log      *slog.Logger
	commands func(context.Context, bus.Command)

	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	pub     *bus.Publisher
	ours    chan struct{} // closed when the bus has an event of this run from here
	shipped chan struct{} // closed when every event is acknowledged
	failed  chan struct{} // closed when that will not happen in this process

	signs     sync.WaitGroup  // of life: presence and registry entry; and others
	signsCtx  context.Context // ends before s.ctx
	signsStop context.CancelFunc

	why error // publishing failed; set before failed is closed, read after wg

	noPlace bool // asking for it is not permitted; of whoever writes the registry

	lease *bus.Lease // of the session at the end; set when signs are over

	mu    sync.Mutex // guards what follows
	bus   *bus.Bus
	first uint64 // stream sequence of the run's first event, 0 while unknown
}

func newShipper(e *edge, ref bus.Ref) *shipper {
	return &shipper{
		e: e, ref: ref, log: e.log, ours: make(chan struct{}), shipped: make(chan struct{}), failed: make(chan struct{}),
	}
}

// run starts to connect and ship, and returns at once.
func (s *shipper) run(ctx context.Context) {
	// The caller's end must not cut the flush short; drain bounds it.
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.signsCtx, s.signsStop = context.WithCancel(s.ctx)
	if s.e.o.Dial == nil {
		close(s.failed)
		return
	}
	s.wg.Go(func() { // ends with s.ctx
		b, err := s.e.o.Dial(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Warn("no bus; events stay in the spool", "error", err)
			}
			close(s.failed)
			return
		}
		s.mu.Lock()
		s.bus = b
		s.mu.Unlock()
		s.pub = &bus.Publisher{Bus: b, Ref: s.ref, Source: &ownSource{source{s: s.e.spool}, s}, Log: s.log}
		if s.e.o.RunID == "" {
			s.owned()
		}
		s.signs.Go(func() { s.register(b) })
		s.signs.Go(func() { s.present(b) })
		s.signs.Go(func() { s.others(b) })
		s.signs.Go(func() { s.leases(b) })
		if s.commands != nil {
			s.wg.Go(func() { s.listen(b) })
		}
		if s.e.alone {
			s.publish()
			return
		}
		background(s.publish)
	})
}

func (s *shipper) publish() {
	if err := s.pub.Run(s.ctx); err != nil {
		if errors.Is(err, bus.ErrRunUsed) {
			s.signsStop() // it is another's presence, and another's entry
			err = fmt.Errorf("%w: %w", ErrRunUsed, err)
		}
		if s.ctx.Err() == nil {
			s.why = err
			s.log.Error("publisher ended; events stay in the spool", "error", err)
		}
		close(s.failed)
		return
	}
	close(s.shipped)
}

func (s *shipper) listen(b *bus.Bus) {
	if !s.isOurs(s.ctx) {
		return
	}
	err := b.Commands(s.ctx, s.ref.Tenant, s.ref.Run, func(c bus.Command) {
		s.commands(s.ctx, c)
	})
	if err != nil && s.ctx.Err() == nil {
		s.log.Error("listening for commands ended", "error", err)
	}
}

// others ships what earlier runs left behind.
func (s *shipper) others(b *bus.Bus) {
	err := flushSpools(s.signsCtx, s.e.o.SpoolRoot, maxLeft, b, s.e.o.SyncInterval, s.log, func(f Flushed) {
		s.log.Info("shipped an earlier run", "earlier", f.Run, "events", f.Events, "error", f.Err)
	})
	if err != nil {
		s.log.Debug("ship earlier runs", "error", err)
	}
}

// refuse answers a command that came after the run's last event was recorded, as
// a relay does for a run without an edge. Whoever is first has said it.
func (s *shipper) refuse(ctx context.Context, cmd bus.Command, reason string) {
	s.mu.Lock()
	b := s.bus
	s.mu.Unlock()
	what := subject.CommandFact(cmd.ID)
	_, err := b.PutControl(ctx, &event.Event{
		Tenant: s.ref.Tenant, Run: s.ref.Run, Ref: what, Time: time.Now(), Type: event.TypeCommandFact, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON,
		Data: mustJSON(event.CommandFact{Command: cmd.ID, Name: cmd.Name, Fact: event.Refused, Reason: reason}),
	}, what, 0)
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		s.log.Debug("refuse a late command", "command", cmd.ID, "error", err)
	}
}

// present renews the run's presence three times per TTL, and says that the run
// is back when a relay has declared it lost meanwhile.
func (s *shipper) present(b *bus.Bus) {
	ctx, ttl := s.signsCtx, s.e.o.PresenceTTL
	if !s.isOurs(ctx) {
		return
	}
	t := time.NewTicker(ttl / 3)
	defer t.Stop()
	for {
		if err := b.RenewPresence(ctx, s.ref.Run, ttl); err != nil {
			s.log.Debug("renew presence", "error", err)
		} else if err := resume(ctx, b, s.ref); err != nil {
			s.log.Debug("resume", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// register keeps the registry entry up to date while the run lives.
func (s *shipper) register(b *bus.Bus) {
	ctx := s.signsCtx
	if !s.isOurs(ctx) {
		return
	}
	for {
		err := b.PutRun(ctx, s.info(ctx, b))
		if err != nil {
			s.log.Debug("write the registry", "error", err)
		}
		pause := time.NewTimer(registerEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		if err != nil {
			continue
		}
		select {
		case <-s.e.rec.changed:
		case <-ctx.Done():
			return
		}
	}
}

// info is the run's registry entry as of now.
func (s *shipper) info(ctx context.Context, b *bus.Bus) bus.RunInfo {
	e := s.e
	s.mu.Lock()
	first := s.first
	s.mu.Unlock()
	if first == 0 {
		first = s.place(ctx, b)
		s.mu.Lock()
		s.first = first
		s.mu.Unlock()
	}
	host, _ := os.Hostname()
	e.rec.mu.Lock()
	defer e.rec.mu.Unlock()
	i := bus.RunInfo{
		Run: s.ref.Run, Tenant: s.ref.Tenant, Partition: s.ref.Partition, First: first,
		Host: host, Labels: e.o.Labels, Started: e.start, LastSeq: e.spool.Last(),
	}
	describe(e.rec.state, &i)
	if e.pipe || !e.channel() {
		i.Capabilities = nil // what the agent could obey does not reach it
	}
	return i
}

// describe fills in what the fold knows of a run.
func describe(st *run.State, i *bus.RunInfo) {
	v := st.Summary()
	i.Dialect, i.State, i.Verdict, i.Sessions = v.Dialect, v.State, v.Verdict, v.Sessions
	i.Resume = v.Resume
	i.WaitingFor, i.OpenAsks = v.Waiting, v.Asks
	i.Capabilities, i.Versions, i.Abilities = v.Commands, v.Versions, v.Capabilities
	i.Updated, i.Ended = time.Now(), v.Ended
}

// drain waits until every event is acknowledged, at most for the flush time or
// until a signal asks for an end, then says goodbye and ends everything.
func (s *shipper) drain(ctx context.Context, flush time.Duration, late <-chan struct{}) {
	t := time.NewTimer(flush)
	defer t.Stop()
	select {
	case <-s.shipped:
		s.goodbye()
	case <-s.failed:
	case <-t.C:
	case <-late:
	case <-ctx.Done():
	}
	s.cancel()
	s.wg.Wait()
	s.signs.Wait()
	if s.bus != nil {
		quick, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords/2)
		defer cancel()
		if err := s.giveBack(quick); err != nil {
			s.log.Debug("give the session back", "error", err)
		}
		s.bus.Close()
	}
}

// goodbye leaves the final state in the registry and takes the presence away, so
// that no relay waits for its expiry. Nothing else writes either any more.
func (s *shipper) goodbye() {
	s.signsStop()
	s.signs.Wait()
	ctx, cancel := context.WithTimeout(s.ctx, lastWords)
	defer cancel()
	b := s.bus // set before anything was shipped
	resumed := make(chan error, 1)
	go func() { // ends with ctx, and is waited for
		resumed <- errors.Join(resume(ctx, b, s.ref), s.giveBack(ctx))
	}()
	err := b.PutRun(ctx, s.info(ctx, b))
	// The presence last: who misses it finds the rest written.
	err = errors.Join(err, <-resumed, b.ClearPresence(ctx, s.ref.Run))
	if err != nil {
		s.log.Debug("last words", "error", err)
	}
}

// resume tells everyone that a run which a relay has declared lost speaks again.
// It does nothing for any other run.
func resume(ctx context.Context, b *bus.Bus, ref bus.Ref) error {
	last, seq, err := b.LastLiveness(ctx, ref.Tenant, ref.Run)
	if errors.Is(err, bus.ErrNotFound) || err == nil && last.Type != event.TypeLost {
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	data := mustJSON(struct {
		Time time.Time `json:"time"`
	}{now})
	_, err = b.PutControl(ctx, &event.Event{
		Tenant: ref.Tenant, Run: ref.Run, Ref: "resumed-" + now.UTC().Format("20060102T150405.000000000Z"),
		Time: now, Type: event.TypeResumed, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: data,
	}, subject.Liveness, seq)
	if errors.Is(err, bus.ErrConflict) {
		return nil // another said it first
	}
	return err
}
