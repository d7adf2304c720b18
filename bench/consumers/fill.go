package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// fill publishes n events of runs, eight runs at a time.
func (l *lab) fill(ctx context.Context, n, runs, size int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ids := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends with ids
			for i := range ids {
				each := n / runs
				if i < n%runs {
					each++
				}
				src := &made{run: fmt.Sprintf("run-%06d", i), n: each, size: size, at: time.Now().UTC()}
				p := &bus.Publisher{Bus: l.bus, Ref: bus.Ref{Tenant: "acme", Run: src.run}, Source: src}
				if err := p.Run(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range runs {
		ids <- i
	}
	close(ids)
	wg.Wait()
	return context.Cause(ctx)
}

// A made run is a Source of events made up: a beginning, what an agent says and does, an end.
type made struct {
	run     string
	n, size int
	at      time.Time
}

func (m *made) Event(n uint64) (*event.Event, bool, error) {
	if n > uint64(m.n) {
		return nil, false, nil
	}
	e := &event.Event{
		Tenant: "acme", Run: m.run, Seq: n, Time: m.at.Add(time.Duration(n) * time.Millisecond), Type: "dev.cbcast.claude.assistant",
		Kind: event.Msg, Stream: event.Out, Session: session, ContentType: event.JSON,
	}
	switch {
	case n == 1:
		e.Type, e.Kind, e.Stream = event.TypeStarted, event.Life, event.Edge
		e.Data = []byte(`{"argv":["claude","-p"],"dialect":"claude","version":"bench"}`)
	case n == uint64(m.n):
		e.Type, e.Kind, e.Stream = event.TypeExited, event.Life, event.Edge
		e.Data = []byte(`{"code":0,"complete":true,"duration_ms":1000}`)
	case n == 2:
		e.Type = "dev.cbcast.claude.system.init"
		e.Data = []byte(`{"type":"system","subtype":"init","session_id":"` + session + `","model":"m-1","cwd":"/w","tools":["Bash"]}`)
	case n == uint64(m.n)-1:
		e.Type, e.Kind = "dev.cbcast.claude.result.success", event.End
		e.Data = []byte(`{"type":"result","subtype":"success","is_error":false,"session_id":"` + session + `","num_turns":1,"total_cost_usd":0.01,"result":"done"}`)
	default:
		e.Data = fmt.Appendf(nil, `{"type":"assistant","message":{"id":"msg_%08d","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"%s"}],`+
			`"usage":{"input_tokens":3,"output_tokens":7}},"parent_tool_use_id":null,"session_id":"%s","uuid":"%08d-0000-4000-8000-%012d"}`,
			n, m.text(n), session, n, n)
	}
	return e, true, nil
}

const session = "00000000-0000-4000-8000-000000000001"

// text fills an event up to its size, no two alike.
func (m *made) text(n uint64) string {
	const frame = 330
	var b strings.Builder
	for i := 0; b.Len() < m.size-frame; i++ {
		fmt.Fprintf(&b, "line %d of %s: the %dth fox jumps over it. ", i, m.run, n*31+uint64(i)*7)
	}
	return b.String()[:max(0, m.size-frame)]
}

func (m *made) Wait(_ context.Context, n uint64) error {
	if n > uint64(m.n) {
		return bus.ErrDone
	}
	return nil
}
func (m *made) Acked(uint64) {}
