package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An Event is one event of a run's stream.
type Event struct {
	// Seq is the event's number within its run, and the cursor behind it. It is 0
	// for what the relay says about the stream or the edge: gap, reset, lost,
	// resumed, and the facts of commands that no edge could write.
	Seq  uint64
	Name string          // life, msg, task, end, ask, cmd, raw, or one of those
	Data json.RawMessage // a CloudEvent; a [Gap] for gap and reset
}

// A Gap says that events are not kept (gap) or that the cursor was not of this run's
// events (reset). What is kept follows.
type Gap struct {
	Asked  uint64 `json:"asked"`  // the cursor
	First  uint64 `json:"first"`  // the event that follows, 0 without one
	Last   uint64 `json:"last"`   // the run's last event at that time
	Reason string `json:"reason"` // not_kept, beyond_head
}

const (
	idleDefault = 45 * time.Second

	// waitMax bounds the pause between attempts, waitFirst is the first one.
	waitFirst, waitMax = 250 * time.Millisecond, 10 * time.Second

	nameReset, nameLost, nameResumed = "reset", "lost", "resumed"
)

// Follow calls fn with the events of a run behind the number after (0 is from the
// beginning), in order and each once, and goes on over lost connections and
// restarted relays. It returns nil when the run has ended and everything was told,
// fn's error, the cause of ctx, or an [*Error] where the relay refuses for good.
//
// A hole in the numbers is always preceded by a gap or reset. A run whose edge is
// gone is told once as lost, and waited for: its edge may still speak, and fn may
// return an error to stop.
func (c *Client) Follow(ctx context.Context, run string, after uint64, fn func(Event) error) error {
	f := follower{c: c, path: "/v1/runs/" + url.PathEscape(run) + "/stream", pos: after, fn: fn}
	for wait := waitFirst; ; {
		got, err := f.once(ctx)
		switch e := asError(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errEnd):
			return nil
		case f.stop != nil:
			return f.stop
		case e != nil && !e.Retryable:
			return e
		}
		pause := max(f.retry, wait)
		if wait = min(2*wait, waitMax); got {
			pause, wait = cmp.Or(f.retry, waitFirst), waitFirst
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errEnd says that the relay has nothing more for this cursor, ever.
var errEnd = errors.New("the run has ended")

type follower struct {
	c    *Client
	path string
	fn   func(Event) error

	pos   uint64
	retry time.Duration // the relay's wish
	lost  bool          // it was told
	stop  error         // of fn
}

// once reads one connection to its end. got says that it brought something.
func (f *follower) once(ctx context.Context) (got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q, err := f.c.request(ctx, http.MethodGet, f.path, nil)
	if err != nil {
		f.stop = err
		return false, err
	}
	q.Header.Set("Accept", "text/event-stream")
	q.Header.Set("Cache-Control", "no-store")
	if f.pos > 0 {
		q.Header.Set("Last-Event-ID", strconv.FormatUint(f.pos, 10))
	}
	idle := cmp.Or(f.c.Idle, idleDefault)
	silent := time.AfterFunc(idle, cancel) // a dead connection may look like a quiet run
	defer silent.Stop()
	r, err := f.c.http().Do(q)
	if err != nil {
		return false, err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusNoContent:
		return false, errEnd
	case r.StatusCode != http.StatusOK:
		data, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		return false, refusal(r.StatusCode, data)
	}
	p := parser{next: newLines(alive{r.Body, silent, idle})}
	for {
		e, err := p.event()
		f.retry = p.retry
		if err != nil {
			return got, err
		}
		got = true
		if f.stop = f.take(e); f.stop != nil {
			return got, f.stop
		}
	}
}

// take gives fn what it has not had.
func (f *follower) take(e message) error {
	out := Event{Name: e.name, Data: e.data}
	if e.id != "" {
		seq, err := strconv.ParseUint(e.id, 10, 64)
		if err != nil {
			return fmt.Errorf("the stream has an event with the id %q", e.id)
		}
		if seq <= f.pos {
			return nil // told before
		}
		out.Seq = seq
	}
	switch e.name {
	case nameLost:
		if f.lost {
			return nil
		}
		f.lost = true
	case nameResumed:
		f.lost = false
	case nameReset:
		f.pos = 0
	}
	if err := f.fn(out); err != nil {
		return err
	}
	f.pos = max(f.pos, out.Seq)
	return nil
}

// alive puts a timer off whenever something is read.
type alive struct {
	io.Reader
	timer *time.Timer
	d     time.Duration
}

func (a alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.timer.Reset(a.d)
	}
	return n, err
}

// A message is a server-sent event as it stands in the stream.
type message struct {
	id, name string
	data     []byte
}

// A parser reads server-sent events (WHATWG HTML, 9.2).
type parser struct {
	next  func() ([]byte, error)
	retry time.Duration
}

func (p *parser) event() (message, error) {
	m := message{}
	for {
		line, err := p.next()
		if err != nil {
			return m, err // what was begun is not told
		}
		if len(line) == 0 {
			if m.data == nil {
				m = message{}
				continue
			}
			m.data = m.data[:len(m.data)-1]
			return m, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			m.name = string(value)
		case "id":
			m.id = string(value)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				p.retry = time.Duration(ms) * time.Millisecond
			}
		case "data":
			if len(m.data)+len(value) > maxEvent {
				return m, errTooLong
			}
			m.data = append(append(m.data, value...), '\n')
		}
	}
}
