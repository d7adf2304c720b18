package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// Connections are cut while what they carried arrives late, acknowledgements
// are dropped, and the server is shut down and started again on its store:
// every run ends whole. The process that is killed is tested in test/.
func TestPublishThroughFaults(t *testing.T) {
	const runs, each = 3, 7000
	dir := t.TempDir()
	server := serve(t, natsd.Options{Dir: dir})
	px := newProxy(t, server.ClientURL())
	px.late = 50 * time.Millisecond
	px.setEdit(func(subject string, payload []byte) []byte {
		if bytes.HasPrefix(payload, []byte(`{"type":"ack"`)) || bytes.Contains(payload, []byte(`"batch"`)) {
			if rand.N(100) < 2 {
				return nil
			}
		}
		return payload
	})
	first := connect(t, bus.Config{URL: server.ClientURL()})
	ensure(t, first)
	first.Close()

	progress := make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, runs)
	var ps []*bus.Publisher
	for i := range runs {
		b := connect(t, bus.Config{URL: px.url()})
		src := newMemory()
		src.ack = func(uint64) {
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		run := fmt.Sprint("r", i)
		p := &bus.Publisher{Bus: b, Ref: ref(run), Source: src, Log: testLog(t)}
		ps = append(ps, p)
		go func() { done <- p.Run(ctx) }()
		go func() { // ends with the source
			all := evs(run, each)
			for len(all) > 0 {
				n := min(len(all), 1+rand.N(60))
				src.add(all[:n]...)
				all = all[n:]
				time.Sleep(rand.N(2 * time.Millisecond)) //nolint:forbidigo // a child that speaks now and then
			}
			src.end()
		}()
	}
	faults := 0
	for ended := 0; ended < runs; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended++
			continue
		case <-progress:
		case <-ctx.Done():
			t.Fatal("no progress")
		}
		switch n := rand.N(1000); {
		case n < 30 && (faults == 4 || faults > 4 && n >= 25): // the fifth is the server's, and some later ones
			px.aim("")
			px.cut()
			_ = server.Shutdown(context.Background())
			server = serve(t, natsd.Options{Dir: dir})
			px.aim(server.ClientURL())
			faults++
		case n < 30:
			px.cut()
			faults++
		}
	}
	for _, p := range ps {
		t.Logf("%d faults: %+v", faults, p.Stats())
	}
	b := connect(t, bus.Config{URL: server.ClientURL()})
	for i := range runs {
		whole(t, b, fmt.Sprint("r", i), each)
	}
}

// Case 083: the answer "duplicate" is believed only if the stream has the event.
func TestPublishFalseDuplicate(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	publish(t, b, "r1", newMemory(evs("r1", 100)...).end())
	// Ids of the next three, as if a lost leader had noted them: the messages
	// are stored for another run, which is all the server looks at.
	for n := uint64(101); n <= 103; n++ {
		m := bus.Encode(0, ev("other", n))
		m.Header.Set("Nats-Msg-Id", bus.MsgID(ev("r1", n)))
		if _, err := b.Conn().RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: newMemory(evs("r1", 500)...).end(), Resumed: true, Log: testLog(t)}
	if st := runPublisher(t, p); st.FalseDuplicates != 3 || st.Duplicates != 3 {
		t.Errorf("%+v", st)
	}
	whole(t, b, "r1", 500)
}

// Case 084: after an outage, events of the meantime arrive in order, and also
// after the client library gave a connection up.
func TestPublishAfterOutage(t *testing.T) {
	dir := t.TempDir()
	server := serve(t, natsd.Options{Dir: dir})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	src := newMemory(evs("r1", 10)...)
	acked := make(chan uint64, 1000)
	src.ack = func(n uint64) { acked <- n }
	causes := make(chan error, 100)
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src, Notice: func(err error) { causes <- err }, Log: testLog(t)}
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	until := func(n uint64) {
		t.Helper()
		for {
			select {
			case got := <-acked:
				if got == n {
					return
				}
			case <-time.After(patience):
				t.Fatalf("event %d is not acknowledged; bus: %v", n, b.Err())
			}
		}
	}
	until(10)
	for i := uint64(1); i <= 2; i++ {
		nc := b.Conn()
		px.aim("127.0.0.1:1")
		px.cut()
		if i == 2 {
			nc.Close() // given up by the library
		}
		src.add(evs("r1", 10+i*50)[10+(i-1)*50:]...)
		if err := <-causes; err == nil || b.Connected() {
			t.Errorf("notice %v, connected %v", err, b.Connected())
		}
		px.aim(server.ClientURL())
		until(10 + i*50)
		if err := <-causes; err != nil {
			t.Errorf("notice %v, want nil", err)
		}
	}
	src.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	whole(t, b, "r1", 110)
}

// Case 081: no space, then JetStream off, then the stream gone: the source
// keeps everything, the cause is told, and a new stream gets all of it.
func TestPublishBusRefuses(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	src := newMemory(evs("r1", 3)...)
	acked := make(chan uint64, 1000)
	src.ack = func(n uint64) { acked <- n }
	causes := make(chan error, 1000)
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src, Notice: func(err error) { causes <- err }, Log: testLog(t)}
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	for <-acked != 3 {
	}
	hear := func(part string) {
		t.Helper()
		for {
			select {
			case err := <-causes:
				if part == "" && err == nil || err != nil && part != "" && strings.Contains(err.Error(), part) {
					return
				}
			case <-time.After(patience):
				t.Fatalf("nobody said %q", part)
			}
		}
	}
	update(t, b, "EV_0", func(cfg map[string]any) { cfg["discard"], cfg["max_msgs"] = "new", 3 })
	src.add(ev("r1", 4))
	hear("maximum messages exceeded")
	px.setEdit(func(_ string, payload []byte) []byte {
		if bytes.HasPrefix(payload, []byte(`{`)) {
			return []byte(`{"error":{"code":503,"err_code":10076,"description":"JetStream not enabled"}}`)
		}
		return payload
	})
	src.add(ev("r1", 5))
	hear("JetStream not enabled")
	px.setEdit(nil)
	api(t, b, "STREAM.DELETE.EV_0", nil, nil)
	src.add(ev("r1", 6))
	hear("stream missing")
	ensure(t, b)
	hear("")
	src.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	whole(t, b, "r1", 6)
}

// Batches refused for their number: events go out one at a time until one is
// admitted.
func TestPublishTooManyBatches(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	refusals := 0
	px.setEdit(func(_ string, payload []byte) []byte {
		if refusals < 2 && bytes.HasPrefix(payload, []byte(`{"type":"ack","seq":0,`)) {
			refusals++
			return []byte(`{"error":{"code":429,"err_code":10211,"description":"batch publish too many inflight"},"stream":"EV_0","seq":0}`)
		}
		return payload
	})
	src := &untilBatch{endless: newEndless("r1", 1<<40, []byte("x"))}
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src, Log: testLog(t)}
	src.p = p
	st := runPublisher(t, p)
	if st.Singles < 10 || st.Events != src.n {
		t.Errorf("%+v, want %d events", st, src.n)
	}
	want := uint64(0)
	for e, err := range b.History(t.Context(), ref("r1"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if want++; e.Seq != want {
			t.Fatalf("event %d, want %d", e.Seq, want)
		}
	}
	if want != src.n {
		t.Errorf("%d events, want %d", want, src.n)
	}
}

// untilBatch ends some events after its publisher's third batch began.
type untilBatch struct {
	*endless
	p *bus.Publisher
}

func (s *untilBatch) Event(n uint64) (*event.Event, bool, error) {
	if s.n == 1<<40 && s.p.Stats().Batches >= 3 {
		s.n = n + 500
	}
	return s.endless.Event(n)
}
