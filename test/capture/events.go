package capture

import (
	"encoding/json"
	"path"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Start is when a recording's events begin.
var Start = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

// Events returns the events of a recording as an edge makes them that wrapped the
// child: the facts started, session and exited, every line of stdout and stderr,
// the control lines of stdin, and an input fact for each message on stdin. Frames
// are not split and nothing is masked. A SIGKILL came from nobody that the edge
// knows, unless the recording program gave up on the child, as a driving edge does.
func Events(c *Capture, tenant, run string) []*event.Event {
	b := builder{tenant: tenant, run: run, dialect: dialect.FromArgv0(path.Base(c.Argv[0]))}
	b.track = dialect.NewTracker(b.dialect)
	out := dialect.OutputOf(c.Argv)
	b.track.SetOutput(out)
	started := event.Started{Argv: c.Argv, Dialect: string(b.dialect), Version: "test"}
	if out == dialect.OutputJSON || out == dialect.OutputText {
		started.Output = string(out)
	}
	b.fact(event.TypeStarted, event.Life, started)
	x := event.Exited{Complete: true, Signal: c.Signal}
	for _, e := range c.Timeline {
		b.at = Start.Add(e.At)
		switch e.Dir {
		case In, Out, Err:
			b.line(e)
		case Signal:
			if name := string(e.Data); name != "SIGKILL" {
				x.Forwarded = append(x.Forwarded, event.Signal{Signal: name, Time: b.at, From: "parent"})
			}
		case Exit:
			x.DurationMS = e.At.Milliseconds()
		case InEOF:
			x.StdinEOF = true
		}
	}
	code := c.Code
	if c.Killed {
		x.Ended = "kill_after_result"
		x.Forwarded = append(x.Forwarded, event.Signal{Signal: c.Signal, Time: b.at, From: "cbcast"})
	}
	if c.Signal != "" {
		code = 128 + map[string]int{"SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGUSR1": 10, "SIGTERM": 15}[c.Signal]
	}
	x.Code = &code
	b.fact(event.TypeExited, event.Life, x)
	return b.events
}

type builder struct {
	tenant, run string
	dialect     dialect.Name
	track       *dialect.Tracker
	main        string
	at          time.Time
	events      []*event.Event
}

func (b *builder) add(e event.Event) {
	if b.at.IsZero() {
		b.at = Start
	}
	e.Tenant, e.Run, e.Time, e.Seq = b.tenant, b.run, b.at, uint64(len(b.events)+1)
	b.events = append(b.events, &e)
}

func (b *builder) fact(typ string, kind event.Kind, data any) {
	d, err := json.Marshal(data)
	if err != nil {
		panic(err) // our own structs always marshal
	}
	b.add(event.Event{Type: typ, Kind: kind, Stream: event.Edge, Session: b.main, ContentType: event.JSON, Data: d})
}

func (b *builder) line(e Entry) {
	stream := event.Stream(e.Dir)
	c := b.track.Classify(stream, e.Data, e.Cut)
	if stream == event.In && !b.recorded(e, c) {
		return
	}
	b.add(event.Event{
		Type: c.Type, Kind: c.Kind, Stream: stream, Session: c.Session, Task: c.Task, Parent: c.Parent,
		TraceParent: c.TraceParent, ContentType: c.ContentType, Cut: e.Cut, Data: e.Data,
	})
	if m := b.track.Main(); m != b.main {
		prev := b.main
		b.main = m
		b.fact(event.TypeSession, event.Life, event.Session{Session: m, Previous: prev})
	}
}

// recorded reports whether a line of stdin is recorded as it is; a message
// becomes a fact.
func (b *builder) recorded(e Entry, c dialect.Class) bool {
	if !c.Frame {
		return false
	}
	in := b.track.Input()
	if in.Control {
		return true
	}
	b.fact(event.TypeInput, event.Msg, event.Input{Bytes: len(e.Data), Type: in.Type, UUID: in.UUID, Session: in.Session, Request: in.Request})
	return false
}
