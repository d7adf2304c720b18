package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/frame"
	"github.com/cbcast/cbcast/internal/event"
)

// take records what passes, until the run is over. While there is a child it
// yields to the copy; what is left when the child has ended is recorded with all
// there is, for the host waits for our exit.
func (e *edge) take(p *child.Process, late *lateness) {
	t := e.taker(p.Tap(), late.hurry)
	ctx, gone := context.WithCancel(context.Background())
	go func() { // ends with the child, which Run waits for
		<-p.Exited()
		gone()
	}()
	background(func() { t.run(ctx) })
	t.run(context.Background())
	t.close()
}

// A taker records what one tap gives.
type taker struct {
	e     *edge
	tap   *child.Tap
	hurry <-chan struct{} // closed when no time is left; may be nil

	at       time.Time
	injected bool
	cut      map[child.Stream]*frame.Splitter
	// ours is for lines of ours: they stand between lines of the parent, so that
	// a half line of the parent is not taken for their start.
	ours *frame.Splitter
	// whole says that a stream is recorded read by read, not line by line.
	whole map[child.Stream]bool
}

func (e *edge) taker(tap *child.Tap, hurry <-chan struct{}) *taker {
	t := &taker{e: e, tap: tap, hurry: hurry, whole: map[child.Stream]bool{}}
	t.cut = e.rec.splitters(&t.at, &t.injected)
	t.ours = e.rec.splitters(&t.at, &t.injected)[child.In]
	return t
}

// run reads the tap until it ends or ctx does.
func (t *taker) run(ctx context.Context) {
	for {
		c, err := t.tap.Next(ctx)
		switch {
		case err == nil:
			t.chunk(c)
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return
		default:
			t.e.log.Error("read the tap", "error", err)
			return
		}
	}
}

// chunk records what one read gave: its lines are kept when it returns, with as
// few writes as may be.
func (t *taker) chunk(c child.Chunk) {
	t.e.rec.chunk(func() { t.split(c) })
}

func (t *taker) split(c child.Chunk) {
	t.at, t.injected = c.At, c.Injected
	s := t.cut[c.Stream]
	if c.Injected {
		s = t.ours
	}
	if c.Dropped > 0 {
		s.Drop(c.Dropped, c.DroppedLines)
	}
	if t.pressed(c) {
		t.e.rec.whole(t.at, event.Stream(c.Stream), c.Data)
	} else {
		_, _ = s.Write(c.Data)
	}
	if !c.EOF {
		return
	}
	s.Close()
	t.e.rec.flush(t.at, event.Stream(c.Stream))
	if c.Stream == child.In {
		t.e.rec.stdinEnded(t.at)
	}
}

// pressed reports whether output is to be kept as it was read: the host has told
// us to end while much of it is not recorded yet, and will soon kill us. Cutting
// it into lines takes most of the time; the bytes are the same.
func (t *taker) pressed(c child.Chunk) bool {
	if c.Stream == child.In {
		return false
	}
	if t.whole[c.Stream] {
		return true
	}
	select {
	case <-t.hurry:
		t.cut[c.Stream].Close()
		t.whole[c.Stream] = true
		return true
	default:
		return false
	}
}

// close ends the streams that had no EOF.
func (t *taker) close() {
	t.at, t.injected = time.Now(), false
	t.e.rec.chunk(func() {
		for name, s := range t.cut {
			s.Close()
			t.e.rec.flush(t.at, event.Stream(name))
		}
	})
}

// whole records what one read gave, several lines and parts of lines, as one
// event, within chunk. Its data and what follows on the stream are the child's
// bytes.
func (r *recorder) whole(at time.Time, stream event.Stream, data []byte) {
	if len(data) == 0 {
		return
	}
	r.count(stream, frame.Frame{Data: data, Cut: true, Cont: true})
	if lines := int64(bytes.Count(data, []byte{'\n'})); stream == event.Out {
		r.counts.frames.Out += lines
	} else {
		r.counts.frames.Err += lines
	}
	r.piece(at, stream, r.red.Frame(stream, data, true)) // a secret may lie across two reads
}

// hurryAfter is how long the rest may be recorded in full after a child that its
// host told to end. Hosts kill 2 to 5 s after TERM.
const hurryAfter = time.Second

// lateness is what the host wants when the child is gone.
type lateness struct {
	told  chan struct{} // closed when a signal came: nothing but our exit
	hurry chan struct{} // closed then, or a while after a child that was told to end
	end   chan struct{}
	wg    sync.WaitGroup
}

func lateSignal(p *child.Process) *lateness {
	l := &lateness{told: make(chan struct{}), hurry: make(chan struct{}), end: make(chan struct{})}
	l.wg.Go(func() { // ends with the signal, or by stop
		p.Wait() // until then signals are the child's
		var after <-chan time.Time
		if slices.ContainsFunc(p.Sent(), func(f child.Forwarded) bool { return ends(f.Signal) }) {
			t := time.NewTimer(hurryAfter)
			defer t.Stop()
			after = t.C
		}
		for hurried := false; ; {
			select {
			case <-after:
				hurried, after = true, nil
				close(l.hurry)
			case <-p.Late():
				close(l.told)
				if !hurried {
					close(l.hurry)
				}
				return
			case <-l.end:
				return
			}
		}
	})
	return l
}

// ends reports whether a signal asks for an end.
func ends(s syscall.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

func (l *lateness) stop() {
	close(l.end)
	l.wg.Wait()
}
