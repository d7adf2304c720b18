package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A receiver gets notices.
type receiver struct {
	mu   sync.Mutex
	got  map[string]int // by run and kind
	bad  []string
	hook *webhooks.Webhook
	run  string
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
func (r *receiver) one() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) > 0 || len(r.got) != 1 || r.got[r.run+" finished"] != 1 {
		return fmt.Errorf("notices %v, bad ones %v", r.got, r.bad)
	}
	return nil
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

func get(url string, into any) error {
	resp, err := http.Get(url)
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
