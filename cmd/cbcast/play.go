package main

import (
	"bufio"
	"context"
	"embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

//go:embed demo/stdout.ndjson demo/timeline.tsv
var recording embed.FS

// newPlay is the hidden command that demo wraps: a child that writes a recorded
// session with its timing.
func newPlay(a *app) *cobra.Command {
	var speed float64
	c := &cobra.Command{
		Use:    "demo-agent",
		Short:  "Write the recorded session of the demo, as the agent did",
		Hidden: true,
		// The flags of a real agent come with it, so that it looks like one.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		Args:               cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return play(c.Context(), a.io.out, speed)
		},
	}
	c.Flags().Float64Var(&speed, "speed", 1, "how much faster than it was recorded")
	return c
}

// play writes the recording to w: each read of the original at its time.
func play(ctx context.Context, w io.Writer, speed float64) error {
	out, err := recording.ReadFile("demo/stdout.ndjson")
	if err != nil {
		return err
	}
	times, err := readTimes()
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(out), "\n")
	start := time.Now()
	for i, line := range lines {
		at := times[min(i, len(times)-1)]
		t := time.NewTimer(time.Until(start.Add(time.Duration(float64(at) / speed))))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// readTimes returns the time of each read of the recorded session's stdout. Lines
// and reads are nearly one to one.
func readTimes() ([]time.Duration, error) {
	f, err := recording.Open("demo/timeline.tsv")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var times []time.Duration
	for sc := bufio.NewScanner(f); sc.Scan(); {
		col := strings.Split(sc.Text(), "\t")
		if len(col) < 2 || col[1] != "stdout" {
			continue
		}
		ms, err := strconv.Atoi(col[0])
		if err != nil {
			return nil, fmt.Errorf("read the recording: %w", err)
		}
		times = append(times, time.Duration(ms)*time.Millisecond)
	}
	return times, nil
}
