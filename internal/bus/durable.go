package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

// ErrDrift is returned where a durable consumer of the server is not set up as its
// reader needs it. It is never altered: a person says which is right.
var ErrDrift = errors.New("consumer is set up otherwise")

// A DurableConfig says what a [Durable] reads.
type DurableConfig struct {
	// Name is the consumer's on the server, the same for every instance of a program.
	Name string
	Log  Log
	// Window is how many messages may be given and not acked. 0 is [DefaultWindow].
	Window int
	// Headers fills [Raw.Header] of every message; else only that of bad ones.
	Headers bool

	// Mark is what an earlier process of this instance left, and Save takes what the
	// next one needs. They are hints: without them a restart after a kill waits until
	// the server misses the dead process, and a stream made anew is not noticed where
	// nobody looked while it was. Save may be nil.
	Mark Mark
	Save func(Mark)

	// Begin is called before the first message and whenever the server is made to give
	// again what it was not acked: what follows is behind after, in the order of the
	// log, some of it perhaps for the second time. With [Rebuilt] the log is another
	// one there than it was: nothing that was read behind after stands. It is called on
	// Run's goroutine. May be nil.
	Begin func(after Place, turn Turn)
}

// DefaultWindow is that of a [DurableConfig].
const DefaultWindow = 20_000

// A Mark is where a [Durable] was.
type Mark struct {
	Stream time.Time `json:"stream"` // when the stream was made
	At     Place     `json:"at"`     // acked up to here
	Pin    string    `json:"pin"`    // by which the server knows the reader
}

// A Delivery is one message of a log.
type Delivery struct {
	Log Log
	At  Place
	Raw Raw
	// Event is nil where the message is none of ours; then Bad says why ([ErrForeign]).
	Event *event.Event
	Bad   error
	// Wire is where Raw.Header comes from.
	Wire Wire
}

// A Durable reads a log through a durable consumer of the server: in the order of the
// log, from behind what was acked. One instance of a program reads at a time, the
// others stand by and take over when it is gone. The server does not promise that
// they exclude each other (ADR-42): who is slow may be read past, so a reader knows
// what it has by the run's own numbers.
//
// After every start, lost connection, change of leader or take-over the consumer is
// reset to what was acked (CONSUMER.RESET), so that no message comes late behind a
// younger one: the server's own redelivery would do that.
type Durable struct {
	b   *Bus
	cfg DurableConfig
	ttl time.Duration // of the pin

	mu     sync.Mutex // guards the rest
	mark   Mark
	want   Place         // to be acked up to here
	wanted chan struct{} // has one when want rose
	acked  chan struct{} // closed and replaced when mark.At rose
	given  []given       // in the session, not acked
	prefix string        // of the session's ack subjects
	last   Place         // given last, in any session
	short  time.Time     // since when the log looks too short; zero: it does not
	st     DurableStatus
}

// A given is a message that the server awaits an ack for.
type given struct {
	at  Place
	seq uint64 // of the consumer
}

// A DurableStatus is how a reader does.
type DurableStatus struct {
	Reading bool  // this instance reads now, or there is nothing to read
	Standby bool  // another instance reads
	Err     error // why not, while neither

	Pending     uint64    // messages of the log not given yet
	Unacked     int       // given and not acked
	Redelivered uint64    // given more than once to this process
	Missed      uint64    // messages that retention took before they were read
	Rebuilt     uint64    // how often the log was another one than before
	At          Place     // acked up to here
	Asked       time.Time // when the server said Pending; zero before
}

// Durable prepares to read; nothing happens before [Durable.Run].
func (b *Bus) Durable(cfg DurableConfig) *Durable {
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	return &Durable{
		b: b, cfg: cfg, ttl: pinTTL, mark: cfg.Mark, want: cfg.Mark.At, last: cfg.Mark.At,
		wanted: make(chan struct{}, 1), acked: make(chan struct{}),
	}
}

// Run calls fn for each message until ctx ends, and returns its cause, or fn's error.
// fn is called on Run's goroutine; while it does not return nothing more is read. The
// context it gets ends when the message will be given again: then fn may drop it. All
// else is waited out and shown in [Durable.Status], an [ErrDrift] too.
func (d *Durable) Run(ctx context.Context, fn func(context.Context, Delivery) error) error {
	for failed := 0; ; {
		before := d.Status().At
		err := d.session(ctx, fn)
		var stop *stopped
		switch {
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrClosed):
			return err
		}
		if d.Status().At != before {
			failed = 0
		}
		failed++
		d.fail(err)
		d.b.log.Debug("durable consumer goes on", "consumer", d.cfg.Name, "log", d.cfg.Log, "error", err)
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stopped carries an error of the reader's function.
type stopped struct{ err error }

func (s *stopped) Error() string { return s.err.Error() }

// Status says how the reader does.
func (d *Durable) Status() DurableStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.st
	st.Unacked, st.At = len(d.given), d.mark.At
	return st
}

func (d *Durable) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.st.Reading, d.st.Standby, d.st.Err = false, false, err
	d.given = nil
}

// set changes the status.
func (d *Durable) set(fn func(*DurableStatus)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn(&d.st)
}

// save gives the mark away. mu is not held.
func (d *Durable) save(change func(*Mark)) {
	d.mu.Lock()
	change(&d.mark)
	m := d.mark
	d.mu.Unlock()
	if d.cfg.Save != nil {
		d.cfg.Save(m)
	}
}
