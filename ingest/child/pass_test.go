package child_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/child"
)

func TestPassThrough(t *testing.T) {
	t.Parallel()
	p := start(t, config("cat"))
	rnd := rand.New(rand.NewPCG(1, 2))
	in := make([]byte, 5<<20)
	for i := range in {
		in[i] = byte(rnd.Uint32())
	}
	go func() {
		for b := in; len(b) > 0; {
			n := min(len(b), 1+rnd.IntN(200<<10))
			p.stdin.Write(b[:n])
			b = b[n:]
		}
		p.stdin.Close()
	}()
	out := p.rest()
	res, tap := p.wait()
	if out != string(in) {
		t.Errorf("parent got %d bytes, not those %d written", len(out), len(in))
	}
	if !bytes.Equal(tap[child.Out], in) || !bytes.Equal(tap[child.In], in) {
		t.Errorf("tap got %d bytes out, %d in, not those %d written", len(tap[child.Out]), len(tap[child.In]), len(in))
	}
	lines := int64(bytes.Count(in, []byte("\n")))
	for s, st := range map[child.Stream]child.Stats{child.Out: res.Out, child.In: res.In} {
		st.Reads = 0
		want := child.Stats{Bytes: int64(len(in)), Lines: lines, EOF: true}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Errorf("stats of %s (-want +got):\n%s", s, diff)
		}
	}
	if res.Code != 0 || res.Signal != 0 || res.PipeHeld || res.ReaderClosed {
		t.Errorf("result = %+v", res)
	}
}

func TestStderr(t *testing.T) {
	t.Parallel()
	p := start(t, config("both", "500"))
	errs := make(chan string, 1)
	go func() { b, _ := io.ReadAll(p.err); errs <- string(b) }()
	out := p.rest()
	_, tap := p.wait()
	p.Close()
	var wantOut, wantErr strings.Builder
	for i := range 500 {
		fmt.Fprintf(&wantOut, "out %d\n", i)
		fmt.Fprintf(&wantErr, "err %d\n", i)
	}
	if out != wantOut.String() || string(tap[child.Out]) != out {
		t.Error("stdout is not the child's")
	}
	if string(tap[child.Err]) != wantErr.String() {
		t.Error("tapped stderr is not the child's")
	}
	// Stderr is not closed by the pump: a host may share it with us.
	p.closeStderr()
	if got := <-errs; got != wantErr.String() {
		t.Error("stderr is not the child's")
	}
}

// Half a line is passed on at once: the child waits until it was seen.
func TestHalfLine(t *testing.T) {
	t.Parallel()
	p := start(t, config("half"))
	b := make([]byte, 100)
	n, err := p.stdout.Read(b)
	if got, want := string(b[:n]), `{"type":"assi`; got != want || err != nil {
		t.Fatalf("first read = %q, %v; want %q", got, err, want)
	}
	p.stdin.WriteString("go on\n")
	if got, want := p.line(), `stant"}`; got != want {
		t.Errorf("then = %q, want %q", got, want)
	}
	p.wait()
}

// A write of the child that fits into the pipe reaches the host in one read.
func TestSeams(t *testing.T) {
	t.Parallel()
	p := launch(t, config("write", "60000"))
	b := make([]byte, 128<<10)
	n, err := p.stdout.Read(b)
	if n != 60000 || err != nil {
		t.Errorf("first read = %d bytes, %v; want 60000", n, err)
	}
	c, err := p.Tap().Next(t.Context())
	if len(c.Data) != 60000 || c.Stream != child.Out || err != nil {
		t.Errorf("first chunk = %d bytes of %s, %v; want 60000 of out", len(c.Data), c.Stream, err)
	}
	p.Signal(syscall.SIGKILL)
	p.Wait()
}

// Case 035: the child writes first and reads second, the parent the other way round.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	p := start(t, config("firstout"))
	p.stdin.SetWriteDeadline(time.Now().Add(limit))
	if _, err := p.stdin.Write(bytes.Repeat([]byte("p"), 128<<10)); err != nil {
		t.Fatal(err) // nobody has read the parent's stdout yet
	}
	p.stdin.Close()
	out := p.rest()
	contains(t, "stdout", out, `"read":131072`)
	if got, want := strings.Count(out, "\n"), 257; got != want {
		t.Errorf("lines = %d, want %d", got, want)
	}
	p.wait()
}

// Case 006: what the child left in the pipe is read, every time.
func TestExitBeforeEOF(t *testing.T) {
	t.Parallel()
	for range 100 {
		p := start(t, config("burst"))
		out := p.rest()
		_, tap := p.wait()
		if got := strings.Count(out, "\n"); got != 300 {
			t.Fatalf("parent got %d frames, want 300", got)
		}
		if got := bytes.Count(tap[child.Out], []byte("\n")); got != 300 {
			t.Fatalf("tap got %d frames, want 300", got)
		}
		p.stdout.Close()
		p.stdin.Close()
		p.stderr.Close()
	}
}

// A parent that reads slowly gets everything, however long after the exit.
func TestSlowParent(t *testing.T) {
	t.Parallel()
	// 64 KiB in the parent's pipe, the rest in our hands and the child's pipe.
	p := start(t, config("exit-full", "120"))
	<-p.Exited()
	time.Sleep(child.DrainTime + 500*time.Millisecond) //nolint:forbidigo // the slowness itself
	if got, want := len(p.rest()), 120<<10; got != want {
		t.Errorf("parent got %d bytes, want %d", got, want)
	}
	res, tap := p.wait()
	if len(tap[child.Out]) != 120<<10 || res.PipeHeld || !res.Out.EOF {
		t.Errorf("tap got %d bytes, result %+v", len(tap[child.Out]), res)
	}
}

// Case 040: a grandchild keeps stdout open for ever.
func TestPipeHeld(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	p := start(t, config("helpers", "1", "out"))
	pid := atoi(p.line())
	res, tap := p.wait()
	if took := time.Since(begin); took > child.DrainTime+limit/4 {
		t.Errorf("run ended after %v", took)
	}
	if !res.PipeHeld || res.Out.EOF || !res.Err.EOF {
		t.Errorf("PipeHeld = %v, EOF %v %v; want true, false, true", res.PipeHeld, res.Out.EOF, res.Err.EOF)
	}
	if len(tap[child.Out]) == 0 {
		t.Error("tap got nothing")
	}
	poll(t, "helper is gone", func() bool { return !alive(pid) })
	if res.Leftovers != 1 {
		t.Errorf("Leftovers = %d, want 1", res.Leftovers)
	}
}

// Case 038, in process: the reader goes away, the child is read on.
func TestReaderCloses(t *testing.T) {
	t.Parallel()
	p := start(t, config("cat"))
	for i := range 5 {
		fmt.Fprintf(p.stdin, "line %d\n", i)
		p.line()
	}
	p.stdout.Close()
	for i := range 1000 {
		fmt.Fprintf(p.stdin, "later %d\n", i)
	}
	p.stdin.Close()
	res, tap := p.wait()
	if !res.ReaderClosed || res.ReaderClosedLine != 5 || res.ReaderClosedByte != 35 {
		t.Errorf("reader closed = %v at line %d, byte %d; want true, 5, 35", res.ReaderClosed, res.ReaderClosedLine, res.ReaderClosedByte)
	}
	if got := bytes.Count(tap[child.Out], []byte("\n")); got != 1005 || res.Code != 0 {
		t.Errorf("tap got %d frames, code %d; want 1005, 0", got, res.Code)
	}
}

// The host sees what the child does to its ends, while the child lives.
func TestChildCloses(t *testing.T) {
	t.Parallel()
	t.Run("stdout", func(t *testing.T) {
		p := start(t, config("closeout"))
		if got := p.rest(); got != "last\n" {
			t.Errorf("stdout = %q, want %q and EOF", got, "last\n")
		}
		select {
		case <-p.Exited():
			t.Error("child has exited")
		default:
		}
		p.stdin.Close()
		p.wait()
	})
	t.Run("stdin", func(t *testing.T) {
		p := start(t, config("closein"))
		p.line()
		var err error
		p.stdin.SetWriteDeadline(time.Now().Add(limit))
		for err == nil {
			_, err = p.stdin.WriteString("nobody reads this\n")
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write = %v, want EPIPE", err)
		}
		if err := p.Inject(t.Context(), []byte("{}\n")); !errors.Is(err, child.ErrStdinClosed) {
			t.Errorf("Inject = %v, want ErrStdinClosed", err)
		}
		p.Signal(syscall.SIGKILL)
		p.wait()
	})
}

// A host that shares its descriptor with others may make it non-blocking.
func TestNonBlockingParent(t *testing.T) {
	t.Parallel()
	var fds, in [2]int
	if err := errors.Join(syscall.Pipe(fds[:]), syscall.Pipe(in[:])); err != nil {
		t.Fatal(err)
	}
	// Files made of blocking descriptors: the poller does not know them.
	w, stdin := os.NewFile(uintptr(fds[1]), "w"), os.NewFile(uintptr(in[0]), "stdin")
	syscall.SetNonblock(fds[1], true)
	syscall.SetNonblock(in[0], true)
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	syscall.CloseOnExec(in[0])
	syscall.CloseOnExec(in[1])
	cfg := config("cat")
	cfg.Stdin, cfg.Stdout = stdin, w
	p, err := child.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go readTap(p.Tap())
	want := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
	go func() {
		f := os.NewFile(uintptr(in[1]), "in")
		f.Write(want)
		f.Close()
	}()
	r := os.NewFile(uintptr(fds[0]), "r")
	defer r.Close()
	got, err := io.ReadAll(r)
	if !bytes.Equal(got, want) || err != nil {
		t.Errorf("parent got %d bytes, %v; want %d", len(got), err, len(want))
	}
	p.Wait()
}

// A signal after the end is kept for the caller and does not act.
func TestLate(t *testing.T) {
	// Not parallel: the whole process gets the signal.
	p := start(t, config("exit", "0"))
	p.wait()
	syscall.Kill(os.Getpid(), syscall.SIGUSR2)
	select {
	case s := <-p.Late():
		if s != syscall.SIGUSR2 {
			t.Errorf("late signal = %v, want SIGUSR2", s)
		}
	case <-time.After(limit):
		t.Error("no late signal")
	}
}
