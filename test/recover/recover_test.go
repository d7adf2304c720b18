// Package recover holds the tests of what happens when parts go away and come
// back, with the real program.
package recover

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

// world is a NATS server that can be stopped and started, a relay on it, and a
// home for edges.
type world struct {
	t     *testing.T
	dir   string
	port  int
	nats  *natsd.Server
	relay string // its URL
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.startNATS()
	b, err := bus.Connect(t.Context(), bus.Config{URL: w.nats.ClientURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if _, err := b.Ensure(t.Context(), bus.Topology{MaxBytes: 1 << 28}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := relay.Config{LostGrace: 100 * time.Millisecond, Heartbeat: time.Second}
	r := relay.New(relay.Options{Config: cfg, Bus: b, Token: "secret-token"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Serve(ctx, ln)
	}()
	t.Cleanup(func() { cancel(); <-done })
	w.relay = "http://" + ln.Addr().String()
	w.env = []string{
		"HOME=" + w.dir, "PATH=" + os.Getenv("PATH"), "CBCAST_NATS_URL=" + w.nats.ClientURL(), "CBCAST_PRESENCE_TTL=2s",
	}
	return w
}

func (w *world) startNATS() {
	w.t.Helper()
	s, err := natsd.Start(natsd.Options{Dir: filepath.Join(w.dir, "nats"), Port: w.port, MaxStore: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	w.nats = s
	if w.port == 0 {
		_, port, _ := strings.Cut(strings.TrimPrefix(s.ClientURL(), "nats://"), ":")
		fmt.Sscan(port, &w.port)
		w.t.Cleanup(func() { _ = w.nats.Shutdown(context.Background()) })
	}
}

func (w *world) stopNATS() {
	w.t.Helper()
	if err := w.nats.Shutdown(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(w.t.Context(), program.Path, args...)
	c.Env = w.env
	return c
}

// state is what these tests read of GET /v1/runs/{run}.
type state struct {
	LastSeq     uint64 `json:"last_seq"`
	State       string `json:"state"`
	Provisional bool   `json:"provisional"`
	Verdict     *struct {
		Verdict string `json:"verdict"`
	} `json:"verdict"`
	Exit struct {
		Complete bool   `json:"complete"`
		Reason   string `json:"reason"`
	} `json:"exit"`
}

func (s state) verdict() string {
	if s.Verdict == nil {
		return ""
	}
	return s.Verdict.Verdict
}

// get reads a path of the relay into v and returns the status.
func (w *world) get(path string, v any) int {
	w.t.Helper()
	res, err := http.Get(w.relay + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if v != nil && res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, v); err != nil {
			w.t.Fatalf("%s: %v in %.300s", path, err, body)
		}
	}
	return res.StatusCode
}

// state reads the state of a run.
func (w *world) state(id string) state {
	w.t.Helper()
	var v struct {
		State state `json:"state"`
	}
	w.get("/v1/runs/"+id, &v)
	return v.State
}

// run is the one run that the relay lists.
func (w *world) run() (id, verdict string) {
	w.t.Helper()
	var list struct {
		Runs []struct {
			Run     string `json:"run"`
			Verdict string `json:"verdict"`
		} `json:"runs"`
	}
	w.until("a run is listed", func() bool {
		w.get("/v1/runs", &list)
		return len(list.Runs) == 1
	})
	return list.Runs[0].Run, list.Runs[0].Verdict
}

// until asks again until ok: these are other processes, and their pace is theirs.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	w.t.Fatalf("never: %s", what)
}

// events reads a run's SSE stream until it ends, one "event:" value each.
func (w *world) events(id string) <-chan string {
	out := make(chan string, 1000)
	res, err := http.Get(w.relay + "/v1/runs/" + id + "/stream")
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer res.Body.Close()
		defer close(out)
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			if name, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
				out <- name
			}
		}
	}()
	return out
}

const agent = `
echo '{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220"}'
read line
echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s1","uuid":"u2"}'
`

// The bus goes away, the edge ends, its presence expires: the run is shown as lost.
// Then the spool is flushed, and the true verdict replaces lost everywhere.
func TestLostThenFlushed(t *testing.T) {
	w := newWorld(t)
	edge := w.command("run", "--dialect", "claude", "--", "sh", "-c", agent)
	in, err := edge.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	edge.Stdout = &out
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	id, _ := w.run()
	var st state
	w.until("the first frame is on the bus", func() bool { return w.state(id).LastSeq >= 3 })
	stream := w.events(id)

	w.stopNATS()
	fmt.Fprintln(in, "go on")
	if err := edge.Wait(); err != nil {
		t.Fatalf("the edge: %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Fatalf("the parent got %d lines", n)
	}
	w.startNATS()

	w.until("the run is lost", func() bool { st = w.state(id); return st.verdict() == "lost" })
	if st.State != "lost" || !st.Provisional {
		t.Errorf("state %+v", st)
	}
	var last string
	for name := range stream { // it ends with the lost fact
		last = name
	}
	if last != "lost" {
		t.Errorf("the stream ended with %q", last)
	}

	if b, err := w.command("flush").CombinedOutput(); err != nil {
		t.Fatalf("flush: %v\n%s", err, b)
	}
	w.until("the true verdict is in the state", func() bool { st = w.state(id); return st.verdict() == "success" })
	if st.State != "done" || st.Provisional {
		t.Errorf("state %+v", st)
	}
	w.until("the true verdict is in the list", func() bool { _, v := w.run(); return v == "success" })
	var names []string
	for name := range w.events(id) {
		names = append(names, name)
	}
	all := strings.Join(names, " ")
	if strings.Contains(all, "lost") && !strings.Contains(all, "resumed") || names[len(names)-1] != "life" {
		t.Errorf("the stream afterwards is %s", all)
	}
	if b, err := w.command("ls").CombinedOutput(); err != nil || !bytes.Contains(b, []byte("success")) {
		t.Errorf("ls: %v\n%s", err, b)
	}
}

// A killed edge takes its child along; flush says how it ended, and that it is
// not complete.
func TestEdgeKilled(t *testing.T) {
	w := newWorld(t)
	edge := w.command("run", "--dialect", "claude", "--", "sh", "-c", "echo $$; "+agent)
	in, err := edge.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := edge.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.run()
	if err := edge.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = edge.Wait()
	w.until("the child is gone", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(line))
		return os.IsNotExist(err)
	})
	if b, err := w.command("flush").CombinedOutput(); err != nil {
		t.Fatalf("flush: %v\n%s", err, b)
	}
	var st state
	w.until("the end is told", func() bool { st = w.state(id); return st.State == "done" })
	if st.Exit.Complete || st.Exit.Reason != "edge_died" || st.verdict() == "success" {
		t.Errorf("state %+v", st)
	}
}
