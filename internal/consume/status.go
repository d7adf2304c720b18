package consume

import (
	"errors"
	"fmt"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A Status is how a consumer does.
type Status struct {
	Ready bool  // it reads, or stands by, and nothing is in its way
	Err   error // what is in its way
	// Standby says that another instance reads every log.
	Standby bool

	Lag         uint64    // messages stored and not handled, as the server counts
	Unacked     int       // given and not acked
	Redelivered uint64    // given again to this process
	Missed      uint64    // messages that retention took before they were read
	Rebuilt     uint64    // logs that were others than before
	Handled     uint64    // since the start
	Buried      uint64    // dead letters made since the start
	Dead        int       // dead letters on the disk
	Parked      int       // runs that are held up
	ParkedBytes int64     // of their entries
	Oldest      time.Time // when the oldest entry was stored that waits for its run; zero: none waits
	Logs        []LogStatus
}

// A LogStatus is how the reading of one log does.
type LogStatus struct {
	Log  bus.Log
	Read bus.Place // handled or parked
	bus.DurableStatus
}

// counts is what the loop tells.
type counts struct {
	running   bool
	commitErr error
	trouble   error
	held      error // why the run that waits longest is held up, where it is nobody's fault
	handled   uint64
	buried    uint64
	parked    int
	bytes     int64
	oldest    time.Time
	read      []bus.Place // as readers
}

func (c *Consumer) tell(fn func(*counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.st)
}

func (c *Consumer) setRunning(v bool) { c.tell(func(s *counts) { s.running = v }) }
func (c *Consumer) trouble(err error) { c.tell(func(s *counts) { s.trouble = err }) }
func (c *Consumer) buried()           { c.tell(func(s *counts) { s.buried++ }) }

func (c *Consumer) rebuilt(l bus.Log) { c.cfg.Log.Warn("log is read anew", "log", l) }

// report tells what the loop knows.
func (l *loop) report() {
	var oldest time.Time
	var held error
	for _, p := range l.parked {
		if t := p.entries[0].At.Time; oldest.IsZero() || t.Before(oldest) {
			oldest = t
			if held = nil; notItsFault(p.err) {
				held = p.err
			}
		}
	}
	l.c.tell(func(s *counts) {
		s.commitErr, s.held, s.parked, s.bytes, s.oldest = l.commitErr, held, len(l.parked), l.bytes, oldest
		s.handled = l.total
		if len(l.parked) == 0 {
			s.trouble = nil
		}
		s.read = s.read[:0]
		for _, r := range l.c.readers {
			s.read = append(s.read, r.read)
		}
	})
}

// Ready says why the consumer is not ready, nil when it is.
func (c *Consumer) Ready() error { return c.Status().Err }

// Status says how the consumer does. It asks nobody.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	n := c.st
	read := append([]bus.Place(nil), n.read...)
	c.mu.Unlock()
	st := Status{
		Handled: n.handled, Buried: n.buried, Parked: n.parked, ParkedBytes: n.bytes, Oldest: n.oldest,
		Dead: c.letters.Count(), Standby: true,
	}
	var all error
	if !n.running {
		all = errors.New("not running")
	}
	for i, r := range c.readers {
		if !n.running || r.src == nil {
			st.Standby = false
			break
		}
		d := r.src.Status()
		ls := LogStatus{Log: r.log, DurableStatus: d}
		if i < len(read) {
			ls.Read = read[i]
		}
		st.Logs = append(st.Logs, ls)
		st.Lag += d.Pending + uint64(d.Unacked)
		st.Unacked += d.Unacked
		st.Redelivered += d.Redelivered
		st.Rebuilt += d.Rebuilt
		st.Missed += d.Missed
		st.Standby = st.Standby && d.Standby
		if !d.Reading && !d.Standby {
			err := d.Err
			if err == nil {
				err = errors.New("not connected yet")
			}
			all = errors.Join(all, fmt.Errorf("%s: %w", r.log, err))
		}
	}
	if n.commitErr != nil {
		all = errors.Join(all, fmt.Errorf("commit: %w", n.commitErr))
	}
	st.Err = errors.Join(all, n.trouble, n.held)
	st.Ready = st.Err == nil
	return st
}
