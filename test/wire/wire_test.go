// Package wire holds what is really on NATS against relay/spec/asyncapi.json: a
// client of its own that knows nothing of cbcast reads every message of real runs.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

const token = "0123456789abcdef0123456789abcdef"

// world is a NATS server, a relay, and a home for edges.
type world struct {
	t     *testing.T
	nats  *natsd.Server
	relay string
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	srv, err := natsd.Start(natsd.Options{Dir: filepath.Join(dir, "nats"), MaxStore: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	b, err := bus.Connect(t.Context(), bus.Config{URL: srv.ClientURL()}, nil)
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
	r := relay.New(relay.Options{Config: relay.Config{LostGrace: 100 * time.Millisecond}, Bus: b, Token: token})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		_ = r.Serve(ctx, ln)
	}()
	t.Cleanup(func() { cancel(); <-done })
	policy := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"rules":[{"name":"reads","tool":"Read","then":"allow"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return &world{t: t, nats: srv, relay: "http://" + ln.Addr().String(), env: []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "CBCAST_NATS_URL=" + srv.ClientURL(), "CBCAST_PRESENCE_TTL=2s",
		"CBCAST_POLICY=" + policy, "GITHUB_ACTIONS=true", "GITHUB_REPOSITORY=acme/app", "GITHUB_JOB=test",
	}}
}

func (w *world) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(w.t.Context(), program.Path, args...)
	c.Env = w.env
	return c
}

func (w *world) post(path, body string) {
	w.t.Helper()
	q, err := http.NewRequestWithContext(w.t.Context(), "POST", w.relay+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		w.t.Fatalf("POST %s: %d", path, res.StatusCode)
	}
}

const claude = `
echo '{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220","tools":["Bash","Read"]}'
read prompt
echo '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Read","input":{"file_path":"/a"},"tool_use_id":"t1"},"session_id":"s1"}'
read answer
echo '{"type":"control_request","request_id":"q2","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"t2"},"session_id":"s1"}'
read answer
echo '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t2","content":"ok"}]},"session_id":"s1"}'
echo 'no frame'
echo 'on stderr' >&2
read request
case "$request" in *interrupt*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"'"$(echo "$request" | sed 's/.*"request_id":"\([^"]*\)".*/\1/')"'"}}';; esac
echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s1","uuid":"u2"}'
`

const codex = `
read initialize
echo '{"id":0,"result":{"userAgent":"codex"}}'
echo '{"method":"thread/started","params":{"thread":{"id":"th1"}}}'
echo '{"method":"turn/started","params":{"threadId":"th1","turn":{"id":"tu1","status":"inProgress"}}}'
echo '{"method":"item/agentMessage/delta","params":{"threadId":"th1","turnId":"tu1","itemId":"i1","delta":"a"}}'
echo '{"method":"turn/completed","params":{"threadId":"th1","turn":{"id":"tu1","status":"completed"}}}'
`

// Every message of runs that ask, are answered, commanded, interrupted, killed and
// flushed is as the document says.
func TestWire(t *testing.T) {
	w := newWorld(t)
	l := listen(t, strings.TrimPrefix(w.nats.ClientURL(), "nats://"))

	edge := w.command("run", "--dialect", "claude", "--", "sh", "-c", claude, "claude", "--input-format", "stream-json", "--output-format", "stream-json", "--permission-prompt-tool", "stdio")
	in, err := edge.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, `{"type":"user","message":{"role":"user","content":"go"},"uuid":"11111111-1111-4111-8111-111111111111"}`)
	asked := l.until(func(m message) bool { return m.header["ce-ask"] == "a2" })
	run, _, _ := strings.Cut(asked.header["ce-id"], "/")
	w.post("/v1/runs/"+run+"/asks/a2", `{"decision":"allow"}`)
	l.until(func(m message) bool { return strings.Contains(string(m.data), "tool_result") })
	w.post("/v1/runs/"+run+"/interrupt", `{"reason":"enough"}`)
	l.until(func(m message) bool { return m.header["ce-type"] == "dev.cbcast.edge.exited" })
	_ = in.Close()
	_ = edge.Wait() // its exit code is the child's

	other := w.command("run", "--dialect", "codex", "--", "sh", "-c", codex)
	other.Stdin = strings.NewReader(`{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}` + "\n")
	if b, err := other.CombinedOutput(); err != nil {
		t.Fatalf("codex: %v\n%s", err, b)
	}
	if b, err := w.command("demo", "--speed", "1000").CombinedOutput(); err != nil {
		t.Fatalf("demo: %v\n%s", err, b)
	}

	killed := w.command("run", "--dialect", "claude", "--", "sh", "-c", claude, "claude", "--input-format", "stream-json", "--output-format", "stream-json", "--permission-prompt-tool", "stdio")
	hold, err := killed.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	spoke := l.until(func(m message) bool {
		return m.header["ce-type"] == "dev.cbcast.edge.session" && m.header["ce-session"] == "s1" && !strings.HasPrefix(m.header["ce-id"], run+"/")
	})
	// Only an edge that was seen alive is missed soon.
	lost, _, _ := strings.Cut(spoke.header["ce-id"], "/")
	l.until(func(m message) bool { return m.subject == "$KV."+subject.PresenceBucket+"."+subject.Key(lost) })
	_ = killed.Process.Kill()
	_ = killed.Wait()
	l.until(func(m message) bool { return m.header["ce-type"] == "dev.cbcast.relay.lost" })
	if b, err := w.command("flush").CombinedOutput(); err != nil {
		t.Fatalf("flush: %v\n%s", err, b)
	}
	l.until(func(m message) bool { return m.header["ce-type"] == "dev.cbcast.relay.resumed" })

	doc := newDocument(t)
	for _, m := range l.all() {
		if err := doc.check(m); err != nil {
			t.Errorf("%s %s: %v\n%v\n%.400q", m.subject, m.header["ce-type"], err, m.header, m.data)
		}
	}
	t.Logf("%d messages; types: %s", len(l.all()), strings.Join(doc.types(), " "))
	for _, name := range []string{
		"started", "session", "exited", "input", "capabilities", "commandFact", "askClosed", "decision", "lost", "resumed", "audit", "command",
		"hint", "runEntry", "presence", "claudeFrame", "cbcFrame", "codexFrame",
	} {
		if doc.seen[name] == 0 {
			t.Errorf("there was no message %s", name)
		}
	}
}

// message is one message as a NATS client sees it. Values of ce- headers are
// decoded.
type message struct {
	subject string
	header  map[string]string
	data    []byte
}

func (m message) json() (any, bool) {
	var v any
	d := json.NewDecoder(bytes.NewReader(m.data))
	d.UseNumber()
	return v, len(m.data) > 0 && d.Decode(&v) == nil
}

func sorted(m map[string]int) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
