// Command scale measures how a relay finds one run among very many: it fills a
// store with interleaved runs, begins a relay on it, and replays single runs over
// HTTP. bench/scale/run builds and runs it and appends its output to RESULTS.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/relay"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "role-server" {
		if err := serverRole(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	runs, each, active, partitions, samples int
	dir                                     string // of a store to keep or to use again
	hot                                     time.Duration
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("scale", flag.ContinueOnError)
	fs.IntVar(&o.runs, "runs", 100_000, "runs")
	fs.IntVar(&o.each, "each", 100, "events of each")
	fs.IntVar(&o.active, "active", 1000, "runs that are written at a time, an event of each in turn")
	fs.IntVar(&o.partitions, "partitions", 1, "event streams")
	fs.IntVar(&o.samples, "samples", 100, "runs that are replayed")
	fs.StringVar(&o.dir, "dir", "", "where the store is kept and found again; empty is a new one that is removed")
	fs.DurationVar(&o.hot, "hot", time.Millisecond, "how long a relay keeps what nobody watches; the default is next to nothing, to measure the store")
	if err := fs.Parse(args); err != nil {
		return err
	}
	s, err := startServer(ctx, o.dir)
	if err != nil {
		return err
	}
	defer s.stop()
	b, err := bus.Connect(ctx, bus.Config{URL: s.url}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	f := filler{o: o, url: s.url, bus: b}
	took, err := f.fill(ctx)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	fmt.Printf("\n**%d events of %d runs, %d at a time, in %d partition(s)**, one file store", o.runs*o.each, o.runs, o.active, o.partitions)
	if took > 0 {
		fmt.Printf("; filled at %.0f events/s", float64(o.runs*o.each)/took.Seconds())
	}
	fmt.Printf("; server %d MiB\n\n", rss(s.pid)>>20)
	return measure(ctx, o, b, s)
}

// measure begins a relay and asks it.
func measure(ctx context.Context, o options, b *bus.Bus, s *server) error {
	before := heap()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r := relay.New(relay.Options{Bus: b, Token: "scale", Partitions: o.partitions, Config: relay.Config{LostGrace: time.Hour, HotFor: o.hot}})
	rctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	var ended error
	begin := time.Now()
	go func() {
		defer close(done)
		ended = r.Serve(rctx, ln)
	}()
	defer func() {
		stop()
		<-done
	}()
	for !r.Ready() {
		select {
		case <-done:
			return ended
		case <-time.After(time.Millisecond):
		}
	}
	ready := time.Since(begin)
	fmt.Printf("A relay reads the list of %d runs in %v and holds %d MiB more with it.\n\n", o.runs, ready.Round(time.Millisecond), (heap()-before)>>20)

	c := newClient("http://" + ln.Addr().String())
	lists, err := c.lists(ctx, o.samples)
	if err != nil {
		return err
	}
	fmt.Print("| | first, ms: p50 / p99 | all, ms: p50 / p99 |\n|---|---|---|\n")
	fmt.Printf("| page of 100 runs of the list | | %s |\n", quantiles(lists))
	fmt.Printf("| the same, one state of which there is none | | %s |\n", quantiles(c.nothing))
	var cold, warm times
	for n := range o.samples {
		run := runName((n*7919 + 13) % o.runs)
		for _, t := range []*times{&cold, &warm} {
			time.Sleep(20 * o.hot)
			if err := c.replay(ctx, run, o.each, t); err != nil {
				return fmt.Errorf("replay %s: %w", run, err)
			}
		}
	}
	fmt.Printf("| replay of a run of %d events over HTTP, never read before | %s | %s |\n", o.each, quantiles(cold.first), quantiles(cold.all))
	fmt.Printf("| the same run once more | %s | %s |\n", quantiles(warm.first), quantiles(warm.all))
	if err := s.restart(ctx); err != nil {
		return err
	}
	for !r.Ready() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var again, twice times
	for n := range min(o.samples, 30) {
		run := runName((n*104729 + 17) % o.runs)
		for _, t := range []*times{&again, &twice} {
			if err := c.replay(ctx, run, o.each, t); err != nil {
				return errors.Join(fmt.Errorf("replay %s", run), err)
			}
		}
	}
	fmt.Printf("| after a restart of the server, never read before | %s | %s |\n", quantiles(again.first), quantiles(again.all))
	fmt.Printf("| the same run once more | %s | %s |\n", quantiles(twice.first), quantiles(twice.all))
	return nil
}

// heap is what this process has in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// times are what replays took, in milliseconds.
type times struct{ first, all []float64 }

func quantiles(v []float64) string {
	if len(v) == 0 {
		return ""
	}
	s := slices.Sorted(slices.Values(v))
	return fmt.Sprintf("%.1f / %.1f", s[len(s)/2], s[min(len(s)-1, len(s)*99/100)])
}
