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

// maxUnknown bounds the tasks that an exit names; the fold closes all of them.
const maxUnknown = 64

// A recorder turns what passes into numbered events in the spool, and folds
// them. Its methods are safe for concurrent use: the goroutine that reads the
// tap and those that take commands both record.
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
	hidden map[string]string // ids that hold a secret or are too long, as published
	folded uint64            // events given to state
	main   string            // the main session that was last named by a fact
	counts counts
	lost   event.Gap // not yet told by a gap event
	gone   event.Gap // all of this run
	inEOF  bool      // the parent writes nothing more
	blind  bool      // output is missing from what state was given
	closed bool      // the last event is recorded
	evs    []event.Event
	meta   []byte // scratch, as evs and recs are
	recs   []spool.Record
	batch  batch
	watch  func(line) // sees every recorded line, under mu
	// busy reports whether watch may act on the next line: then lines are
	// committed one by one. nil is never.
	busy func() bool
	// auto says how an ask is decided at once, "" where it is not; nil is never.
	auto func(*dialect.Class, []byte) string
	// Each is told of each recorded line: for the registry, for who waits for the
	// run to fall idle, and for the watchdog.
	changed, active, watched chan struct{}
	shown                    chan struct{} // the same for who looks on; nil where nobody does
	named                    chan struct{} // told of each new main session
}

type counts struct {
	frames, bytes event.StreamCounts
	oversize      int64
}

// line is one recorded line, as the gate and the commander see it.
type line struct {
	stream event.Stream
	class  dialect.Class
	data   []byte // as the child wrote it; valid during the call

	injected bool // it is ours
	eof      bool // no line, but the end of the parent's
}

// splitters returns one frame.Splitter a stream that records what it cuts. at
// is read for each frame: the time of the chunk being written. They are to be
// used within chunk.
func (r *recorder) splitters(at *time.Time, injected *bool) map[child.Stream]*frame.Splitter {
	m := map[child.Stream]*frame.Splitter{}
	for _, s := range []child.Stream{child.Out, child.Err, child.In} {
		stream := event.Stream(s)
		m[s] = frame.New(0, func(f frame.Frame) {
			if f.Gap > 0 {
				r.flush(*at, stream) // of a long line that the hole cut
				r.gap(*at, event.Gap{Frames: max(1, f.GapLines), Bytes: f.Gap, Reason: "tap_full", FromStream: string(stream)})
				return
			}
			r.frame(*at, stream, f, *injected)
		})
	}
	return m
}

// frame records one line of the child or of its parent, within chunk.
func (r *recorder) frame(at time.Time, stream event.Stream, f frame.Frame, injected bool) {
	r.count(stream, f)
	// A piece of a line too long to be a frame is none, whatever it looks like.
	more := f.Cut && len(f.Data) >= frame.Max
	seen := f.Data
	if more || f.Cont {
		seen = nil
	}
	cls := r.track.Classify(stream, seen, !f.Whole())
	if stream == event.In && !r.stdinLine(at, f, cls, injected) {
		r.commit()
		r.after(at, line{stream: stream, class: cls, data: f.Data, injected: injected}, r.track.Main())
		return
	}
	// What may be the beginning of a secret at a piece's end comes out with the
	// next piece.
	masked := r.red.Frame(stream, f.Data, more)
	if len(masked.Data) == 0 && len(f.Data) > 0 {
		return
	}
	w := r.batch.next()
	e := &w.ev
	*e = event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: cls.Type, Kind: cls.Kind, Stream: stream,
		Session: cls.Session, Task: cls.Task, Parent: cls.Parent, TraceParent: cls.TraceParent,
		ContentType: cls.ContentType, Cut: f.Cut, Data: masked.Data,
		Redacted: masked.Spans, RawLen: masked.RawLen, RawHash: masked.RawHash,
	}
	r.identify(e, len(masked.Spans) > 0)
	if injected {
		note(e, "origin", "cbcast")
	}
	if cls.Ambiguous {
		note(e, "ambiguous", "true")
	}
	if cls.Ask != "" {
		note(e, "ask", cls.Ask)
		if d := r.auto; d != nil && stream == event.Out {
			if how := d(&cls, f.Data); how != "" {
				note(e, "auto", how)
			}
		}
	}
	w.frame, w.main = *r.track.Frame(), r.track.Main()
	w.line = line{stream: stream, class: cls, data: f.Data, injected: injected}
	r.collected(&f, w)
}

func note(e *event.Event, name, value string) {
	if e.Ext == nil {
		e.Ext = map[string]string{}
	}
	e.Ext[name] = value
}

// flush records what the redactor held back of a long line that did not go on,
// within chunk.
func (r *recorder) flush(at time.Time, stream event.Stream) {
	if rest, ok := r.red.Flush(stream); ok {
		r.piece(at, stream, rest)
	}
}

// piece records bytes that are no line of their own: what follows on the stream
// goes on behind them.
func (r *recorder) piece(at time.Time, stream event.Stream, masked redact.Result) {
	if len(masked.Data) == 0 {
		return
	}
	r.commit()
	cls := r.track.Classify(stream, nil, true)
	r.append(&event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: cls.Type, Kind: event.Raw, Stream: stream, Session: cls.Session,
		Cut: true, Data: masked.Data, Redacted: masked.Spans, RawLen: masked.RawLen, RawHash: masked.RawHash,
	}, nil, false)
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

// stdinEnded notes that the parent writes nothing more, within chunk.
func (r *recorder) stdinEnded(at time.Time) {
	r.commit()
	r.inEOF = true
	r.after(at, line{stream: event.In, eof: true}, r.track.Main())
}

// idle reports whether nothing is open that will tell its end, and the parent
// has ended its side. Where output is missing nobody can know: then a child that
// was given the EOF ends what it does by itself, one that was not may wait for
// ever.
func (r *recorder) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inEOF && (r.blind || r.state.Idle())
}

// append gives e its number (several, when it is split), keeps it and folds it.
// Where there is no room the event is counted as lost, and the loss is told in
// front of the next event that fits: the child never waits. reserved events may
// use the room that is left for last words. f is as for fold.
func (r *recorder) append(e *event.Event, f *dialect.Frame, reserved bool) bool {
	r.evs = r.evs[:0]
	told := r.lost
	if told.Frames > 0 {
		r.evs = append(r.evs, r.factEvent(e.Time, event.TypeGap, event.Life, told))
	}
	own := len(r.evs)
	r.pieces(e)
	defer func() { clear(r.evs) }()
	_, err := r.spool.AppendAll(r.records(r.evs))
	if err == nil {
		r.lost = event.Gap{}
	} else if r.evs = r.evs[own:]; reserved && len(r.evs) == 1 {
		rec := r.records(r.evs)[0]
		_, err = r.spool.AppendReserved(rec.Meta, rec.Data)
	}
	if err != nil {
		r.lose(e, err)
		r.evs = append(r.evs[:0], *e)
	}
	for i := range r.evs {
		r.fold(&r.evs[i], f)
	}
	return err == nil
}

// pieces adds e to evs, split where it is too large for one event.
func (r *recorder) pieces(e *event.Event) {
	parts := event.Split(e.Data, chunkSize)
	for i, p := range parts {
		ev := *e
		ev.Data = p
		if i > 0 {
			ev.Redacted, ev.RawLen, ev.RawHash = nil, 0, ""
		}
		if len(parts) > 1 {
			ev.Chunk = event.Part{I: i + 1, N: len(parts)}
			ev.Cut = e.Cut && i == len(parts)-1
		}
		r.evs = append(r.evs, ev)
	}
}

func (r *recorder) records(evs []event.Event) []spool.Record {
	r.recs, r.meta = r.recs[:0], r.meta[:0]
	for i := range evs {
		r.record(&evs[i])
	}
	return r.recs
}

// close completes x with what was counted, records it as the last event and ends
// the spool.
func (r *recorder) close(x event.Exited, whole bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.lost.Frames > 0 {
		g := r.lost
		r.lost = event.Gap{}
		r.factLocked(now, event.TypeGap, event.Life, g, true)
	}
	// What the child never said the end of, so that no reader waits for it.
	x.Unknown = r.state.OpenTasks()
	x.Unknown = x.Unknown[:min(len(x.Unknown), maxUnknown)]
	x.Frames, x.Bytes, x.Oversize, x.Masked = r.counts.frames, r.counts.bytes, r.counts.oversize, r.red.Counts()
	x.Complete = whole && r.gone.Bytes+r.gone.Frames == 0
	if r.gone.Frames+r.gone.Bytes > 0 {
		g := r.gone
		x.Gap = &g
	}
	var err error
	if !r.factLocked(now, event.TypeExited, event.Life, x, true) {
		err = errors.New("no room for the exit event; a flush will write one")
	}
	r.closed = true
	if err != nil {
		return err
	}
	return r.spool.End()
}

// fact records something that the edge states itself.
func (r *recorder) fact(typ string, kind event.Kind, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.factLocked(time.Now(), typ, kind, data, kind == event.Life)
}

// started records the run's first event, within the CI's own span where it has one.
func (r *recorder) started(s event.Started, traceParent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commit()
	e := r.factEvent(time.Now(), event.TypeStarted, event.Life, s)
	e.TraceParent = traceParent
	r.append(&e, nil, true)
}

func (r *recorder) factLocked(at time.Time, typ string, kind event.Kind, data any, reserved bool) bool {
	r.commit() // it is of what came before
	e := r.factEvent(at, typ, kind, data)
	return r.append(&e, nil, reserved)
}

// factEvent makes a fact's event. Words of the child or of its host may stand in a
// fact, and are masked in it as in their own lines.
func (r *recorder) factEvent(at time.Time, typ string, kind event.Kind, data any) event.Event {
	masked := r.red.Frame(event.Edge, mustJSON(data), false)
	return event.Event{
		Tenant: r.tenant, Run: r.run, Time: at, Type: typ, Kind: kind, Stream: event.Edge,
		Session: r.published(r.main, false), ContentType: event.JSON, Data: masked.Data,
		Redacted: masked.Spans, RawLen: masked.RawLen, RawHash: masked.RawHash,
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // our own structs always marshal
		panic(fmt.Sprintf("marshal %T: %v", v, err))
	}
	return b
}
