package relay

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A conversation is found by each id it ever had, the one that was asked for and
// those that were seen (case 067); runs of another tenant are not linked to them.
func TestLinked(t *testing.T) {
	g := &registry{runs: map[string]*bus.RunInfo{}}
	add := func(tenant, run string, resume *event.Resume, sessions ...string) {
		g.runs[run] = &bus.RunInfo{Tenant: tenant, Run: run, Resume: resume, Sessions: sessions}
	}
	add("a", "r1", nil, "s1")
	add("a", "r2", &event.Resume{Session: "s1"}, "s2", "agent-of-r2")
	add("a", "r3", &event.Resume{Session: "s2"}, "s3")
	add("a", "r4", &event.Resume{Run: "r3"})
	add("a", "other", nil, "s9")
	add("b", "foreign", &event.Resume{Session: "s1"}, "s1-b")
	g.order.build(g.runs)
	for session, want := range map[string][]string{
		"s1":   {"foreign", "r1", "r2", "r3", "r4"},
		"s2":   {"r1", "r2", "r3", "r4"},
		"s3":   {"r1", "r2", "r3", "r4"},
		"s1-b": {"foreign"},
		"s9":   {"other"},
		"none": nil,
		"":     {"foreign", "other", "r1", "r2", "r3", "r4"},
	} {
		var got []string
		list, _ := g.list(nil, 100, g.linked(session))
		for _, i := range list {
			got = append(got, i.Run)
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("session %q (-want +got):\n%s", session, d)
		}
	}
}
