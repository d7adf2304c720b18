package relay_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// An edge that ended without a last word in the registry leaves an entry that
// says that the run goes on. Without a relay whoever lists the runs sees the truth
// all the same, and writes it down once the edge is surely gone.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name    string
		present bool
		exited  bool
		shown   string
		written string
	}{
		{name: "goes on", present: true, shown: "working ", written: "working "},
		{name: "silent", shown: "working ", written: "working "},
		{name: "its edge may still write", present: true, exited: true, shown: "done incomplete", written: "working "},
		{name: "its edge is gone", exited: true, shown: "done incomplete", written: "done incomplete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := silentRig(t)
			e := r.asking("run-1")
			if tt.present {
				e.present(24 * time.Hour)
			}
			if tt.exited {
				code := 0
				e.emit(fact(event.TypeExited, event.Life, event.Exited{Code: &code, Complete: true}))
				e.shipped()
			}
			i, err := relay.Settle(t.Context(), r.bus, e.info)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := r.bus.Run(t.Context(), "run-1")
			if err != nil {
				t.Fatal(err)
			}
			got := []string{i.State + " " + i.Verdict, kept.State + " " + kept.Verdict}
			if d := cmp.Diff([]string{tt.shown, tt.written}, got); d != "" {
				t.Errorf("shown, written (-want +got):\n%s", d)
			}
		})
	}
}
