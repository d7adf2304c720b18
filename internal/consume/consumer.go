package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A source is a [bus.Durable].
type source interface {
	Run(ctx context.Context, fn func(context.Context, bus.Delivery) error) error
	AckOf(rebuilt uint64, at bus.Place)
	Settle(ctx context.Context) error
	Status() bus.DurableStatus
}

type begin func(after bus.Place, turn bus.Turn)

// A Consumer runs one [Handler].
type Consumer struct {
	cfg     Config
	h       Handler
	q       *queue
	readers []*reader
	letters *Letters

	commits commits
	series  []series

	mu sync.Mutex // guards st
	st counts
}

// A reader is one log.
type reader struct {
	log bus.Log
	src source

	// of the loop
	read    bus.Place // taken last
	acked   uint64    // given to AckOf
	rebuilt uint64    // which log it is that read is of
}

// New prepares a consumer. Nothing is read, and no directory made, before Run.
func New(cfg Config, h Handler) (*Consumer, error) {
	cfg, err := cfg.defaults()
	if err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, h: h, q: newQueue(), letters: OpenLetters(cfg.Dir)}
	c.letters.max = cfg.MaxDead
	c.commits, c.series = newCommits(cfg.Name), seriesOf(cfg.Name)
	for _, l := range cfg.Logs {
		c.readers = append(c.readers, &reader{log: l})
	}
	return c, nil
}

// Dead are the consumer's dead letters.
func (c *Consumer) Dead() *Letters { return c.letters }

// open makes the readers' sources.
func (c *Consumer) open() {
	for _, r := range c.readers {
		started := func(after bus.Place, turn bus.Turn) {
			_ = c.q.push(context.Background(), item{from: r, after: after, turn: turn, rebuilt: r.src.Status().Rebuilt}) // never waits
		}
		if c.cfg.sources != nil {
			r.src = c.cfg.sources(r.log, started)
			continue
		}
		r.src = c.cfg.Bus.Durable(bus.DurableConfig{
			Name: c.cfg.Name, Log: r.log, Window: c.cfg.Window, Headers: c.cfg.Headers,
			Mark: readMark(c.cfg.Dir, r.log), Begin: started,
			Save: func(m bus.Mark) {
				if err := writeMark(c.cfg.Dir, r.log, m); err != nil {
					c.cfg.Log.Warn("place not kept", "log", r.log, "error", err)
				}
			},
		})
	}
}

// Run reads, handles and commits until ctx ends; then it commits once more, and returns
// nil when that was done. A bus that is away, and a commit that fails, are waited out
// and shown in [Consumer.Status].
func (c *Consumer) Run(ctx context.Context) (err error) {
	unlock, err := lockDir(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cfg.Name, err)
	}
	defer unlock()
	c.open()
	c.setRunning(true)
	defer c.setRunning(false)
	// The readers outlive ctx: the last commit is acked through them.
	rctx, stop := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop(nil)
	for _, r := range c.readers {
		wg.Go(func() { // ends with rctx
			err := r.src.Run(rctx, func(ctx context.Context, d bus.Delivery) error {
				return c.q.push(ctx, item{from: r, entry: c.entryOf(d)})
			})
			if rctx.Err() == nil {
				stop(fmt.Errorf("read %s: %w", r.log, err))
			}
		})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rctx, func() { cancel(context.Cause(rctx)) })()
	l := newLoop(c)
	l.run(ctx)
	if err := l.last(rctx); err != nil {
		return fmt.Errorf("%s: %w", c.cfg.Name, err)
	}
	if cause := context.Cause(rctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%s: %w", c.cfg.Name, cause)
	}
	return nil
}

func (c *Consumer) entryOf(d bus.Delivery) *Entry {
	return &Entry{Log: d.Log, At: d.At, Raw: d.Raw, Event: d.Event, Bad: d.Bad, wire: d.Wire, reads: c.reads}
}

// reads is how far a log was read, on the loop's goroutine. A log that is not read is
// as if it had nothing.
func (c *Consumer) reads(l bus.Log) uint64 {
	for _, r := range c.readers {
		if r.log == l {
			return r.read.Seq
		}
	}
	return 0
}

// ackWait bounds how long the last ack is waited for. Without it what was handled comes
// again, and is known.
const ackWait = 5 * time.Second

// last commits what was handled and waits until the server has noted it.
func (l *loop) last(rctx context.Context) error {
	ctx, cancel := context.WithTimeout(rctx, l.c.cfg.StopWait)
	defer cancel()
	if (l.handled > 0 || l.outstanding() > 0 || l.waiting()) && !l.commit(ctx, true) {
		return fmt.Errorf("last commit: %w", l.commitErr)
	}
	ctx, cancel = context.WithTimeout(rctx, ackWait)
	defer cancel()
	for _, r := range l.c.readers {
		if err := r.src.Settle(ctx); err != nil {
			l.c.cfg.Log.Warn("the last ack has no answer", "log", r.log, "error", err)
		}
	}
	return nil
}

// now is the clock, for tests in a bubble.
func now() time.Time { return time.Now() }
