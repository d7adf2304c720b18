package kill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
	"github.com/cbcast/cbcast/test/testbus"
)

// A world is a server and what stands around it.
type world struct {
	t      *testing.T
	dir    string
	url    string
	server *natsd.Server
	bus    *bus.Bus
	js     jetstream.JetStream
	hooks  *hooks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	s, err := natsd.Start(natsd.Options{Dir: filepath.Join(w.dir, "js"), MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	w.server = s
	t.Cleanup(func() { _ = w.server.Shutdown(context.Background()) })
	w.url = s.ClientURL()
	w.bus = testbus.Connect(t, bus.Config{URL: w.url}, bus.Topology{MaxBytes: 2 << 30})
	nc, err := nats.Connect(w.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	w.hooks = receive(t)
	return w
}

// hooks is who is told by webhook. Some answers are lost on the way, some are refusals.
type hooks struct {
	url string

	mu    sync.Mutex // guards the rest
	n     int
	told  map[string]notice // by webhook-id
	moved chan struct{}
}

// A notice is what the receiver goes by.
type notice struct {
	Kind string `json:"kind"`
	Run  string `json:"run"`
	ID   string `json:"id"`
}

func receive(t *testing.T) *hooks {
	h := &hooks{told: map[string]notice{}, moved: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // its sender was killed
		}
		var x struct {
			Data notice `json:"data"`
		}
		n := notice{}
		if json.Unmarshal(body, &x) == nil && x.Data.Kind != "" {
			n = x.Data
		} else {
			_ = json.Unmarshal(body, &n)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.n++
		if h.n%13 == 0 {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := q.Header.Get("Webhook-Id")
		if was, ok := h.told[id]; ok && was != n {
			t.Errorf("%s: %+v, and before %+v", id, n, was)
		}
		h.told[id] = n
		close(h.moved)
		h.moved = make(chan struct{})
		if h.n%11 == 0 {
			panic(http.ErrAbortHandler) // it was taken, and the sender does not know
		}
	}))
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h
}

// notices are how many different notices there were, by run and kind.
func (h *hooks) notices() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[string]int{}
	for _, x := range h.told {
		n[x.Run+" "+x.Kind]++
	}
	return n
}

// wait waits until ok holds for the notices.
func (h *hooks) wait(t *testing.T, ok func(map[string]int) bool) {
	t.Helper()
	deadline := time.After(long)
	for {
		h.mu.Lock()
		moved := h.moved
		h.mu.Unlock()
		if ok(h.notices()) {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			return // what is missing is said by who compares
		}
	}
}

// A part is one of the programs, and the process that runs it now.
type part struct {
	w    *world
	name string
	env  []string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	up   chan struct{} // closed when it has said where it is
	addr string        // written before up is closed
	log  *os.File
	err  error // of Wait, after done
}

func (w *world) part(name string, env ...string) *part {
	p := &part{w: w, name: name}
	p.env = append(p.env, "CBCAST_NATS_URL="+w.url, "CBCAST_STATE_DIR="+filepath.Join(w.dir, name), "CBCAST_LOG_LEVEL=info",
		"PATH="+os.Getenv("PATH"), "HOME="+filepath.Join(w.dir, "home"))
	p.env = append(p.env, env...)
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	p.log = log
	w.t.Cleanup(func() {
		p.kill()
		_ = log.Close()
		if w.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			w.t.Logf("%s said at the end:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return p
}

// start starts the process.
func (p *part) start() {
	p.w.t.Helper()
	p.cmd = exec.Command(program.Path, p.name)
	p.cmd.Env, p.cmd.Stderr = p.env, p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.w.t.Fatal(err)
	}
	cmd, done, up := p.cmd, make(chan struct{}), make(chan struct{})
	p.done, p.up = done, up
	go func() { // ends with the process
		defer close(done)
		lines := bufio.NewScanner(out)
		for told := false; lines.Scan(); {
			if _, addr, ok := strings.Cut(lines.Text(), "http://"); ok && !told {
				p.addr = "http://" + strings.TrimSpace(addr)
				close(up)
				told = true
			}
		}
		p.err = cmd.Wait()
	}()
}

// kill ends the process at once and waits until it is gone.
func (p *part) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the process in order.
func (p *part) stop() {
	p.w.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(long):
		p.w.t.Fatalf("%s does not end", p.name)
	}
	if p.err != nil {
		p.w.t.Errorf("%s: %v", p.name, p.err)
	}
}

// ended says that the process has ended though nobody has ended it.
func (p *part) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// get asks the process.
func (p *part) get(path string) string {
	p.w.t.Helper()
	select {
	case <-p.up:
	case <-p.done:
		p.w.t.Fatalf("%s has ended: %v", p.name, p.err)
	case <-time.After(long):
		p.w.t.Fatalf("%s does not say where it is", p.name)
	}
	r, err := http.Get(p.addr + path) //nolint:noctx // a test's own server
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		p.w.t.Fatal(err)
	}
	return string(text)
}

// caughtUp waits until the server has nothing more for a consumer.
func (w *world) caughtUp(p *part, streams ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(long); ; {
		left := map[string]uint64{}
		for _, s := range streams {
			i, err := w.info(s, "cbcast-"+p.name)
			if err != nil {
				left[s+": "+err.Error()] = 1
			} else if n := i.NumPending + uint64(i.NumAckPending); n > 0 {
				left[s] = n
			}
		}
		if len(left) == 0 {
			return
		}
		if p.ended() || time.Now().After(deadline) {
			w.t.Fatalf("%s does not catch up: %v", p.name, left)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (w *world) info(stream, consumer string) (*jetstream.ConsumerInfo, error) {
	c, err := w.js.Consumer(w.t.Context(), stream, consumer)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// run runs a command of the program and returns what it printed.
func (w *world) run(env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), program.Path, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("cbcast %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), err
}

// samples reads the text form of metrics into a map.
func samples(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			m[line[:i]] = line[i+1:]
		}
	}
	return m
}

// sorted are a map's keys in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
