package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/relay"
)

// BenchmarkFanOut compares the relay's fan-out with a bare net/http server that
// writes the same bytes to as many clients, per CPU second of the whole process.
// Clients only count lines, alike in both.
func BenchmarkFanOut(b *testing.B) {
	for _, clients := range []int{10, 200} {
		b.Run(fmt.Sprintf("relay/%d", clients), func(b *testing.B) { benchRelay(b, clients) })
		b.Run(fmt.Sprintf("bare/%d", clients), func(b *testing.B) { benchBare(b, clients) })
	}
}

const benchBatch = 20 // events at once, then the slowest client is awaited

func benchRelay(b *testing.B, clients int) {
	r := newRig(b, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	ev := frameOf(`{"type":"assistant","session_id":"s1","text":"` + string(pad(400)) + `"}`)
	run(b, clients, s.url+"/v1/runs/run-1/stream?after=0", 1, func(int) { e.emit(ev) })
}

func benchBare(b *testing.B, clients int) {
	var mu sync.Mutex
	chans := map[chan []byte]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c := make(chan []byte, 1024)
		mu.Lock()
		chans[c] = true
		mu.Unlock()
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = rc.Flush()
		for {
			select {
			case m := <-c:
				_, _ = w.Write(m)
				_ = rc.Flush()
			case <-q.Context().Done():
				return
			}
		}
	}))
	defer srv.Close()
	line := []byte("id: 12345\nevent: msg\ndata: " + string(pad(780)) + "\n\n")
	run(b, clients, srv.URL, 1, func(int) {
		mu.Lock()
		defer mu.Unlock()
		for c := range chans {
			c <- line
		}
	})
}

// run starts clients that have got skip events, sends b.N and waits for them.
func run(b *testing.B, clients int, url string, skip int, send func(int)) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	var got atomic.Int64
	var wg sync.WaitGroup
	word := make(chan struct{}, 1)
	var list []io.Closer
	for range clients {
		res, err := (&http.Client{Transport: tr}).Get(url)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, res.Body)
		wg.Go(func() {
			for sc := bufio.NewScanner(res.Body); sc.Scan(); {
				if len(sc.Bytes()) > 5 && string(sc.Bytes()[:5]) == "data:" {
					got.Add(1)
					select {
					case word <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	await := func(n int) {
		for got.Load() < int64(n) {
			<-word
		}
	}
	await(skip * clients)
	b.ResetTimer()
	cpu := cpuTime()
	for i := range b.N {
		send(i)
		if i%benchBatch == benchBatch-1 {
			await((skip + i + 1) * clients)
		}
	}
	await((skip + b.N) * clients)
	b.ReportMetric(float64(b.N*clients)/(cpuTime()-cpu).Seconds(), "deliveries/cpu-s")
	b.StopTimer()
	for _, c := range list {
		_ = c.Close()
	}
	wg.Wait()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
