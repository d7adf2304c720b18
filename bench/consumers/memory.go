package main

import (
	"context"
	"fmt"
)

// memory has each program read very many runs and prints what it holds meanwhile.
func (l *lab) memory(ctx context.Context) error {
	o := l.o
	all := l.candidates()
	for _, c := range all {
		if err := l.prime(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := l.fill(ctx, o.memEvents, o.memRuns, o.memSampleSize); err != nil {
		return err
	}
	const marks = 10
	fmt.Printf("\n**Memory over %d events of %d runs**, MiB resident after each tenth\n\n| |", o.memEvents, o.memRuns)
	for i := range marks {
		fmt.Printf(" %d %% |", (i+1)*100/marks)
	}
	fmt.Print(" peak | events/s |\n|---|")
	for range marks + 2 {
		fmt.Print("---|")
	}
	fmt.Println()
	for _, c := range all {
		var held []int64
		r, err := l.measure(ctx, c, o.memEvents, func(handled int, p *process) {
			for len(held) < marks && handled >= o.memEvents/marks*(len(held)+1) {
				held = append(held, p.resident())
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("| %s |", c.name)
		for _, n := range held {
			fmt.Printf(" %d |", n>>20)
		}
		fmt.Printf(" %d | %.0f |\n", r.peak>>20, r.rate())
	}
	return nil
}
