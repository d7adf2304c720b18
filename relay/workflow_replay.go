package relay

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/workflow"
)

const (
	// replays bounds the mappings of single clients at once: of those whose cursor is
	// behind what the line holds. Each reads its run from the start.
	replays = 64

	// turnTime is how long the client of one may take to read while others wait.
	turnTime = 15 * time.Second

	// replayAgain is how soon after one a client that falls behind again is cut.
	replayAgain = 10 * time.Second

	// lookEvery is after how many events a mapping looks whether the line goes on from
	// where it is.
	lookEvery = 64
)

// A replay maps a run for one client, from the first kept event. After an error of put
// it can go on: nothing is lost.
type replay struct {
	m     *mapping
	merge workflow.Merger
	pos   uint64  // what is behind it is wanted
	queue []entry // to be put
	n     int     // events since the last look

	put  func(*entry) error
	look func(last uint64) (stop bool, err error) // last is how far everything is put
}

func (r *Relay) newReplay(ref bus.Ref, id workflow.ID, pos uint64) *replay {
	return &replay{m: r.newMapping(ref.Tenant, id), merge: workflow.Merger{Off: r.cfg.Unmerged}, pos: pos}
}

// run puts what is behind pos, in order, until the bus has no more or look says stop.
func (p *replay) run(ctx context.Context, b reader, ref bus.Ref) error {
	if err := p.drain(); err != nil {
		return err
	}
	for {
		before := p.m.head
		for e, err := range b.History(ctx, ref, p.m.behind()) {
			if err != nil {
				return errors.Join(err, p.flush())
			}
			items, err := p.m.add(e)
			if perr := p.items(items); perr != nil {
				return perr
			}
			if err != nil {
				return cmp.Or(p.flush(), errMapping)
			}
			if p.n++; p.n%lookEvery == 0 {
				if stop, err := p.look(p.m.last); err != nil || stop {
					return errors.Join(err, p.flush())
				}
			}
		}
		if err := p.flush(); err != nil {
			return err
		}
		if stop, err := p.look(p.m.last); err != nil || stop || p.m.head == before {
			return err
		}
	}
}

// errMapping is returned where the protocol cannot number what a frame says.
var errMapping = errors.New("frame has too many envelopes")

func (p *replay) items(items []item) error {
	for _, it := range items {
		switch {
		case it.pos <= p.pos:
		case it.hole:
			p.add(p.merge.Flush())
			p.queue = append(p.queue, entry{last: it.pos, hole: true})
		default:
			p.add(p.merge.Add(it.env))
		}
	}
	return p.drain()
}

func (p *replay) add(list []workflow.Merged) {
	for _, m := range list {
		p.queue = append(p.queue, newEntry(m))
	}
}

func (p *replay) flush() error {
	p.add(p.merge.Flush())
	return p.drain()
}

func (p *replay) drain() error {
	for len(p.queue) > 0 {
		if err := p.put(&p.queue[0]); err != nil {
			return err
		}
		p.queue = p.queue[1:]
	}
	p.queue = nil
	return nil
}

// turn waits for one of the few turns to map alone. The caller gives it back.
func (s *watcher) turn(ctx, bg context.Context) error {
	g := s.r.lines
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	for {
		more, got, err := s.wait(ctx, bg, s.r.cfg.Heartbeat, g.turns)
		switch {
		case got:
			return nil
		case !more:
			return errors.Join(errStopped, err)
		}
	}
}

// errStopped ends the replay of a client that is not there any more.
var errStopped = errors.New("nobody to go on for")

// replay sends what is behind the cursor up to where the line goes on. Who takes
// longer than [turnTime] to read that while others wait is cut, and comes back with
// its cursor.
func (s *watcher) replay(ctx, bg context.Context) error {
	if err := s.turn(ctx, bg); err != nil {
		return err
	}
	g := s.r.lines
	defer func() { g.turns <- struct{}{} }()
	var reading time.Duration
	for failed := 0; ; failed++ {
		p := s.r.newReplay(s.ref, s.line.id, s.pos)
		p.put = func(e *entry) error {
			began := time.Now()
			defer func() { reading += time.Since(began) }()
			return s.put(e, s.line.standing())
		}
		p.look = func(last uint64) (bool, error) {
			switch {
			case s.place.cut.Load():
				return true, errors.Join(errNoBytes, errRelay)
			case g.waiting.Load() > 0 && reading > turnTime:
				return true, errors.Join(errNoBytes, errTurn)
			}
			return s.line.holds(last), nil
		}
		err := p.run(ctx, s.r.past, s.ref)
		switch {
		case err == nil, errors.Is(err, errMapping): // the line says of the latter
			if err = s.flush(); err != nil || s.place.attach(s.pos) {
				return err
			}
		case errors.Is(err, errNoBytes) || ctx.Err() != nil:
			return errors.Join(err, s.flush())
		}
		// The bus is away, or the line went on without us.
		if more, _, err := s.wait(ctx, bg, min(retryMax, 20*time.Millisecond<<min(failed, 10)), nil); !more {
			return errors.Join(errStopped, err)
		}
	}
}

var errTurn = errors.New("others wait for their turn")

// holds reports whether the line goes on from position pos.
func (l *line) holds(pos uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return pos >= l.evicted
}
