// Package upgrade tests that two versions work with each other while a deployment is changed
// from one to the other and back: what an earlier one has left on a disk, and each one's
// edge with the other's relay.
package upgrade

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

const (
	fixtures = "../testdata/old"
	// patience bounds what has to happen. Nothing waits for it but a failure.
	patience = 2 * time.Minute
)

// unpack puts a fixture's folder into a fresh one and returns it.
func unpack(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(fixtures, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(at, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(at, b, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func said(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, "stdout.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A party is a version of the program with a state directory.
type party struct {
	t       *testing.T
	program string
	env     []string
	state   string
}

func newParty(t *testing.T, program, state string, env ...string) *party {
	home := t.TempDir()
	return &party{t: t, program: program, state: state, env: append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CBCAST_STATE_DIR=" + state, "CBCAST_RELAY_ADDR=127.0.0.1:0",
		"CBCAST_MAX_AGE=876000h", "CBCAST_EXIT_FLUSH=1m", "CBCAST_UP_WITH=none",
	}, env...)}
}

func (p *party) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(p.t.Context(), p.program, args...)
	c.Env = p.env
	return c
}

func (p *party) output(args ...string) string {
	p.t.Helper()
	c := p.command(args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		p.t.Fatalf("%s %v: %v\n%s%s", filepath.Base(p.program), args, err, out, &stderr)
	}
	return string(out)
}

// up starts the relay and returns its address.
func (p *party) up() string {
	p.t.Helper()
	c := p.command("up")
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatalf("up: %v\n%s", err, &log)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "relay"))
}

// A view is what these tests read of a run.
type view struct {
	State struct {
		State   string
		LastSeq uint64 `json:"last_seq"`
		Verdict *struct {
			Verdict string
		}
		Exit struct {
			Reason string
		}
	}
}

func (v view) verdict() string {
	if v.State.Verdict == nil {
		return ""
	}
	return v.State.Verdict.Verdict
}

// ask sends a request to a relay and reads its answer.
func (p *party) ask(method, url string, v any) {
	p.t.Helper()
	if err := p.try(method, url, v); err != nil {
		p.t.Fatal(err)
	}
}

func (p *party) try(method, url string, v any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(p.state, "token"))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	q.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %.300s", method, url, resp.Status, body)
	}
	return json.Unmarshal(body, v)
}

// until asks ok until it says yes.
func (p *party) until(what string, ok func() bool) {
	p.t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > patience {
			p.t.Fatalf("it does not come that %s", what)
		}
	}
}

func startServer(t *testing.T) string {
	t.Helper()
	s, err := natsd.Start(natsd.Options{Dir: t.TempDir(), MaxStore: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s.ClientURL()
}

// What an earlier version could not ship is shipped by this one: every line of the agent,
// and the end of the run whose edge was killed.
func TestOldSpool(t *testing.T) {
	url := startServer(t)
	p := newParty(t, program.Path, unpack(t, "spool"), "CBCAST_NATS_URL="+url)
	p.output("provision")
	out := p.output("flush")
	if strings.Count(out, "events on the bus") != 2 {
		t.Fatalf("flush: %s", out)
	}
	relay := p.up()
	lines := bytes.SplitAfter(said(t), []byte("\n"))
	for _, c := range []struct {
		state, verdict, reason string
		lines                  int
	}{{"done", "success", "", 22}, {"done", "incomplete", "edge_died", 21}} {
		id := ""
		for line := range strings.Lines(p.output("ls")) {
			if strings.Contains(line, " "+c.verdict+" ") {
				id, _, _ = strings.Cut(line, " ")
			}
		}
		if id == "" {
			t.Fatalf("no run is %s:\n%s", c.verdict, p.output("ls"))
		}
		var v view
		p.ask(http.MethodGet, relay+"/v1/runs/"+id, &v)
		if diff := cmp.Diff([]string{c.state, c.verdict, c.reason}, []string{v.State.State, v.verdict(), v.State.Exit.Reason}); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(string(bytes.Join(lines[:c.lines], nil)), p.output("tail", "--raw", id)); diff != "" {
			t.Errorf("%s: lines (-want +got)\n%s", c.verdict, diff)
		}
	}
}

// The local store of an earlier version is opened by this one, and goes on.
func TestOldStore(t *testing.T) {
	p := newParty(t, program.Path, unpack(t, "store"))
	relay := p.up()
	old := strings.Fields(strings.SplitN(p.output("ls"), "\n", 2)[1])[0]
	var v view
	p.ask(http.MethodGet, relay+"/v1/runs/"+old, &v)
	if diff := cmp.Diff([]any{"done", "success", uint64(25)}, []any{v.State.State, v.verdict(), v.State.LastSeq}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(string(said(t)), p.output("tail", "--raw", old)); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
	p.output("run", "--", "echo", "new")
	if got := p.output("tail", "--raw", "last"); got != "new\n" {
		t.Errorf("the new run on the old store: %q", got)
	}
	if got := strings.Count(p.output("ls"), "\n"); got != 3 {
		t.Errorf("%d lines of ls, want a title and two runs", got)
	}
}
