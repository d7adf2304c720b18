// Command sizing measures what a deployment needs: the broker's memory for each subject and
// message id, its disk for each event, and an edge's processor time and memory. All of it is
// counted, not timed, so that a busy machine gives the same figures. bench/sizing/run runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "role-agent" {
		if err := say(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "sizing:", err)
			os.Exit(1)
		}
		return
	}
	program := flag.String("cbcast", "", "the program")
	n := flag.Int("n", 100_000, "messages of each kind; 0 leaves the broker's memory out")
	frames := flag.Int("frames", 20_000, "lines of the agent")
	flag.Parse()
	if err := run(context.Background(), *program, *n, *frames); err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, n, frames int) error {
	fmt.Printf("\n| what | figure |\n|---|---|\n")
	for _, c := range []struct {
		what     string
		subjects int
		ids      bool
	}{{"one subject, no ids", 1, false}, {"one subject, an id each", 1, true}, {"a subject each, no ids", n, false}} {
		if n <= 0 {
			break
		}
		if err := memory(ctx, c.what, n, c.subjects, c.ids); err != nil {
			return err
		}
	}
	for _, size := range []int{256, 1024, 4096} {
		if err := edge(ctx, program, frames, size); err != nil {
			return err
		}
	}
	return idle(ctx, program)
}

// say writes a file's lines as fast as an edge of a busy machine takes them without a gap.
func say(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for lines := bytes.SplitAfter(b, []byte("\n")); len(lines) > 0; {
		n := min(len(lines), 40)
		if _, err := os.Stdout.Write(bytes.Join(lines[:n], nil)); err != nil {
			return err
		}
		lines = lines[n:]
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// place is a server with the streams in a directory of its own.
func place(ctx context.Context) (s *natsd.Server, dir string, end func(), err error) {
	if dir, err = os.MkdirTemp("", "cbcast-sizing"); err != nil {
		return nil, "", nil, err
	}
	s, err = natsd.Start(natsd.Options{Dir: dir, MaxStore: -1})
	if err != nil {
		return nil, "", nil, err
	}
	end = func() {
		_ = s.Shutdown(context.Background())
		_ = os.RemoveAll(dir)
	}
	b, err := bus.Connect(ctx, bus.Config{URL: s.ClientURL()}, nil)
	if err == nil {
		_, err = b.Ensure(ctx, bus.Topology{MaxBytes: 8 << 30, SideBytes: 1 << 30, Duplicates: time.Hour})
		b.Close()
	}
	return s, dir, end, err
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// memory is what n messages leave in the server's heap. They are small, and their blocks' caches
// are let go before it is read.
func memory(ctx context.Context, what string, n, subjects int, ids bool) error {
	s, _, end, err := place(ctx)
	if err != nil {
		return err
	}
	defer end()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return err
	}
	before := heap()
	for i := range n {
		m := &nats.Msg{Subject: fmt.Sprintf("cbc.ev.0.size.0197d2a0-7c1e-7000-8000-%012d.0197d2a0-7c1e-7000-8000-000000000000._.msg", i%subjects), Header: nats.Header{}, Data: []byte("x")}
		if ids {
			m.Header.Set("Nats-Msg-Id", fmt.Sprintf("0197d2a0-7c1e-7000-8000-000000000000/%d", i))
		}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(15 * time.Second) // block caches live 10 s
	fmt.Printf("| broker's heap, %s | %d B a message |\n", what, (int64(heap())-int64(before))/int64(n))
	return nil
}

func used(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// start is cbcast run with an agent, against a server.
func start(ctx context.Context, program, url, home string, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, append([]string{"run", "--dialect", "claude", "--"}, argv...)...)
	c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CBCAST_NATS_URL=" + url, "CBCAST_EXIT_FLUSH=2m"}
	c.Stderr = os.Stderr
	return c
}

// peak runs c and returns the most memory that it had, in MiB. What the kernel tells of a process
// that ended is no less than this one's own, so it is read while it lives.
func peak(c *exec.Cmd) (mib int64, err error) {
	if err := c.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case err := <-done:
			return mib, err
		case <-t.C:
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
			for line := range strings.Lines(string(b)) {
				if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
					if n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64); err == nil {
						mib = max(mib, n>>10)
					}
				}
			}
		}
	}
}

// edge is what a run of so many lines takes, of processor, memory and disk. What is spent without
// lines is taken off.
func edge(ctx context.Context, program string, frames, size int) error {
	s, dir, end, err := place(ctx)
	if err != nil {
		return err
	}
	defer end()
	home, err := os.MkdirTemp("", "cbcast-sizing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	line := []byte(`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"` + "\x00" + `"}]},"session_id":"s1","uuid":"u1"}` + "\n")
	line = bytes.Replace(line, []byte{0}, bytes.Repeat([]byte("agent "), (size-len(line)+6)/6), 1)
	file := filepath.Join(home, "said")
	if err := os.WriteFile(file, bytes.Repeat(line, frames), 0o600); err != nil {
		return err
	}
	nothing := start(ctx, program, s.ClientURL(), home, "true")
	if err := nothing.Run(); err != nil {
		return err
	}
	was := used(dir)
	c := start(ctx, program, s.ClientURL(), home, os.Args[0], "role-agent", file)
	rss, err := peak(c)
	if err != nil {
		return err
	}
	cpu := func(c *exec.Cmd) time.Duration { return c.ProcessState.UserTime() + c.ProcessState.SystemTime() }
	if used(dir)-was < int64(frames*size) {
		return errors.New("not every line is on the bus: the machine is too busy")
	}
	fmt.Printf("| edge, lines of %d B: processor time | %.0f µs a line (a run of none: %d ms) |\n", size, float64((cpu(c)-cpu(nothing)).Microseconds())/float64(frames), cpu(nothing).Milliseconds())
	fmt.Printf("| edge, lines of %d B: peak memory | %d MiB |\n", size, rss)
	fmt.Printf("| broker's disk, lines of %d B | %d B a line, one replica |\n", size, (used(dir)-was)/int64(frames))
	return nil
}

// idle is an edge whose agent says nothing for a minute.
func idle(ctx context.Context, program string) error {
	s, _, end, err := place(ctx)
	if err != nil {
		return err
	}
	defer end()
	home, err := os.MkdirTemp("", "cbcast-sizing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	short, long := start(ctx, program, s.ClientURL(), home, "sleep", "1"), start(ctx, program, s.ClientURL(), home, "sleep", "31")
	if err := short.Run(); err != nil {
		return err
	}
	rss, err := peak(long)
	if err != nil {
		return err
	}
	cpu := func(c *exec.Cmd) time.Duration { return c.ProcessState.UserTime() + c.ProcessState.SystemTime() }
	fmt.Printf("| idle edge | %.1f ms of a processor a second, %d MiB |\n", float64((cpu(long)-cpu(short)).Microseconds())/30_000, rss)
	return nil
}
