package compose

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay/client"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/program"
)

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

// A record is what a reader of the relay was told.
type record struct {
	events, frames int
	out            []byte // of the child's stdout
	spans          []event.Span
}

// follow reads the run's stream to its end, and does to the fleet what the agent's steps say.
func (a *agent) follow(t *testing.T, c client.Client) *record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waitFor(t, "the run", func() error { _, err := c.State(ctx, a.run); return err })
	h := &record{}
	err := c.Follow(ctx, a.run, 0, func(e client.Event) error {
		switch {
		case e.Name == "gap" || e.Name == "reset" || e.Name == "lost":
			return fmt.Errorf("%s: %s", e.Name, e.Data)
		case e.Seq == 0:
			return nil
		case e.Seq != uint64(h.events+1):
			return fmt.Errorf("event %d follows %d", e.Seq, h.events)
		}
		h.events++
		frame, err := event.ParseJSON(e.Data)
		if err != nil || frame.Stream != event.Out {
			return err
		}
		for _, s := range frame.Redacted {
			s.Off += len(h.out)
			h.spans = append(h.spans, s)
		}
		h.out = append(append(h.out, frame.Data...), '\n')
		h.frames++
		if steps := a.steps[h.frames]; len(steps) > 0 {
			for _, s := range steps {
				compose(t, s...)
			}
			a.more(t)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("after %d events, %d frames: %v", h.events, h.frames, err)
	}
	return h
}

func newRun(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(must(t, "python3", "-c", `import os, time
b = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10)); b[6] = b[6] & 15 | 112; b[8] = b[8] & 63 | 128
h = b.hex(); print("-".join([h[:8], h[8:12], h[12:16], h[16:20], h[20:]]))`))
}
