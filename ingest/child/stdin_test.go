package child_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/child"
)

const line = `{"type":"control_request","request_id":"cbcast-1","request":{"subtype":"interrupt"}}` + "\n"

func TestInject(t *testing.T) {
	t.Parallel()
	p := launch(t, config("cat"))
	p.stdin.WriteString("one\n")
	p.line()
	if err := p.Inject(t.Context(), []byte(line)); err != nil {
		t.Fatal(err)
	}
	if got := p.line() + "\n"; got != line {
		t.Errorf("child got %q, want %q", got, line)
	}
	p.stdin.WriteString("two\n")
	p.line()
	p.stdin.Close()
	res := p.Wait()
	var got []string
	for {
		c, err := p.Tap().Next(t.Context())
		if err != nil {
			break
		}
		if c.Stream == child.In {
			got = append(got, fmt.Sprintf("%s injected=%v eof=%v", c.Data, c.Injected, c.EOF))
		}
	}
	want := []string{"one\n injected=false eof=false", line + " injected=true eof=false", "two\n injected=false eof=false", " injected=false eof=true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tapped stdin (-want +got):\n%s", diff)
	}
	if res.Injected != 1 || res.In.Bytes != 8 {
		t.Errorf("Injected = %d, In.Bytes = %d; want 1, 8", res.Injected, res.In.Bytes)
	}
}

// A line of ours waits for the end of the parent's.
func TestInjectMidLine(t *testing.T) {
	t.Parallel()
	p := start(t, config("cat"))
	p.stdin.WriteString("half a ")
	b := make([]byte, 100)
	p.stdout.Read(b) // the child has it
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Inject(ctx, []byte(line)) }()
	why := errors.New("too late")
	cancel(why)
	if err := <-done; !errors.Is(err, child.ErrMidLine) || !errors.Is(err, why) {
		t.Errorf("Inject inside a line = %v, want ErrMidLine and the cause", err)
	}
	go func() { done <- p.Inject(t.Context(), []byte(line)) }()
	p.stdin.WriteString("line\n")
	if err := <-done; err != nil {
		t.Errorf("Inject = %v", err)
	}
	p.stdin.Close()
	if got, want := p.rest(), "line\n"+line; got != want {
		t.Errorf("child got %q, want %q", got, want)
	}
	p.wait()
}

func TestInjectGate(t *testing.T) {
	t.Parallel()
	cfg := config("cat")
	cfg.Gated = true
	p := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Inject(ctx, []byte(line)); !errors.Is(err, child.ErrGate) {
		t.Errorf("Inject = %v, want ErrGate", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Inject(t.Context(), []byte(line)) }()
	p.stdin.WriteString("initialize\n")
	if got := p.line(); got != "initialize" {
		t.Errorf("first line = %q", got)
	}
	p.OpenGate()
	if err := <-done; err != nil {
		t.Errorf("Inject = %v", err)
	}
	if got := p.line() + "\n"; got != line {
		t.Errorf("then = %q", got)
	}
	p.stdin.Close()
	p.wait()
}

func TestInjectRefused(t *testing.T) {
	t.Parallel()
	t.Run("line", func(t *testing.T) {
		p := start(t, config("cat"))
		for _, bad := range []string{"", "\n", "x", "a\nb\n", "a\r\n", "\u00e4\n", "\u2028\n", "a\x00\n"} {
			if err := p.Inject(t.Context(), []byte(bad)); !errors.Is(err, child.ErrLine) {
				t.Errorf("Inject(%q) = %v, want ErrLine", bad, err)
			}
		}
		p.stdin.Close()
		p.wait()
	})
	t.Run("after EOF", func(t *testing.T) {
		p := start(t, config("cat"))
		p.stdin.WriteString("half")
		p.stdout.Read(make([]byte, 100)) // the child has it
		done := make(chan error, 1)
		go func() { done <- p.Inject(t.Context(), []byte(line)) }()
		p.stdin.Close()
		if err := <-done; !errors.Is(err, child.ErrStdinClosed) && !errors.Is(err, child.ErrExited) {
			t.Errorf("Inject while EOF came = %v, want ErrStdinClosed", err)
		}
		p.wait()
	})
	t.Run("no stdin", func(t *testing.T) {
		cfg := config("cat")
		p, err := child.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		go readTap(p.Tap())
		if err := p.Inject(t.Context(), []byte(line)); !errors.Is(err, child.ErrNoStdin) {
			t.Errorf("Inject = %v, want ErrNoStdin", err)
		}
		if res := p.Wait(); res.Code != 0 || res.Out.Bytes != 0 {
			t.Errorf("result = %+v", res)
		}
	})
}

// Case 045: what is asked at or after the exit fails at once.
func TestInjectExited(t *testing.T) {
	t.Parallel()
	p := start(t, config("idle"))
	p.line()
	// The child does not read: the pipe fills, and one call hangs in its write.
	fill := bytes.Repeat([]byte("x"), 1<<20)
	p.stdin.SetWriteDeadline(time.Now().Add(limit))
	go func() { p.stdin.Write(append(fill, '\n')) }()
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- p.Inject(t.Context(), []byte(line)) }()
	}
	p.Signal(syscall.SIGKILL)
	for range 3 {
		// A child that ends closes its stdin a moment before.
		if err := <-done; err != nil && !errors.Is(err, child.ErrExited) && !errors.Is(err, child.ErrStdinClosed) {
			t.Errorf("Inject during the exit = %v, want ErrExited", err)
		}
	}
	p.wait()
	if err := p.Inject(t.Context(), []byte(line)); !errors.Is(err, child.ErrExited) {
		t.Errorf("Inject after the exit = %v, want ErrExited", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Signal after the exit = %v, want ErrProcessDone", err)
	}
}

// The child never reads: no call lasts longer than its context.
func TestInjectNotRead(t *testing.T) {
	t.Parallel()
	p := start(t, config("idle"))
	p.line()
	short := append(bytes.Repeat([]byte("x"), 4095), '\n')
	var err error
	n := 0
	for ; err == nil; n++ { // until the pipe is full
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = p.Inject(ctx, short)
		cancel()
	}
	if !errors.Is(err, child.ErrNotRead) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Inject into a full pipe = %v, want ErrNotRead", err)
	}
	p.Signal(syscall.SIGKILL)
	res, tap := p.wait()
	if res.Injected != n-1 || len(tap[child.In]) != (n-1)*len(short) {
		t.Errorf("Injected = %d, tap %d bytes; want %d lines", res.Injected, len(tap[child.In]), n-1)
	}
}

// A line longer than the pipe is cut by its context. The rest comes before
// anything else.
func TestInjectPartial(t *testing.T) {
	t.Parallel()
	p := launch(t, config("late-cat"))
	p.line()
	long := append(bytes.Repeat([]byte("x"), 1<<20), '\n')
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Inject(ctx, long) }()
	for c := (child.Chunk{}); !c.Injected; { // until its beginning is in the pipe
		var err error
		if c, err = p.Tap().Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, child.ErrPartial) {
		t.Fatalf("Inject = %v, want ErrPartial", err)
	}
	go func() { p.tapped <- readTap(p.Tap()) }()
	p.stdin.WriteString("parent's\n")
	p.stdin.Close()
	p.Signal(syscall.SIGUSR1) // now it reads
	out := p.rest()
	if want := string(long) + "parent's\n"; out != want {
		t.Errorf("child got %d bytes, want %d; ends with %q", len(out), len(want), out[max(0, len(out)-20):])
	}
	p.wait()
}

func TestHoldStdin(t *testing.T) {
	t.Parallel()
	cfg := config("cat")
	cfg.HoldStdin = true
	p := start(t, cfg)
	p.stdin.WriteString("prompt without LF")
	p.stdin.Close()
	if got := p.line(); got != "prompt without LF" {
		t.Errorf("child got %q", got)
	}
	if err := p.Inject(t.Context(), []byte(line)); err != nil {
		t.Errorf("Inject after the parent's EOF = %v", err)
	}
	if got := p.line() + "\n"; got != line {
		t.Errorf("child got %q, want %q", got, line)
	}
	p.ReleaseStdin()
	p.ReleaseStdin()
	if got := p.rest(); got != "" {
		t.Errorf("rest = %q", got)
	}
	if err := p.Inject(t.Context(), []byte(line)); !errors.Is(err, child.ErrStdinClosed) && !errors.Is(err, child.ErrExited) {
		t.Errorf("Inject after release = %v", err)
	}
	if res, _ := p.wait(); !res.In.EOF || res.Code != 0 {
		t.Errorf("result = %+v", res)
	}
}

// Released before the EOF came: it is passed on when it comes.
func TestReleaseBeforeEOF(t *testing.T) {
	t.Parallel()
	cfg := config("cat")
	cfg.HoldStdin = true
	p := start(t, cfg)
	p.ReleaseStdin()
	p.stdin.WriteString("tail")
	p.stdin.Close()
	if got := p.rest(); got != "tail" {
		t.Errorf("child got %q, want %q", got, "tail")
	}
	p.wait()
}

// Without a parent the child's stdin is ours alone.
func TestDriver(t *testing.T) {
	t.Parallel()
	cfg := config("cat")
	cfg.HoldStdin = true
	r, w := pipe(t)
	cfg.Stdout = w
	p, err := child.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go readTap(p.Tap())
	for range 3 {
		if err := p.Inject(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	p.ReleaseStdin()
	got, _ := io.ReadAll(r)
	if want := strings.Repeat(line, 3); string(got) != want {
		t.Errorf("child got %q", got)
	}
	p.Wait()
}

// The held EOF does not outlive the child.
func TestHoldStdinExit(t *testing.T) {
	t.Parallel()
	cfg := config("exit", "3")
	cfg.HoldStdin = true
	p := start(t, cfg)
	p.stdin.Close()
	if res, _ := p.wait(); res.Code != 3 {
		t.Errorf("code = %d, want 3", res.Code)
	}
}
