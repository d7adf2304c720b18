package workflow_test

import (
	"testing"

	"github.com/cbcast/cbcast/internal/workflow"
)

// A whole run is mapped from its first event for each stream that a relay has no
// mapper of.
func BenchmarkMapper(b *testing.B) {
	for _, name := range []string{"claude-2.1.220/80-workflow-ok", "cbc-2.163.0/workflow-live-partial", "codex-0.153.4/81-collab-v2"} {
		b.Run(name, func(b *testing.B) {
			evs := events(b, name)
			bytes := 0
			for _, e := range evs {
				bytes += len(e.Data)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				m := workflow.New(workflow.ID{Run: "r"})
				for _, e := range evs {
					if _, err := m.Apply(e); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(evs)), "ns/event")
		})
	}
}
