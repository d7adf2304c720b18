package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// emitRole writes frames to stdout: as fast as it can, each in one write or in
// writes of 64 KiB, or paced and with the time in front of each.
func emitRole(args []string) error {
	fs := flag.NewFlagSet("role-emit", flag.ContinueOnError)
	n := fs.Int("n", 0, "frames")
	size := fs.Int("size", 512, "bytes of a frame")
	bulk := fs.Bool("bulk", false, "writes of 64 KiB")
	pace := fs.Duration("pace", 0, "between frames; each begins with its time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	all := frames(200, *size)[1:]
	for i := range all {
		all[i] = append(all[i], '\n')
	}
	w := bufio.NewWriterSize(os.Stdout, 64<<10)
	for i := range *n {
		f := all[i%len(all)]
		if *pace > 0 {
			time.Sleep(*pace)
			// A number at the same place in every frame: the frame stays one.
			stamp := strconv.AppendInt(nil, time.Now().UnixNano(), 10)
			f = append(append(append([]byte(`{"t":`), stamp...), ','), f[1:]...)
		}
		if _, err := w.Write(f); err != nil {
			return err
		}
		if !*bulk {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// passThrough compares what a parent reads through cbcast run with what it reads
// from the child directly.
func passThrough(ctx context.Context, o options) error {
	if o.cbcast == "" {
		return errors.New("needs -cbcast")
	}
	home, err := os.MkdirTemp("", "cbcast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	wraps := []wrap{{name: "bare pipe"}}
	for i, program := range strings.Split(o.cbcast, ",") {
		mark := strings.Repeat("′", i) // of the second program
		argv := []string{program, "run", "--"}
		wraps = append(wraps,
			wrap{name: "cbcast run, spool only" + mark, argv: argv, env: "CBCAST_HUB=never", home: home},
			wrap{name: "cbcast run, own hub" + mark, argv: argv, env: "CBCAST_HUB=auto", home: home})
	}
	for _, w := range []struct {
		title string
		size  int
		bytes int
		bulk  bool
	}{
		{"a write for each frame of 512 B", 512, 100 << 20, false},
		{"a write for each frame of 4 KiB", 4 << 10, 400 << 20, false},
		{"writes of 64 KiB, frames of 512 B", 512, 200 << 20, true},
	} {
		n := o.scaled(w.bytes / w.size)
		args := []string{"-n", strconv.Itoa(n), "-size", strconv.Itoa(w.size), "-bulk=" + strconv.FormatBool(w.bulk)}
		var cs []*candidate
		ends := make([]candidate, len(wraps))
		for i, wr := range wraps {
			cs = append(cs, &candidate{name: wr.name, run: func(ctx context.Context) (float64, error) {
				return wr.throughput(ctx, args, &ends[i].got)
			}})
		}
		if err := interleave(ctx, o.rounds, cs); err != nil {
			return err
		}
		table("**Pass-through, "+w.title+"**, from the child's start to the last byte", "MB/s", cs, cs[0])
		for i, wr := range wraps {
			fmt.Printf("\n%s: gone %.0f ms after the last byte.\n", wr.name, ends[i].median())
		}
	}
	var cs []*candidate
	args := []string{"-n", strconv.Itoa(o.scaled(1000)), "-pace", "1ms"}
	for _, wr := range wraps {
		cs = append(cs, &candidate{name: wr.name, run: func(ctx context.Context) (float64, error) { return wr.latency(ctx, args) }})
	}
	if err := interleave(ctx, o.rounds, cs); err != nil {
		return err
	}
	table("**Median latency of a line**, child's write to parent's read, 1000 lines of 512 B/s", "µs", cs, cs[0])
	for _, c := range cs[1:] {
		fmt.Printf("\n%s adds %.0f µs.\n", c.name, c.median()-cs[0].median())
	}
	return nil
}

// wrap is what stands between child and parent.
type wrap struct {
	name string
	argv []string
	env  string
	home string
}

// read runs the child with args and gives its output to f.
func (w wrap) read(ctx context.Context, args []string, f func(io.Reader) error) error {
	argv := append(append(slices.Clone(w.argv), os.Args[0], "role-emit"), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+w.home, "XDG_CONFIG_HOME="+w.home, "CBCAST_EXIT_FLUSH=1ms", w.env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = f(out)
	return errors.Join(err, cmd.Wait())
}

// throughput is measured up to the last byte; how much later the end of file
// comes is kept in late.
func (w wrap) throughput(ctx context.Context, args []string, late *[]float64) (float64, error) {
	var n int64
	begin := time.Now()
	last := begin
	err := w.read(ctx, args, func(r io.Reader) error {
		for buf := make([]byte, 64<<10); ; {
			k, err := r.Read(buf)
			if k > 0 {
				n, last = n+int64(k), time.Now()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	*late = append(*late, float64(time.Since(last).Microseconds())/1000)
	if w.home != "" {
		err = errors.Join(err, clear(w.home))
	}
	return float64(n) / 1e6 / last.Sub(begin).Seconds(), err
}

// latency is the median in microseconds.
func (w wrap) latency(ctx context.Context, args []string) (float64, error) {
	var all []time.Duration
	err := w.read(ctx, args, func(r io.Reader) error {
		for br := bufio.NewReaderSize(r, 64<<10); ; {
			line, err := br.ReadSlice('\n')
			now := time.Now()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			stamp, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"t":`)), []byte(","))
			sent, err := strconv.ParseInt(string(stamp), 10, 64)
			if err != nil {
				return err
			}
			all = append(all, now.Sub(time.Unix(0, sent)))
		}
	})
	if len(all) == 0 {
		return 0, errors.Join(err, io.ErrUnexpectedEOF)
	}
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000, err
}

// clear removes what a run left, so that the next finds the disk alike.
func clear(home string) error {
	entries, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(home + "/" + e.Name()); err != nil {
			return err
		}
	}
	return nil
}
