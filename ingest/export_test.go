package ingest

import (
	"testing"
	"time"
)

// SetSecondAfter shortens the wait before a second interrupt for one test.
func SetSecondAfter(tb testing.TB, d time.Duration) { set(tb, &secondAfter, d) }

// SetKillStep shortens the steps of ending a child for one test.
func SetKillStep(tb testing.TB, d time.Duration) { set(tb, &killStep, d) }

func set(tb testing.TB, p *time.Duration, d time.Duration) {
	old := *p
	*p = d
	tb.Cleanup(func() { *p = old })
}
