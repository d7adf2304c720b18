package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// endless is a source of n events that are all there.
type endless struct {
	run string
	e   [2]event.Event
	n   uint64
}

func newEndless(run string, n uint64, data []byte) *endless {
	s := &endless{run: run, n: n}
	for i := range s.e {
		s.e[i] = *ev(run, 1)
		s.e[i].Data = data
	}
	return s
}

func (s *endless) Event(n uint64) (*event.Event, bool, error) {
	if n > s.n {
		return nil, false, nil
	}
	e := &s.e[n%2]
	e.Seq = n
	e.Time = epoch.Add(time.Duration(n) * time.Microsecond)
	return e, true, nil
}

func (s *endless) Wait(_ context.Context, n uint64) error {
	if n > s.n {
		return bus.ErrDone
	}
	return nil
}
func (s *endless) Acked(uint64) {}

// rawMsg is the same message as an event's, made with the least work.
func rawMsg(run, subj string, seq uint64, data []byte) *nats.Msg {
	n := strconv.FormatUint(seq, 10)
	return &nats.Msg{Subject: subj, Data: data, Header: nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {run + "/" + n}, "ce-source": {"/cbcast/acme/" + run},
		"ce-type": {"dev.cbcast.claude.assistant"}, "ce-time": {"2026-01-02T03:04:05.000006Z"},
		"ce-datacontenttype": {event.JSON}, "ce-subject": {"s1"}, "ce-sequence": {n}, "ce-session": {"s1"},
		"ce-stream": {"out"}, "Nats-Msg-Id": {run + "/" + n},
	}}
}

// fast publishes n messages as one fast-ingest batch and nothing else: no
// recovery, no fence.
func fast(tb testing.TB, nc *nats.Conn, run string, n int, data []byte) {
	tb.Helper()
	const flow, window = 100, 200
	inbox := nc.NewInbox()
	acks := make(chan *nats.Msg, 1024)
	sub, err := nc.ChanSubscribe(inbox+".>", acks)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	subj := bus.Encode(0, ev(run, 1)).Subject
	reply := inbox + "." + nuid.Next() + "." + strconv.Itoa(flow) + ".fail."
	acked, open := 0, false
	take := func(m *nats.Msg) bool {
		var a struct {
			Type  string          `json:"type"`
			Seq   int             `json:"seq"`
			Count int             `json:"count"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Error != nil || a.Type == "gap" {
			tb.Fatalf("answer %q", m.Data)
		}
		if a.Type == "ack" {
			acked, open = a.Seq, true
			return false
		}
		if a.Count != n {
			tb.Fatalf("%d of %d stored", a.Count, n)
		}
		return true
	}
	for i := 1; i <= n; {
		for i > 1 && !open || i-acked > window {
			take(<-acks)
		}
		op := 1
		switch i {
		case 1:
			op = 0
		case n:
			op = 2
		}
		m := rawMsg(run, subj, uint64(i), data)
		m.Reply = reply + strconv.Itoa(i) + "." + strconv.Itoa(op) + ".$FI"
		if err := nc.PublishMsg(m); err != nil {
			tb.Fatal(err)
		}
		i++
	}
	for !take(<-acks) {
	}
}

func async(tb testing.TB, js jetstream.JetStream, run string, n int, data []byte) {
	tb.Helper()
	subj := bus.Encode(0, ev(run, 1)).Subject
	for i := 1; i <= n; i++ {
		if _, err := js.PublishMsgAsync(rawMsg(run, subj, uint64(i), data), jetstream.WithStallWait(time.Minute)); err != nil {
			tb.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// BenchmarkPublish compares the publisher with a bare fast-ingest batch and
// with PublishAsync, both with the same ids and headers, in turns on one server.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct{ size, n int }{{512, 20_000}, {4 << 10, 10_000}, {64 << 10, 1000}} {
		b.Run(strconv.Itoa(c.size), func(b *testing.B) {
			server := serve(b, natsd.Options{})
			cl := connect(b, bus.Config{URL: server.ClientURL()})
			ensure(b, cl)
			js, err := jetstream.New(cl.Conn(), jetstream.WithPublishAsyncMaxPending(1024))
			if err != nil {
				b.Fatal(err)
			}
			data := bytes.Repeat([]byte("x"), c.size)
			var took, cpu [3]time.Duration
			for i := 0; b.Loop(); i++ {
				for k := range took {
					k = (k + i) % len(took)
					run := fmt.Sprintf("r%d-%d", i, k)
					start, used := time.Now(), cpuTime(b)
					switch k {
					case 0:
						p := bus.Publisher{Bus: cl, Ref: ref(run), Source: newEndless(run, uint64(c.n), data)}
						if err := p.Run(b.Context()); err != nil {
							b.Fatal(err)
						}
					case 1:
						fast(b, cl.Conn(), run, c.n, data)
					case 2:
						async(b, js, run, c.n, data)
					}
					took[k] += time.Since(start)
					cpu[k] += cpuTime(b) - used
				}
			}
			rate := func(d time.Duration) float64 { return float64(c.n*b.N) / d.Seconds() }
			b.ReportMetric(rate(took[0]), "publisher/s")
			b.ReportMetric(rate(took[1]), "fast/s")
			b.ReportMetric(rate(took[2]), "async/s")
			b.ReportMetric(float64(took[1])/float64(took[0]), "of_fast")
			b.ReportMetric(float64(took[2])/float64(took[0]), "of_async")
			b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "cpu_of_fast")
			b.ReportMetric(float64(cpu[0].Microseconds())/float64(c.n*b.N), "cpu-µs/msg")
		})
	}
}

// BenchmarkHistory compares History with bare direct-get batches of the same
// run among others.
func BenchmarkHistory(b *testing.B) {
	server := serve(b, natsd.Options{})
	cl := connect(b, bus.Config{URL: server.ClientURL()})
	ensure(b, cl)
	const n = 20_000
	data := bytes.Repeat([]byte("x"), 512)
	for _, run := range []string{"r1", "r2", "r3"} {
		p := bus.Publisher{Bus: cl, Ref: ref(run), Source: newEndless(run, n, data)}
		if err := p.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	var took, cpu [2]time.Duration
	for i := 0; b.Loop(); i++ {
		for k := range took {
			k = (k + i) % 2
			start, used := time.Now(), cpuTime(b)
			got := 0
			if k == 0 {
				for _, err := range cl.History(b.Context(), ref("r2"), 0) {
					if err != nil {
						b.Fatal(err)
					}
					got++
				}
			} else {
				got = direct(b, cl.Conn(), "cbc.ev.0.acme.r2.>", n)
			}
			if got != n {
				b.Fatalf("%d events", got)
			}
			took[k] += time.Since(start)
			cpu[k] += cpuTime(b) - used
		}
	}
	b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "cpu_of_direct")
	b.ReportMetric(float64(n*b.N)/took[0].Seconds(), "history/s")
	b.ReportMetric(float64(n*b.N)/took[1].Seconds(), "direct/s")
	b.ReportMetric(float64(took[1])/float64(took[0]), "of_direct")
}

// direct reads with direct-get batches and looks only at what it needs to go on.
func direct(tb testing.TB, nc *nats.Conn, filter string, n int) int {
	tb.Helper()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	next, got := "1", 0
	for got < n {
		req := fmt.Appendf(nil, `{"seq":%s,"next_by_subj":%q,"batch":1024}`, next, filter)
		if err := nc.PublishRequest("$JS.API.DIRECT.GET.EV_0", sub.Subject, req); err != nil {
			tb.Fatal(err)
		}
		for {
			m, err := sub.NextMsg(5 * time.Second)
			if err != nil {
				tb.Fatal(err)
			}
			if m.Header.Get("Status") != "" {
				break
			}
			got++
			seq, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			next = strconv.FormatUint(seq+1, 10)
		}
	}
	return got
}

// cpuTime is what this process, clients and server, has used so far. On a busy
// machine it says more than the clock.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkEncode(b *testing.B) {
	e := ev("0198a3f0-0000-7000-8000-000000000001", 1)
	e.Data = bytes.Repeat([]byte("x"), 512)
	b.ReportAllocs()
	for b.Loop() {
		bus.Encode(0, e)
	}
}

func BenchmarkDecode(b *testing.B) {
	e := ev("0198a3f0-0000-7000-8000-000000000001", 1)
	m := bus.Encode(0, e)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bus.Decode(m.Subject, m.Header, m.Data); err != nil {
			b.Fatal(err)
		}
	}
}
