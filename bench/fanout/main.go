//go:build linux

// Command fanout measures what it costs a server to bring the events of many
// runs to many clients over server-sent events, and how long they take: cbcast's
// relay with durable replay, a bare net/http server without history, and two hubs
// made for it. bench/fanout/run builds everything, runs it and appends its output
// to RESULTS.md.
//
// Every candidate is a process of its own, so are the load (one thread and epoll,
// so that it does not take the processor from what is measured), the publisher
// and the NATS server. All carry the same CloudEvents at the same rate, and in
// every round each candidate is measured once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 2 {
		if f, ok := roles[os.Args[1]]; ok {
			exit(f(os.Args[2]))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roles are what this program is when a measurement needs another process. Each
// takes one argument.
var roles = map[string]func(arg string) error{
	"role-nats":    natsRole,
	"role-bare":    bareRole,
	"role-publish": publishRole,
	"role-load":    loadRole,
}

type options struct {
	rounds, clients, runs, rate, size int
	take                              time.Duration
	only                              string

	cbcast, mercure, centrifugo string
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("fanout", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 2, "measurements of each candidate")
	fs.IntVar(&o.clients, "clients", 5000, "SSE clients")
	fs.IntVar(&o.runs, "runs", 500, "runs, over which clients and events are spread evenly")
	fs.IntVar(&o.rate, "rate", 2000, "events a second, over all runs")
	fs.IntVar(&o.size, "size", 512, "bytes of a frame")
	fs.DurationVar(&o.take, "take", 12*time.Second, "how long one measurement takes")
	fs.StringVar(&o.only, "only", "", "candidates, by the first letters of their names, separated by commas (default all)")
	fs.StringVar(&o.cbcast, "cbcast", "", "cbcast program; several, separated by commas, are compared")
	fs.StringVar(&o.mercure, "mercure", "", "Mercure program; without it, it does not take part")
	fs.StringVar(&o.centrifugo, "centrifugo", "", "Centrifugo program, likewise")
	if err := fs.Parse(args); err != nil {
		return err
	}
	for _, p := range []*string{&o.mercure, &o.centrifugo} {
		if *p != "" {
			*p, _ = filepath.Abs(*p) // fails only without a working directory
		}
	}
	all := candidates(o)
	for r := range o.rounds {
		for i := range all {
			c := all[(r+i)%len(all)]
			m, err := o.measure(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "%-34s %7.0f/s %7.0f a CPU second, bus %3.0f %%, load %3.0f %%, p50 %.2f p99 %.2f max %.0f ms, %.1f KiB a client\n",
				c.name, m.perSecond, m.perCPU, 100*m.busCPU, 100*m.loadCPU, m.P50, m.P99, m.Max, m.memory)
			c.got = append(c.got, m)
		}
	}
	o.table(all)
	return nil
}

// A measurement is one of one candidate.
type measurement struct {
	stats
	perSecond float64 // deliveries
	perCPU    float64 // deliveries per second of the server's CPU time
	busCPU    float64 // of the NATS server, if there is one: share of a processor
	loadCPU   float64 // of the load
	memory    float64 // KiB of the server for each client
}

// A candidate is measured once a round.
type candidate struct {
	name  string
	start func(ctx context.Context, o options, dir string) (*lab, error)
	got   []measurement
}

func (c *candidate) median(f func(m measurement) float64) float64 {
	var all []float64
	for _, m := range c.got {
		all = append(all, f(m))
	}
	return middle(all)
}

func (c *candidate) ratio(base *candidate) float64 {
	var all []float64
	for i, m := range c.got {
		all = append(all, m.perCPU/base.got[i].perCPU)
	}
	return middle(all)
}

func middle(all []float64) float64 {
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func (o options) table(all []*candidate) {
	base := all[0]
	fmt.Printf("\n**%d SSE clients on %d runs, %d events/s of %d B in total** (%d deliveries/s; medians of %d rounds of %v; "+
		"each client's own order checked, no hole, no double)\n\n",
		o.clients, o.runs, o.rate, o.size, o.rate*o.clients/o.runs, o.rounds, o.take)
	fmt.Printf("| | deliveries/s | per CPU second of the server | to %s | p50 ms | p99 ms | max ms | KiB a client | bus, CPU |\n|---|---|---|---|---|---|---|---|---|\n", base.name)
	for _, c := range all {
		fmt.Printf("| %s | %.0f | %.0f | %.2f | %.2f | %.2f | %.0f | %.1f | %.0f %% |\n", c.name,
			c.median(func(m measurement) float64 { return m.perSecond }), c.median(func(m measurement) float64 { return m.perCPU }), c.ratio(base),
			c.median(func(m measurement) float64 { return m.P50 }), c.median(func(m measurement) float64 { return m.P99 }),
			c.median(func(m measurement) float64 { return m.Max }), c.median(func(m measurement) float64 { return m.memory }),
			100*c.median(func(m measurement) float64 { return m.busCPU }))
	}
}

// candidates lists who takes part; the first is what the others are compared to.
func candidates(o options) []*candidate {
	all := []*candidate{
		{name: "bare net/http, events by POST", start: startBare("post")},
		{name: "bare net/http, events made inside", start: startBare("inside")},
	}
	for i, p := range strings.Split(o.cbcast, ",") {
		p, _ = filepath.Abs(p)
		name := "relay of cbcast"
		if i > 0 {
			name += fmt.Sprintf(", program %d", i+1)
		}
		all = append(all, &candidate{name: name, start: startRelay(p)})
	}
	if o.centrifugo != "" {
		all = append(all, &candidate{name: "centrifugo, history in memory", start: startCentrifugo})
	}
	if o.mercure != "" {
		all = append(all, &candidate{name: "mercure, bolt", start: startMercure})
	}
	if o.only == "" {
		return all
	}
	return slices.DeleteFunc(all, func(c *candidate) bool {
		return !slices.ContainsFunc(strings.Split(o.only, ","), func(p string) bool { return strings.HasPrefix(c.name, p) })
	})
}
