// Command bench measures cbcast against what it is built on, in one run: each
// round measures every candidate once, so that a busy machine slows all of them,
// and the medians are compared. bench/run builds and runs it and appends its
// output to RESULTS.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) > 1 {
		if f, ok := roles[os.Args[1]]; ok {
			if err := f(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
				os.Exit(1)
			}
			return
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roles are what this program is when a measurement needs another process.
var roles = map[string]func(args []string) error{
	"role-server": serverRole,
	"role-emit":   emitRole,
}

// options are the flags.
type options struct {
	rounds int
	only   string
	cbcast string // built program
	scale  float64
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 5, "measurements of each candidate")
	fs.StringVar(&o.only, "only", "", "part to measure: pass, publish or replay (default all)")
	fs.StringVar(&o.cbcast, "cbcast", "", "cbcast program, for pass; several, separated by commas, are compared")
	fs.Float64Var(&o.scale, "scale", 1, "size of the work")
	if err := fs.Parse(args); err != nil {
		return err
	}
	parts := []struct {
		name string
		f    func(context.Context, options) error
	}{{"pass", passThrough}, {"publish", publish}, {"replay", replay}}
	for _, p := range parts {
		if o.only != "" && o.only != p.name {
			continue
		}
		if err := p.f(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (o options) scaled(n int) int { return max(1, int(float64(n)*o.scale)) }

// A candidate is measured once a round. It returns a rate or a duration.
type candidate struct {
	name string
	run  func(context.Context) (float64, error)
	got  []float64

	ours, theirs []float64 // CPU time of this process and of the server, if measured
}

// interleave measures every candidate once a round; which one is first changes.
func interleave(ctx context.Context, rounds int, cs []*candidate) error {
	for r := range rounds {
		for i := range cs {
			c := cs[(r+i)%len(cs)]
			v, err := c.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.got = append(c.got, v)
		}
	}
	return nil
}

func (c *candidate) median() float64 {
	s := slices.Sorted(slices.Values(c.got))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

func median(all []float64) float64 { return (&candidate{got: all}).median() }

// ratio is the median over the rounds of the candidate's figure to base's of the
// same round.
func (c *candidate) ratio(base *candidate) float64 {
	r := candidate{}
	for i := range c.got {
		r.got = append(r.got, c.got[i]/base.got[i])
	}
	return r.median()
}

// table prints the medians with their range, and ratios to each of bases.
func table(title, unit string, cs []*candidate, bases ...*candidate) {
	fmt.Printf("\n%s\n\n| | %s, median (range) |", title, unit)
	for _, b := range bases {
		fmt.Printf(" to %s |", b.name)
	}
	if cs[0].ours != nil {
		fmt.Print(" CPU µs each: client + server |")
	}
	fmt.Printf("\n|---|---|%s\n", strings.Repeat("---|", len(bases)+min(1, len(cs[0].ours))))
	for _, c := range cs {
		fmt.Printf("| %s | %s (%s – %s) |", c.name, figure(c.median()), figure(slices.Min(c.got)), figure(slices.Max(c.got)))
		for _, b := range bases {
			fmt.Printf(" %.2f |", c.ratio(b))
		}
		if c.ours != nil {
			fmt.Printf(" %.1f + %.1f |", median(c.ours), median(c.theirs))
		}
		fmt.Println()
	}
}

func figure(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0fk", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
