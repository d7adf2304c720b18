package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cbcast/cbcast/relay/client"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/program"
)

// engine is the compose command, rulesFile what notify reads; both come from test/compose/run.
var engine, rulesFile = os.Getenv("CBCAST_COMPOSE"), os.Getenv("CBCAST_COMPOSE_RULES")

func TestMain(m *testing.M) {
	if engine == "" {
		fmt.Println("docker-compose.yml is not started: run `make compose-test`")
		os.Exit(m.Run())
	}
	os.Exit(program.Main(m, nil))
}

const (
	relayURL = "http://127.0.0.1:8420"
	secret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of this test's webhook
	patience = 4 * time.Minute                          // for what happens; a safety net
)

// TestFleet has one wrapped run through the cluster, while a NATS server and a relay are
// stopped in the middle and come back: nothing is lost, one notice is sent, and what is
// archived is whole.
func TestFleet(t *testing.T) {
	if engine == "" {
		t.Skip("no engine: run `make compose-test`")
	}
	told := receive(t)
	compose(t, "up", "-d")
	waitFor(t, "the relays", func() error { return get(relayURL+"/readyz", "", nil) })
	secrets := filepath.Join(t.TempDir(), "secrets")
	docker(t, "cp", container(t, "setup")+":/secrets", secrets)
	admin, err := os.ReadFile(filepath.Join(secrets, "tokens", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(admin))

	// The agent speaks, is followed, and loses servers.
	a := speak(t, secrets)
	c := client.Client{URL: relayURL, Token: token}
	var seqs, frames int
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waitFor(t, "the run", func() error { _, err := c.State(ctx, a.run); return err })
	err = c.Follow(ctx, a.run, 0, func(e client.Event) error {
		switch {
		case e.Name == "gap" || e.Name == "reset" || e.Name == "lost":
			return fmt.Errorf("%s: %s", e.Name, e.Data)
		case e.Seq == 0:
			return nil
		case e.Seq != uint64(seqs+1):
			return fmt.Errorf("event %d follows %d", e.Seq, seqs)
		}
		seqs++
		if line, ok := stdout(t, e.Data); ok {
			frames++
			out.WriteString(line + "\n")
		}
		if steps := a.steps[frames]; len(steps) > 0 {
			delete(a.steps, frames)
			for _, s := range steps {
				compose(t, s...)
			}
			a.more(t)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("after %d events, %d frames: %v", seqs, frames, err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v\n%s", err, a.stderr.String())
	}
	if out.String() != a.want || a.stdout.String() != a.want {
		t.Errorf("the stream has %d bytes of stdout, the parent got %d, the child wrote %d", out.Len(), a.stdout.Len(), len(a.want))
	}
	t.Logf("%d events, %d frames, with a NATS server and a relay away", seqs, frames)

	// One notice, signed.
	waitFor(t, "the notice", func() error { return told.one(a.run) })

	// The archive has it, byte for byte, and is whole.
	waitFor(t, "the archive", func() error {
		got, err := output(composed("exec", "-T", "archive", "/cbcast", "archive", "cat", a.run)...)
		if err != nil || got != a.want {
			return fmt.Errorf("%d bytes of %d: %w", len(got), len(a.want), err)
		}
		return nil
	})
	t.Log(must(t, composed("exec", "-T", "archive", "/cbcast", "archive", "verify", "--public-key", "/secrets/archive/signing.pub.pem")...))

	// Prometheus has counted it.
	waitFor(t, "Prometheus", func() error {
		var r struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		q := url.Values{"query": {`sum(cbcast_runs_finished_total{verdict="success"})`}}
		if err := get("http://127.0.0.1:9090/api/v1/query?"+q.Encode(), "", &r); err != nil {
			return err
		}
		if len(r.Data.Result) != 1 || r.Data.Result[0].Value[1] != "1" {
			return fmt.Errorf("%v", r.Data.Result)
		}
		return nil
	})
	if err := told.one(a.run); err != nil { // still
		t.Error(err)
	}
	compose(t, "down", "-t", "10")
}

// An agent is a wrapped child that speaks when it is told to.
type agent struct {
	run            string
	cmd            *exec.Cmd
	stdin          io.WriteCloser // of the feed, not of the child
	stdout, stderr bytes.Buffer
	parts          [][]byte
	want           string
	steps          map[int][][]string // what is done to the fleet after so many frames
}

// filler is how many lines the agent says in each part.
const filler = 1500

// speak starts a run whose child says a recorded session, with much between its lines,
// in parts: the next one comes after something has happened to the fleet.
func speak(t *testing.T, secrets string) *agent {
	t.Helper()
	rec, err := capture.Load("claude-2.1.220/80-workflow-ok")
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := capture.Lines(rec.Stdout)
	fifo := filepath.Join(t.TempDir(), "feed")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	a := &agent{run: newRun(t), steps: map[int][][]string{}}
	cut := []int{2, len(lines) / 2, len(lines) - 2, len(lines)}
	from, frames := 0, 0
	steps := [][][]string{
		{{"stop", "-t", "5", "nats-2"}, {"stop", "-t", "5", "relay-1"}},
		{{"start", "nats-2"}, {"start", "relay-1"}, {"kill", "relay-2"}},
		{{"start", "relay-2"}},
		nil,
	}
	for i, to := range cut {
		var b bytes.Buffer
		for _, l := range lines[from:to] {
			b.Write(append(bytes.Clone(l), '\n'))
			frames++
		}
		if i < len(cut)-1 {
			for n := range filler {
				fmt.Fprintf(&b, `{"type":"system","subtype":"status","status":"part %d, %d %s"}`+"\n", i, n, strings.Repeat("x", n%700))
				frames++
			}
			a.steps[frames] = steps[i]
		}
		a.parts = append(a.parts, b.Bytes())
		a.want += b.String()
		from = to
	}
	a.cmd = exec.Command(program.Path, "run", "--dialect", "claude", "--", "cat", fifo)
	a.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CBCAST_STATE_DIR=" + t.TempDir(), "CBCAST_RUN_ID=" + a.run, "CBCAST_EXIT_FLUSH=2m",
		"CBCAST_NATS_URL=nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224",
		"CBCAST_NATS_NKEY=" + filepath.Join(secrets, "nats", "keys", "default-edge.nk"), "CBCAST_NATS_INBOX_PREFIX=_INBOX_default_edge",
	}
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	if a.stdin, err = os.OpenFile(fifo, os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	a.more(t)
	return a
}

// more lets the agent say its next part; behind the last one it ends.
func (a *agent) more(t *testing.T) {
	t.Helper()
	part := a.parts[0]
	a.parts = a.parts[1:]
	if _, err := a.stdin.Write(part); err != nil {
		t.Fatal(err)
	}
	if len(a.parts) == 0 {
		a.stdin.Close()
	}
}

// stdout is the line of the child in a CloudEvent, where it is one.
func stdout(t *testing.T, data json.RawMessage) (string, bool) {
	t.Helper()
	var e struct {
		Stream string
		Data   json.RawMessage
		Base64 []byte `json:"data_base64"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	if e.Stream != "out" {
		return "", false
	}
	if e.Base64 != nil {
		return string(e.Base64), true
	}
	return string(e.Data), true
}

// A receiver gets notices.
type receiver struct {
	mu   sync.Mutex
	got  map[string]int // by run and kind
	bad  []string
	hook *webhooks.Webhook
}

// receive serves a webhook on the address of the host in the containers' network.
func receive(t *testing.T) *receiver {
	t.Helper()
	host := strings.TrimSpace(must(t, "docker", "network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Gateway}}"))
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{got: map[string]int{}}
	if r.hook, err = webhooks.NewWebhook(secret); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }() // ends with Close
	t.Cleanup(func() { srv.Close() })
	rules := fmt.Sprintf(`version: 1
destinations:
  hook: {type: webhook, url: "http://host.docker.internal:%d/hook", secrets: [%q], allow: [host.docker.internal]}
rules:
  - {name: all, to: [hook]}
`, ln.Addr().(*net.TCPAddr).Port, secret)
	if err := os.WriteFile(rulesFile, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = r.hook.Verify(body, q.Header)
	}
	var e struct {
		Data struct{ Kind, Run string }
	}
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad = append(r.bad, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.got[e.Data.Run+" "+e.Data.Kind]++
}

// one says what is wrong unless exactly one notice came, that the run has finished.
func (r *receiver) one(run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) > 0 || len(r.got) != 1 || r.got[run+" finished"] != 1 {
		return fmt.Errorf("notices %v, bad ones %v", r.got, r.bad)
	}
	return nil
}

func newRun(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(must(t, "python3", "-c", `import os, time
b = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10)); b[6] = b[6] & 15 | 112; b[8] = b[8] & 63 | 128
h = b.hex(); print("-".join([h[:8], h[8:12], h[12:16], h[16:20], h[20:]]))`))
}

// waitFor tries until it works.
func waitFor(t *testing.T, what string, try func() error) {
	t.Helper()
	err := errors.New("not tried")
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func get(url, token string, into any) error {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// composed is a command of compose.
func composed(args ...string) []string { return append(strings.Fields(engine), args...) }

func compose(t *testing.T, args ...string) { t.Helper(); must(t, composed(args...)...) }

func docker(t *testing.T, args ...string) {
	t.Helper()
	must(t, append([]string{"docker"}, args...)...)
}

func container(t *testing.T, service string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "docker", "ps", "-aq", "--filter", "label=com.docker.compose.service="+service))
}

// output runs a command in the top directory and returns what it prints.
func output(args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "../..", &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := output(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
