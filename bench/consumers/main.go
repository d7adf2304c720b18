// Command consumers measures how fast the consumer programs read the bus, against a bare
// pull consumer on the same stream, and whether their memory stays flat over many
// runs. bench/consumers/run builds and runs it and appends its output to RESULTS.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) > 2 && strings.HasPrefix(os.Args[1], "role-") {
		if err := role(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "consumers:", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "consumers:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	cbcast        string
	events, runs  int
	size, rounds  int
	memory        bool
	only          string
	memEvents     int
	memRuns       int
	memSampleSize int
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("consumers", flag.ContinueOnError)
	fs.StringVar(&o.cbcast, "cbcast", "", "the program")
	fs.IntVar(&o.events, "events", 100_000, "events of the stream")
	fs.IntVar(&o.runs, "runs", 200, "runs that they are of")
	fs.IntVar(&o.size, "size", 4<<10, "bytes of an event")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds, in each of which every candidate has its turn")
	fs.StringVar(&o.only, "only", "", "candidates to measure beside the reference, with commas between; all if empty")
	fs.BoolVar(&o.memory, "memory", false, "measure memory over many runs instead")
	fs.IntVar(&o.memEvents, "memory-events", 1_000_000, "events of that")
	fs.IntVar(&o.memRuns, "memory-runs", 100_000, "runs of that")
	fs.IntVar(&o.memSampleSize, "memory-size", 300, "bytes of an event of that")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.cbcast == "" {
		return errors.New("-cbcast is needed")
	}
	l, err := startLab(ctx, o)
	if err != nil {
		return err
	}
	defer l.stop()
	if o.memory {
		return l.memory(ctx)
	}
	return l.speed(ctx)
}

// speed measures every candidate, taking turns.
func (l *lab) speed(ctx context.Context) error {
	all := l.candidates()
	for _, c := range all {
		if err := l.prime(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := l.fill(ctx, l.o.events, l.o.runs, l.o.size); err != nil {
		return err
	}
	for round := range l.o.rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			r, err := l.measure(ctx, c, l.o.events, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.results = append(c.results, r)
		}
	}
	fmt.Printf("\n**Reading %d events of %d bytes, of %d runs**, from the first message given to the last ack\n\n", l.o.events, l.o.size, l.o.runs)
	fmt.Println("| | events/s, median (range) | to raw | events a CPU second, its own and the server's | to raw | its own alone | to raw | peak MiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	raw := all[0]
	for _, c := range all {
		fmt.Printf("| %s | %s | %.2f | %s | %.2f | %s | %.2f | %.0f |\n", c.name,
			spread(c.results, result.rate), ratio(c.results, raw.results, result.rate),
			spread(c.results, result.perAll), ratio(c.results, raw.results, result.perAll),
			spread(c.results, result.perCPU), ratio(c.results, raw.results, result.perCPU),
			median(c.results, func(r result) float64 { return float64(r.peak) / (1 << 20) }))
	}
	return nil
}

// A result is one measurement.
type result struct {
	events  int
	seconds float64
	cpu     float64 // of the candidate
	all     float64 // and of the server meanwhile
	peak    int64   // bytes resident
}

func (r result) rate() float64   { return float64(r.events) / r.seconds }
func (r result) perCPU() float64 { return float64(r.events) / r.cpu }
func (r result) perAll() float64 { return float64(r.events) / r.all }

func values(all []result, of func(result) float64) (list []float64) {
	for _, r := range all {
		list = append(list, of(r))
	}
	slices.Sort(list)
	return list
}

func median(all []result, of func(result) float64) float64 {
	v := values(all, of)
	return v[len(v)/2]
}

// ratio is the median of the rounds' ratios.
func ratio(all, to []result, of func(result) float64) float64 {
	var list []float64
	for i := range all {
		list = append(list, of(all[i])/of(to[i]))
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func spread(all []result, of func(result) float64) string {
	v := values(all, of)
	return fmt.Sprintf("%.0f (%.0f – %.0f)", v[len(v)/2], v[0], v[len(v)-1])
}
