package child_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
)

// BenchmarkStartExit runs /bin/true, bare and wrapped in turns, and reports the
// medians and what wrapping adds.
func BenchmarkStartExit(b *testing.B) {
	path, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	var bare, wrapped []time.Duration
	for b.Loop() {
		begin := time.Now()
		r, w := pipe(b)
		c := exec.Command(path)
		c.Stdin, c.Stdout, c.Stderr = null, w, w
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		w.Close()
		io.Copy(io.Discard, r)
		c.Wait()
		r.Close()
		bare = append(bare, time.Since(begin))

		begin = time.Now()
		r, w = pipe(b)
		p, err := child.Start(child.Config{Path: path, Env: []string{}, Stdin: null, Stdout: w, Adopt: true})
		if err != nil {
			b.Fatal(err)
		}
		go readTap(p.Tap())
		io.Copy(io.Discard, r)
		p.Wait()
		p.Close()
		r.Close()
		wrapped = append(wrapped, time.Since(begin))
	}
	b.ReportMetric(ms(median(bare)), "bare-ms")
	b.ReportMetric(ms(median(wrapped)), "wrapped-ms")
	b.ReportMetric(ms(median(wrapped)-median(bare)), "added-ms")
}

// BenchmarkThroughput moves 64 MiB from a process that writes lines to one that
// reads them: over one pipe, over two with cat between, and over two with the
// wrapper between. The wrapper is compared with both.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("line=%d", size), func(b *testing.B) {
			const total = 64 << 20
			var bare, cat, wrapped []time.Duration
			args := []string{fmt.Sprint(size), fmt.Sprint(total / size)}
			for b.Loop() {
				bare = append(bare, move(b, total, self("bench-write", args...)))
				cat = append(cat, move(b, total, self("bench-write", args...), exec.Command("cat")))
				wrapped = append(wrapped, move(b, total, self("bench-wrap", args...)))
			}
			mib := func(d []time.Duration) float64 { return total / (1 << 20) / median(d).Seconds() }
			b.ReportMetric(mib(bare), "bare-MiB/s")
			b.ReportMetric(mib(cat), "cat-MiB/s")
			b.ReportMetric(mib(wrapped), "wrapped-MiB/s")
			b.ReportMetric(mib(wrapped)/mib(bare), "of-bare")
			b.ReportMetric(mib(wrapped)/mib(cat), "of-cat")
		})
	}
}

// move runs the commands as a pipeline and measures from the first byte of
// output to the end.
func move(b *testing.B, total int, cmds ...*exec.Cmd) time.Duration {
	var from *os.File
	for _, c := range cmds {
		r, w := pipe(b)
		c.Stdin, c.Stdout = from, w
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		w.Close()
		from = r
	}
	buf := make([]byte, 128<<10)
	n, err := from.Read(buf)
	begin := time.Now()
	for err == nil {
		var m int
		m, err = from.Read(buf)
		n += m
	}
	took := time.Since(begin)
	from.Close()
	for _, c := range cmds {
		c.Wait()
	}
	if n != total {
		b.Fatalf("moved %d bytes, want %d", n, total)
	}
	return took
}

// BenchmarkLatency sends a line to a child that echoes it, and waits for it:
// through two pipes, and through the wrapper, which is crossed twice.
func BenchmarkLatency(b *testing.B) {
	line := []byte(strings.Repeat("x", 511) + "\n")
	ping := func(c *exec.Cmd) (send func() time.Duration, end func()) {
		in, w := pipe(b)
		r, out := pipe(b)
		c.Stdin, c.Stdout = in, out
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 4096)
		return func() time.Duration {
				begin := time.Now()
				w.Write(line)
				for n := 0; n < len(line); {
					m, err := r.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					n += m
				}
				return time.Since(begin)
			}, func() {
				w.Close()
				c.Process.Signal(syscall.SIGTERM)
				c.Wait()
			}
	}
	bare, endBare := ping(self("cat"))
	wrapped, endWrapped := ping(self("bench-wrap-cat"))
	var tb, tw []time.Duration
	for range 200 {
		bare()
		wrapped()
	}
	for b.Loop() {
		tb = append(tb, bare())
		tw = append(tw, wrapped())
	}
	endBare()
	endWrapped()
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(median(tb)), "bare-µs")
	b.ReportMetric(us(median(tw)), "wrapped-µs")
	b.ReportMetric(us(median(tw)-median(tb))/2, "added-µs/line")
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func init() {
	children["bench-write"] = benchWrite
	children["bench-wrap"] = func(a []string) int { return benchWrap("bench-write", a) }
	children["bench-wrap-cat"] = func(a []string) int { return benchWrap("cat", a) }
}

func benchWrite(a []string) int {
	line := []byte(strings.Repeat("x", atoi(a[0])-1) + "\n")
	for range atoi(a[1]) {
		os.Stdout.Write(line)
	}
	return 0
}

// benchWrap is wrap with a tap that is read and thrown away.
func benchWrap(name string, args []string) int {
	exe, _ := os.Executable()
	p, err := child.Start(child.Config{
		Path: exe, Args: append([]string{"child"}, args...), Env: append(slices.Clone(environ), childEnv+"="+name),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Adopt: true,
	})
	if err != nil {
		return 97
	}
	go func() {
		for {
			if _, err := p.Tap().Next(context.Background()); err != nil {
				return
			}
		}
	}()
	return p.Wait().Code
}
