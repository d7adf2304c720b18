package relay

import (
	"errors"
	"sync/atomic"
	"time"
)

// A pen writes a stream to its client, a part at a time and each under a new
// deadline: a long frame may take a slow client a while, a stalled one may not. What is
// cut, busy and kick is for any goroutine; the rest is the client's.
type pen struct {
	r    *Relay
	out  outlet
	buf  []byte       // written by the next flush
	beat time.Time    // of the next heartbeat
	cut  atomic.Bool  // no write may follow
	busy atomic.Int64 // when the write that is under way began, Unix nanoseconds; 0 without one
}

// write returns when the connection has taken b. Only one call at a time.
func (p *pen) write(b []byte) error {
	defer p.busy.Store(0)
	for len(b) > 0 {
		part := b[:min(len(b), batchBytes)]
		b = b[len(part):]
		now := time.Now()
		p.out.deadline(now.Add(p.r.cfg.WriteTimeout))
		p.busy.Store(now.UnixNano())
		if p.cut.Load() {
			return errSlow
		}
		if err := p.out.write(part); err != nil {
			return errors.Join(errNoBytes, err)
		}
		p.r.met.sent(len(part))
	}
	p.beat = time.Now().Add(p.r.cfg.Heartbeat)
	return nil
}

// idleBuffer is what a silent client may keep: there are thousands of them.
const idleBuffer = 4 << 10

// flush writes what is held, through to the connection.
func (p *pen) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	err := p.write(p.buf)
	p.buf = p.buf[:0]
	if cap(p.buf) > idleBuffer {
		p.buf = nil
	}
	return err
}

// kick cuts the client. It does not block.
func (p *pen) kick() {
	p.cut.Store(true)
	p.out.kick()
}

// stallAfter is how long one write may take while more than a ring holds is
// waiting behind it. A client that only reads slowly finishes its writes.
const stallAfter = time.Second

func (p *pen) stuck() bool {
	since := p.busy.Load()
	return since != 0 && time.Now().UnixNano()-since > int64(stallAfter)
}
