package ingest

import (
	"sync/atomic"
	"testing"
	"time"
)

// SlowOutputs lets the read of a task's file take until the run's end has given up
// on it.
func SlowOutputs(t *testing.T) {
	beforeOutput = func(late *atomic.Bool) {
		for !late.Load() {
			time.Sleep(time.Millisecond) //nolint:forbidigo // it stands for a slow disk
		}
	}
	t.Cleanup(func() { beforeOutput = nil })
}

// StuckOutputs lets the read of a task's file take until the test is over.
func StuckOutputs(t *testing.T) {
	over, gone := make(chan struct{}), make(chan struct{})
	beforeOutput = func(*atomic.Bool) {
		defer close(gone)
		<-over
	}
	t.Cleanup(func() {
		close(over)
		<-gone
		beforeOutput = nil
	})
}
