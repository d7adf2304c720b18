// Package scale holds the tests of several relays side by side, each a process of
// its own, on one real server. CBCAST_CHAOS=long runs them at their full size.
package scale

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

const (
	partitions = 3
	tenant     = "acme"
)

// A size is how much there is of everything.
type size struct {
	clients, runs, events int
	pace                  time.Duration // between the events of a run while relays go
}

func sizeOf() size {
	if os.Getenv("CBCAST_CHAOS") == "long" {
		return size{clients: 1000, runs: 100, events: 300, pace: 20 * time.Millisecond}
	}
	return size{clients: 60, runs: 6, events: 60, pace: 2 * time.Millisecond}
}

// patience bounds a whole test.
const patience = 4 * time.Minute

// startBus is a server with the streams of three partitions, and a bus on it.
func startBus(t *testing.T) (url string, b *bus.Bus) {
	t.Helper()
	s, err := natsd.Start(natsd.Options{Dir: filepath.Join(t.TempDir(), "nats"), MaxStore: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	b, err = bus.Connect(t.Context(), bus.Config{URL: s.ClientURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if _, err := b.Ensure(t.Context(), bus.Topology{Partitions: partitions, MaxBytes: 1 << 28}); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL(), b
}

// A relayProcess is cbcast up on a server of others.
type relayProcess struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	gone chan struct{}
}

func startRelay(t *testing.T, natsURL string) *relayProcess {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command(program.Path, "up", "--listen", "127.0.0.1:0")
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CBCAST_NATS_URL=" + natsURL, fmt.Sprint("CBCAST_PARTITIONS=", partitions),
		"CBCAST_RELAY_LOST_GRACE=1h", "CBCAST_LOG=" + filepath.Join(home, "log"),
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &relayProcess{t: t, cmd: cmd, gone: make(chan struct{})}
	url := make(chan string, 1)
	go func() { // ends with the process
		defer close(r.gone)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if f := strings.Fields(sc.Text()); len(f) == 2 && f[0] == "relay" {
				url <- f[1]
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	select {
	case r.url = <-url:
	case <-r.gone:
		t.Fatal("the relay ended")
	case <-time.After(patience):
		t.Fatal("the relay does not say where it is")
	}
	for r.readyz() != http.StatusOK {
		<-time.After(10 * time.Millisecond)
	}
	return r
}

func (r *relayProcess) readyz() int {
	res, err := http.Get(r.url + "/readyz")
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// end sends a signal and returns when the process is gone.
func (r *relayProcess) end(sig syscall.Signal) {
	_ = r.cmd.Process.Signal(sig)
	<-r.gone
}

// A writer is the edge of one run: its spool in memory, and a real publisher.
type writer struct {
	info  bus.RunInfo
	last  uint64 // the number of its exit
	start time.Time

	mu    sync.Mutex // guards the rest
	have  uint64
	grown chan struct{}
}

func startWriter(t *testing.T, b *bus.Bus, n, events int) *writer {
	t.Helper()
	id := fmt.Sprintf("run-%d", n)
	w := &writer{
		info: bus.RunInfo{
			Run: id, Tenant: tenant, Partition: subject.Partition(id, partitions), Dialect: "claude", State: "working", Started: time.Now(),
		},
		last: uint64(events), start: time.Now(), grown: make(chan struct{}),
	}
	if err := b.PutRun(t.Context(), w.info); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := bus.Publisher{Bus: b, Ref: w.info.Ref(), Source: w}
		if err := p.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("publish %s: %v", id, err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// grow lets events up to n be published.
func (w *writer) grow(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.have {
		w.have = n
		close(w.grown)
		w.grown = make(chan struct{})
	}
}

// data is what event n of a run says.
func data(run string, n uint64) string { return fmt.Sprintf(`{"run":%q,"n":%d}`, run, n) }

// Event is that of a [bus.Source]. The last one is the run's exit.
func (w *writer) Event(n uint64) (*event.Event, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.have {
		return nil, false, nil
	}
	e := &event.Event{
		Tenant: tenant, Run: w.info.Run, Seq: n, Time: w.start.Add(time.Duration(n) * time.Millisecond), Type: "dev.cbcast.claude.assistant",
		Kind: event.Msg, Stream: event.Out, Session: "s", ContentType: event.JSON, Data: []byte(data(w.info.Run, n)),
	}
	if n == w.last {
		e.Type, e.Kind, e.Stream = event.TypeExited, event.Life, event.Edge
	}
	return e, true, nil
}

// Wait is that of a [bus.Source].
func (w *writer) Wait(ctx context.Context, n uint64) error {
	for {
		w.mu.Lock()
		have, grown := w.have, w.grown
		w.mu.Unlock()
		switch {
		case n <= have:
			return nil
		case have == w.last:
			return bus.ErrDone
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Acked is that of a [bus.Source].
func (w *writer) Acked(uint64) {}
