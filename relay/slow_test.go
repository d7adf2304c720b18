package relay_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// 50 clients, one of which does not read: the others get everything at once, the
// slow one is cut and resumes without loss (case 102).
func TestSlowClientIsCut(t *testing.T) {
	const clients, events, batch = 50, 1500, 50
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.narrow(relay.Config{QueueBytes: 1 << 20, WriteTimeout: time.Minute})
	started := time.Now()
	// The first connection; it is still open after the question for readiness.
	stalled := s.stream("/v1/runs/run-1/stream", nil)
	if got := ids(stalled.take(1)); got != "1" {
		t.Fatalf("got %s", got)
	}
	sent := make([]time.Time, events+3)
	var mu sync.Mutex // guards delays
	var delays []time.Duration
	var wg sync.WaitGroup
	caughtUp := make(chan struct{}, clients) // one word of each client after each batch
	for range clients - 1 {
		c := s.stream("/v1/runs/run-1/stream", nil)
		c.take(1)
		wg.Go(func() {
			var mine []time.Duration
			n := uint64(1)
			for ev, ok := c.next(); ok; ev, ok = c.next() {
				if n++; ev.seq(t) != n {
					t.Errorf("event %d has id %s", n, ev.id)
					return
				}
				mine = append(mine, time.Since(sent[n]))
				if (n-1)%batch == 0 {
					caughtUp <- struct{}{}
				}
			}
			if n != events+2 {
				t.Errorf("a client got %d events", n)
			}
			mu.Lock()
			defer mu.Unlock()
			delays = append(delays, mine...)
		})
	}
	pad := bytes.Repeat([]byte("x"), 1500)
	for i := 0; i < events; i += batch {
		for j := range batch {
			sent[i+j+2] = time.Now()
			e.emit(frameOf(`{"x":"` + string(pad) + `"}`))
		}
		for range clients - 1 {
			select {
			case <-caughtUp:
			case <-time.After(3 * patience):
				t.Fatal("a client that reads waits for one that does not")
			}
		}
	}
	// The stalled one is cut with the first event after it took nothing for a second.
	<-time.After(1500 * time.Millisecond)
	sent[events+2] = time.Now()
	e.emit(exited())
	wg.Wait()
	slices.Sort(delays)
	t.Logf("p50 %v p99 %v over %d deliveries", delays[len(delays)/2], delays[len(delays)*99/100], len(delays))
	got := stalled.all()
	if len(got) >= events {
		t.Errorf("the stalled client got %d events and was not cut", len(got))
	}
	if stalled.sc.Err() == nil {
		t.Error("the stalled client saw a clean end")
	}
	last := "1"
	if len(got) > 0 {
		last = got[len(got)-1].id
	}
	rest := s.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": last}).all()
	if n := 1 + len(got) + len(rest); n != events+2 {
		t.Errorf("%d events after resuming, want %d", n, events+2)
	}
	t.Logf("%v: cut after %d events", time.Since(started), 1+len(got))
}

// A server's WriteTimeout must not end a stream: the deadline is set anew for
// each write (case 097).
func TestWriteTimeoutOfServer(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{Heartbeat: 50 * time.Millisecond})
	front := httptest.NewUnstartedServer(s.relay.Handler())
	front.Config.WriteTimeout = 200 * time.Millisecond
	front.Start()
	defer front.Close()
	via := &served{t: t, url: front.URL, client: http.DefaultClient, patience: patience}
	c := via.stream("/v1/runs/run-1/stream", nil)
	c.take(1)
	for range 3 {
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			c.heartbeat()
		}
		e.emit(note(1))
		c.take(1)
	}
	e.emit(exited())
	if got := ids(c.all()); got != "5" {
		t.Errorf("end: %s", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What lies behind the cursor is read by each client itself while the run goes
// on; nothing is missing or doubled where the two meet.
func TestHistoryMeetsLive(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	s := r.relay(relay.Config{QueueBytes: 16 << 10})
	const events = 600
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			<-time.After(time.Duration(i) * 20 * time.Millisecond)
			n := uint64(0)
			for {
				c, err := s.open("/v1/runs/run-1/stream?after="+itoa(n), nil)
				if err != nil {
					t.Error(err)
					return
				}
				end := false
				for ev, ok := c.next(); ok; ev, ok = c.next() {
					if ev.seq(t) != n+1 && ev.seq(t) != n+3 { // one frame in ten has three chunks
						t.Errorf("client %d: %s after %d", i, ev.id, n)
						return
					}
					n = ev.seq(t)
					parsed, err := event.ParseJSON([]byte(ev.data))
					end = err == nil && parsed.Type == event.TypeExited
				}
				if end {
					return
				}
			}
		})
	}
	big := frameOf(string(bytes.Repeat([]byte("y"), 600<<10)))
	big.ContentType = event.Binary
	for i := range events {
		if i%200 == 7 {
			e.emit(big)
		}
		e.emit(note(i))
		if i%100 == 0 {
			<-time.After(10 * time.Millisecond)
		}
	}
	e.emit(exited())
	wg.Wait()
}
