//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A feed says where events go and how many.
type feed struct {
	Kind             string // nats, post, inside, centrifugo, mercure
	URL, Token       string
	Runs, Rate, Size int
}

const tenant = "bench"

func runName(n string) string { return "run-" + n }

// mark is what the load looks for in an event: when it was made, in Unix
// nanoseconds of 19 digits, and its number in its run, of 8.
const mark = `"fan":"`

// event makes event n of a run, its data with the time.
func (f feed) event(run int, n uint64) *event.Event {
	now := time.Now()
	b := make([]byte, 0, f.Size)
	b = fmt.Appendf(b, `{"type":"assistant",`+mark+`%019d/%08d","text":"`, now.UnixNano(), n)
	b = append(b, bytes.Repeat([]byte("x"), max(0, f.Size-len(b)-2))...)
	b = append(b, `"}`...)
	return &event.Event{
		Tenant: tenant, Run: runName(strconv.Itoa(run)), Seq: n, Time: now, Type: "dev.cbcast.claude.assistant", Kind: event.Msg,
		Stream: event.Out, Session: "5f0c7b1e-3a52-4c0f-9a55-0f5d6a1f2b3c", ContentType: event.JSON, Data: b,
	}
}

func cloudEvent(e *event.Event) []byte { return e.AppendJSON(make([]byte, 0, len(e.Data)+512)) }

// A pacer makes events at the rate of a feed, for its runs in turn.
type pacer struct {
	mu   sync.Mutex // held while it runs
	sent int
}

// run calls emit until ctx ends.
func (p *pacer) run(ctx context.Context, f feed, emit func(run int, n uint64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	begin, first := time.Now(), p.sent
	for {
		for due := first + int(time.Since(begin).Seconds()*float64(f.Rate)); p.sent < due; p.sent++ {
			emit(p.sent%f.Runs, uint64(p.sent/f.Runs)+1)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// publishRole makes events from "go" on until it is told anything else.
func publishRole(arg string) error {
	var f feed
	if err := json.Unmarshal([]byte(arg), &f); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var emit func(run int, n uint64)
	var err error
	var wg sync.WaitGroup
	switch f.Kind {
	case "nats":
		emit, err = f.edges(ctx, &wg)
	case "inside":
	default:
		emit = f.posts(ctx, &wg)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var p pacer
	pause := func() {}
	lines(func(order string) bool {
		pause()
		if order != "go" {
			return true
		}
		gctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		pause = func() { cancel(); <-done }
		go func() { // ends at the next order
			defer close(done)
			if emit != nil {
				p.run(gctx, f, emit)
				return
			}
			body, _ := json.Marshal(f)
			_ = f.post(gctx, f.URL, "application/json", body)
		}()
		return true
	})
	pause()
	stop()
	wg.Wait()
	return nil
}

// edges are one publisher a run, as edges have them, and their presence.
func (f feed) edges(ctx context.Context, wg *sync.WaitGroup) (func(int, uint64), error) {
	b, err := bus.Connect(ctx, bus.Config{URL: f.URL}, nil)
	if err != nil {
		return nil, err
	}
	sources := make([]*source, f.Runs)
	const ttl = 30 * time.Second
	for i := range sources {
		run := runName(strconv.Itoa(i))
		if err := b.RenewPresence(ctx, run, ttl); err != nil {
			return nil, err
		}
		if err := b.PutRun(ctx, bus.RunInfo{Run: run, Tenant: tenant, Dialect: "claude", State: "working", Started: time.Now()}); err != nil {
			return nil, err
		}
		sources[i] = &source{grown: make(chan struct{}, 1)}
		wg.Go(func() {
			p := bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: run}, Source: sources[i], Log: slog.New(slog.DiscardHandler)}
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				slog.Error("publish", "run", run, "error", err)
			}
		})
	}
	wg.Go(func() {
		for i := 0; ; i = (i + 1) % f.Runs {
			sleep(ctx, ttl/3/time.Duration(f.Runs))
			if ctx.Err() != nil {
				return
			}
			_ = b.RenewPresence(ctx, runName(strconv.Itoa(i)), ttl)
		}
	})
	return func(run int, n uint64) { sources[run].add(f.event(run, n)) }, nil
}

// A source is a run's spool, in memory.
type source struct {
	grown chan struct{} // capacity 1

	mu     sync.Mutex // guards events
	events []*event.Event
}

func (s *source) add(e *event.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	select {
	case s.grown <- struct{}{}:
	default:
	}
}

// Event implements [bus.Source].
func (s *source) Event(n uint64) (*event.Event, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > uint64(len(s.events)) {
		return nil, false, nil
	}
	return s.events[n-1], true, nil
}

// Wait implements [bus.Source].
func (s *source) Wait(ctx context.Context, n uint64) error {
	for {
		if _, ok, _ := s.Event(n); ok {
			return nil
		}
		select {
		case <-s.grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Acked implements [bus.Source].
func (s *source) Acked(uint64) {}

// posters is how many requests may be under way: a hub that waits for its disk
// must not make events wait for each other. A run's own come one after another.
const posters = 64

// posts sends each event in a request of its own.
func (f feed) posts(ctx context.Context, wg *sync.WaitGroup) func(int, uint64) {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = posters
	queues := make([]chan *event.Event, posters)
	for i := range queues {
		queues[i] = make(chan *event.Event, 1024)
		wg.Go(func() {
			for {
				select {
				case e := <-queues[i]:
					if err := f.send(ctx, e); err != nil && ctx.Err() == nil {
						slog.Error("publish", "run", e.Run, "error", err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func(run int, n uint64) { queues[run%posters] <- f.event(run, n) }
}

func (f feed) send(ctx context.Context, e *event.Event) error {
	data := cloudEvent(e)
	switch f.Kind {
	case "centrifugo":
		return f.post(ctx, f.URL, "application/json", fmt.Appendf(nil, `{"channel":%q,"data":%s}`, e.Run, data))
	case "mercure":
		form := url.Values{"topic": {e.Run}, "data": {string(data)}}
		return f.post(ctx, f.URL, "application/x-www-form-urlencoded", []byte(form.Encode()))
	default:
		return f.post(ctx, f.URL+"?run="+e.Run[len(runName("")):], "application/json", data)
	}
}

func (f feed) post(ctx context.Context, to, typ string, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", typ)
	if f.Token != "" {
		q.Header.Set("Authorization", "Bearer "+f.Token)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode >= 300 || bytes.Contains(answer, []byte(`"error"`))) {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return err
}
