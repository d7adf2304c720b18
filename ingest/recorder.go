package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/frame"
	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// chunkSize is the most bytes of a frame that one event carries. It keeps a
// message far below the server's default limit of 1 MiB, headers included.
const chunkSize = 256 << 10

// A recorder turns what passes into numbered events in the spool, and folds
// them. Its methods are safe for concurrent use: the goroutine that reads the
// tap and the one that takes commands both record.
type recorder struct {
	log      *slog.Logger
	tenant   string
	run      string
	spool    *spool.Spool
	allStdin bool // prompts are captured, too

	controlled atomic.Bool // the host has sent a control_request

	mu     sync.Mutex // guards everything below; held while one line is recorded
	red    *redact.Redactor
	track  *dialect.Tracker
	state  *run.State
	main   string // the main session that was last named by a fact
	counts counts
	lost   event.Gap // not yet told by a gap event
	gone   event.Gap // all of this run
	meta   []byte    // scratch
	recs   []spool.Record
	watch  func(line) // sees every recorded line, under mu
	// Each is told of each recorded line: for the registry, for who waits for the
	// run to fall idle, and for the watchdog.
	changed, active, watched chan struct{}
}

type counts struct {
	frames, bytes event.StreamCounts
	oversize      int64
}

// line is one recorded line, as the commander sees it.
type line struct {
	stream event.Stream
	class  dialect.Class
	data   []byte // as the child wrote it; valid during the call
}

// splitters returns one frame.Splitter a stream that records what it cuts. at
// is read for each frame: the time of the chunk being written.
func (r *recorder) splitters(at *time.Time, injected *bool) map[child.Stream]*frame.Splitter {
	m := map[child.Stream]*frame.Splitter{}
	for _, s := range []child.Stream{child.Out, child.Err, child.In} {
		stream := event.Stream(s)
		m[s] = frame.New(0, func(f frame.Frame) {
			if f.Gap > 0 {
				r.gap(*at, event.Gap{Frames: f.GapLines, Bytes: f.Gap, Reason: "tap_full", FromStream: string(stream)})
				return
			}
			r.frame(*at, stream, f, *injected)
		})
	}
	return m
}

// frame records one line of the child or of its parent.
func (r *recorder) frame(at time.Time, stream event.Stream, f frame.Frame, injected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(stream, f)
	whole := f.Whole()
	cls := r.track.Classify(stream, f.Data, !whole)
	if stream == event.In && !r.stdinLine(at, f, cls, injected) {
		r.after(at, stream, cls, f.Data)
		return
	}
	// A piece of a line too long to be a frame: what may be the beginning of a
	// secret at its end comes out with the next piece.
	masked := r.red.Frame(stream, f.Data, f.Cut && len(f.Data) >= frame.Max)
	if len(masked.Data) == 0 && len(f.Data) > 0 {
		return
	}
	e := event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: cls.Type, Kind: cls.Kind, Stream: stream,
		Session: cls.Session, Task: cls.Task, Parent: cls.Parent, TraceParent: cls.TraceParent,
		ContentType: cls.ContentType, Cut: f.Cut, Data: masked.Data,
	}
	e.Redacted, e.RawLen, e.RawHash = masked.Spans, masked.RawLen, masked.RawHash
	if injected {
		e.Ext = map[string]string{"origin": "cbcast"}
	}
	if cls.Ambiguous {
		e.Ext = map[string]string{"ambiguous": "true"}
	}
	r.append(&e, false)
	r.after(at, stream, cls, f.Data)
}

// flush records what the redactor held back of a long line that did not go on.
func (r *recorder) flush(at time.Time, stream event.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest, ok := r.red.Flush(stream)
	if !ok || len(rest.Data) == 0 {
		return
	}
	cls := r.track.Classify(stream, rest.Data, true)
	r.append(&event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: cls.Type, Kind: event.Raw, Stream: stream, Session: cls.Session,
		Cut: true, Data: rest.Data, Redacted: rest.Spans, RawLen: rest.RawLen, RawHash: rest.RawHash,
	}, false)
}

func (r *recorder) count(stream event.Stream, f frame.Frame) {
	n := int64(len(f.Data))
	if !f.Cut {
		n++
	}
	add := func(c *event.StreamCounts, v int64) {
		switch stream {
		case event.Out:
			c.Out += v
		case event.Err:
			c.Err += v
		default:
			c.In += v
		}
	}
	add(&r.counts.bytes, n)
	if !f.Cont {
		add(&r.counts.frames, 1)
	}
	if len(f.Data) > chunkSize {
		r.counts.oversize++
	}
}

// after tells the commander about a line and names the main session when it
// became known or changed.
func (r *recorder) after(at time.Time, stream event.Stream, cls dialect.Class, data []byte) {
	if m := r.track.Main(); m != r.main {
		prev := r.main
		r.main = m
		r.factLocked(at, event.TypeSession, event.Life, event.Session{Session: m, Previous: prev}, false)
	}
	if r.watch != nil {
		r.watch(line{stream, cls, data})
	}
	for _, c := range [...]chan struct{}{r.changed, r.active, r.watched} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// append gives e its number (several, when it is split) and keeps it. When there
// is no room the event is counted as lost and the loss is told as soon as there
// is room again: the child never waits.
func (r *recorder) append(e *event.Event, reserved bool) {
	if !reserved && r.lost.Bytes+r.lost.Frames > 0 && !r.tellLost(e.Time) {
		r.lose(e)
		return
	}
	pieces := event.Split(e.Data, chunkSize)
	r.recs = r.recs[:0]
	r.meta = r.meta[:0]
	first, rest := *e, *e
	rest.Redacted, rest.RawLen, rest.RawHash = nil, 0, ""
	for i, p := range pieces {
		ev := &rest
		if i == 0 {
			ev = &first
		}
		if len(pieces) > 1 {
			ev.Chunk = event.Part{I: i + 1, N: len(pieces)}
			ev.Cut = e.Cut && i == len(pieces)-1
		}
		from := len(r.meta)
		r.meta = event.AppendMeta(r.meta, ev)
		r.recs = append(r.recs, spool.Record{Meta: r.meta[from:len(r.meta):len(r.meta)], Data: p})
	}
	var seq uint64
	var err error
	if reserved {
		seq, err = r.spool.AppendReserved(r.recs[0].Meta, r.recs[0].Data)
	} else {
		seq, err = r.spool.AppendAll(r.recs)
	}
	if err != nil {
		if !errors.Is(err, spool.ErrFull) {
			r.log.Error("spool refused an event", "run", r.run, "type", e.Type, "error", err)
		}
		r.lose(e)
		return
	}
	for i, p := range pieces {
		ev := rest
		if i == 0 {
			ev = first
		}
		if len(pieces) > 1 {
			ev.Chunk = event.Part{I: i + 1, N: len(pieces)}
			ev.Cut = e.Cut && i == len(pieces)-1
		}
		ev.Seq, ev.Data = seq+uint64(i), p
		r.state.Apply(&ev)
	}
}

func (r *recorder) lose(e *event.Event) {
	if e.Stream == event.Edge {
		return
	}
	if r.lost.Reason == "" {
		r.log.Warn("spool is full; events are counted, not kept", "run", r.run)
	}
	r.lost.Frames++
	r.lost.Bytes += int64(len(e.Data))
	r.lost.Reason = "spool_full"
}

// gap records that bytes of the child are on no event.
func (r *recorder) gap(at time.Time, g event.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gapLocked(at, g)
}

func (r *recorder) gapLocked(at time.Time, g event.Gap) bool {
	r.gone.Frames += g.Frames
	r.gone.Bytes += g.Bytes
	r.gone.Reason = g.Reason
	return r.factLocked(at, event.TypeGap, event.Life, g, true)
}

// tellLost writes the gap event for what was lost, and reports whether it could.
func (r *recorder) tellLost(at time.Time) bool {
	g := r.lost
	before := r.spool.Last()
	r.lost = event.Gap{}
	if r.gapLocked(at, g); r.spool.Last() == before {
		r.lost = g
		r.gone.Frames -= g.Frames
		r.gone.Bytes -= g.Bytes
		return false
	}
	return true
}

// fact records something that the edge states itself.
func (r *recorder) fact(typ string, kind event.Kind, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.factLocked(time.Now(), typ, kind, data, kind == event.Life)
}

func (r *recorder) factLocked(at time.Time, typ string, kind event.Kind, data any, reserved bool) bool {
	b, err := json.Marshal(data)
	if err != nil { // our own structs always marshal
		panic(fmt.Sprintf("marshal %s: %v", typ, err))
	}
	before := r.spool.Last()
	r.append(&event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: typ, Kind: kind, Stream: event.Edge,
		Session: r.main, ContentType: event.JSON, Data: b,
	}, reserved)
	return r.spool.Last() != before
}
