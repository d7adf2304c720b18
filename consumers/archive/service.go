package archive

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// Name is the archive's durable consumer on the server.
const Name = subject.ArchiveConsumer

// Options are what a [Service] needs.
type Options struct {
	Config
	Bus        *bus.Bus
	Partitions int
	// Dir is this machine's: segments that are not sealed, heads to copy, dead letters,
	// and the signing key where none is configured. One process holds it at a time.
	Dir string
	Log *slog.Logger // nil discards

	// For tests:
	pause     time.Duration              // before the second session
	maxDead   int                        // dead letters
	look      time.Duration              // between two at the chain of a tenant that is aside
	before    func(*consume.Entry) error // each entry
	committed func()                     // after each commit
	step      func(string)               // what is done next, to crash there
	ended     func(error)                // each session
}

// A Service archives the bus until it is told to end.
type Service struct {
	o      Options
	place  Place
	copies *copier // nil without a second place for heads
	m      *meters
	known  *known // of the session

	begun bool      // the stores were found fit
	swept time.Time // when unfinished writes were given up last

	mu      sync.Mutex // guards the rest
	c       *consume.Consumer
	ar      *segment.Archive
	err     error // why the archive is not open
	stall   error // why nothing is sealed
	oldest  time.Time
	unread  lagState // while it is not open, as the server said last
	faults  map[fault]int
	reasons map[fault]error
	asides  map[string]*aside
	former  []bus.Log     // partitions that are read beside those configured
	headAt  time.Time     // of the newest head
	done    segment.Stats // of earlier sessions
}

// A fault is a message that an attempt to archive ended in a panic.
type fault struct {
	log bus.Log
	at  bus.Place
}

// maxFaults is how often a message may do that before it is a dead letter.
const maxFaults = 3

// New prepares a service. It asks no server and makes no directory.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(o.Check(), o.CheckPlaces()); err != nil {
		return nil, err
	}
	p, err := o.Open()
	if err != nil {
		return nil, err
	}
	s := &Service{
		o: o, place: p, m: newMeters(), err: errors.New("not running"),
		faults: map[fault]int{}, reasons: map[fault]error{}, asides: map[string]*aside{},
	}
	to, err := o.headPlace()
	if err != nil {
		return nil, err
	}
	if to != nil {
		s.copies = newCopier(to, filepath.Join(o.Dir, "heads"), o.HeadsBehind, o.Log)
	}
	return s, nil
}

// Waits between sessions.
const (
	firstSession = time.Second
	lastSession  = 30 * time.Second
)

// Run archives until ctx ends. What stands in the way (a destination that is away, a
// disk that is full, another process in the directory) is waited out and shown by
// [Service.Ready]. It returns nil when what was handled is acked or comes again.
func (s *Service) Run(ctx context.Context) error {
	unlock, err := lock(s.o.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if s.copies != nil {
		if err := s.copies.open(); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	cctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // copying outlives the last seal
	defer stop()
	if s.copies != nil {
		wg.Go(func() { s.copies.run(cctx) })
	}
	first := cmp.Or(s.o.pause, firstSession)
	for wait := first; ; {
		begin := time.Now()
		err := s.session(ctx)
		if s.o.ended != nil {
			s.o.ended(err)
		}
		if ctx.Err() != nil {
			s.copies.drain(ctx)
			return err
		}
		if time.Since(begin) > lastSession {
			wait = first
		}
		s.fail(err)
		s.behindNow(ctx)
		s.o.Log.Warn("the archive is opened again", "in", wait, "error", err)
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		wait = min(2*wait, lastSession)
	}
}

// session opens the archive and reads until ctx ends or something is out of joint.
func (s *Service) session(ctx context.Context) (err error) {
	ar, err := s.openArchive(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ar.Close()) }()
	if err := s.formerLogs(ctx); err != nil {
		return err
	}
	stopping := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	k := newKeeper(stopping, s, ar, end)
	k.ctx = ctx
	c, err := consume.New(consume.Config{
		Name: Name, Bus: s.o.Bus, Logs: s.logs(), Dir: s.o.Dir, Headers: true,
		Window: s.o.Window, Every: min(s.o.SealAge, time.Second), Log: s.o.Log,
	}, k)
	if err != nil {
		return err
	}
	s.set(func() { s.c, s.ar, s.err, s.stall = c, ar, nil, nil })
	defer s.set(func() {
		st := ar.Stats()
		s.c, s.ar = nil, nil
		s.done.Already += st.Already
		s.done.Again += st.Again
		s.done.Holes += st.Holes
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.retain(ctx, ar) })
	wg.Go(func() { s.probe(ctx, end) })
	err = c.Run(ctx)
	if cause := context.Cause(ctx); err == nil && stopping.Err() == nil {
		err = cause
	}
	end(nil)
	if k.broken != nil {
		return k.broken
	}
	return err
}

func (s *Service) fail(err error) { s.set(func() { s.err = err }) }

// signer reads the signing key.
func (s *Service) signer() (ed25519.PrivateKey, error) { return s.o.signingKey(s.o.Dir) }

// panicked takes note of a panic over an entry.
func (s *Service) panicked(e *consume.Entry, v any) error {
	err := fmt.Errorf("panic: %v", v)
	s.o.Log.Error("archiving panicked", "panic", v, "stack", string(debug.Stack()))
	s.m.panics.Inc()
	if e != nil {
		s.set(func() {
			if len(s.faults) > 1000 {
				clear(s.faults)
			}
			f := fault{e.Log, e.At}
			s.faults[f]++
			s.reasons[f] = err
		})
	}
	return err
}

// poison is why an entry is not to be tried again, nil where it is.
func (s *Service) poison(e *consume.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == 0 {
		return nil
	}
	f := fault{e.Log, e.At}
	if s.faults[f] < maxFaults {
		return nil
	}
	return s.reasons[f]
}

// Dead are the dead letters.
func (s *Service) Dead() *consume.Letters {
	return consume.OpenLetters(s.o.Dir).Limit(cmp.Or(s.o.maxDead, maxDead))
}

// maxDead is how many dead letters there may be. With so many nothing that comes behind the
// next one is archived, or acked, before some are removed.
const maxDead = 10_000

func (s *Service) at(step string) {
	if s.o.step != nil {
		s.o.step(step)
	}
}

// stalled and goesOn keep why nothing is sealed.
func (s *Service) stalled(err error) { s.set(func() { s.stall = err }) }
func (s *Service) goesOn()           { s.set(func() { s.stall = nil }) }

// sealedUpTo keeps when the oldest message was stored that is not sealed.
func (s *Service) sealedUpTo(oldest time.Time) { s.set(func() { s.oldest = oldest }) }

// Ready says why nothing is archived now, nil where it is. An instance that stands by
// is ready.
func (s *Service) Ready() error {
	s.mu.Lock()
	c, err, stall := s.c, s.err, s.stall
	s.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("archive: %w", err)
	case stall != nil:
		return fmt.Errorf("archive: nothing is sealed: %w", stall)
	case c == nil:
		return errors.New("archive: not running")
	}
	if st := c.Status(); st.Err != nil {
		return fmt.Errorf("archive: %w", st.Err)
	}
	if err := s.asideError(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

// Status is the consumer's, zero while the archive is not open.
func (s *Service) Status() consume.Status {
	s.mu.Lock()
	c := s.c
	s.mu.Unlock()
	if c == nil {
		return consume.Status{}
	}
	return c.Status()
}

// standsBy reports whether another instance reads, at least some log.
func (s *Service) standsBy() bool {
	return slices.ContainsFunc(s.Status().Logs, func(l consume.LogStatus) bool { return l.Standby })
}

// lock holds a directory until the process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("archive's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "archive.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("archive's directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another process archives from there")
		}
		return nil, fmt.Errorf("archive's directory %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}
