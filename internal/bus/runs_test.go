package bus_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// A run whose entry is written again while all are listed is in the list, once.
func TestRunsWhileWritten(t *testing.T) {
	b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true})})
	if _, err := b.Ensure(t.Context(), bus.Topology{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	const n = 3
	ctx, cancel := context.WithCancel(t.Context())
	put := func(i, seq int) error {
		return b.PutRun(t.Context(), bus.RunInfo{Run: "r" + strconv.Itoa(i), Tenant: "acme", LastSeq: uint64(seq)})
	}
	for i := range n {
		if err := put(i, 0); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		for seq := 1; ctx.Err() == nil; seq++ {
			if err := put(seq%n, seq); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 100 {
		runs, err := b.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, r := range runs {
			seen[r.Run]++
		}
		if len(runs) != n || len(seen) != n {
			t.Fatalf("listed %v", seen)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
