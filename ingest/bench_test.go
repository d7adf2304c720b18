package ingest_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
)

// What a wrapped run costs over the bare one, with a bus that takes everything
// and without one.
func BenchmarkStartStop(b *testing.B) {
	env := []string{roleEnv + "=true"}
	var bare time.Duration
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			c := exec.Command(exe(b))
			c.Env = env
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
		bare = b.Elapsed() / time.Duration(b.N)
	})
	for name, change := range map[string]func(*ingest.Options){
		"bus":  func(*ingest.Options) {},
		"none": func(o *ingest.Options) { o.Dial = nil },
	} {
		b.Run(name, func(b *testing.B) {
			o := options(b)
			change(&o)
			o.Argv, o.Env = []string{exe(b), "-p", "--input-format", "stream-json"}, env
			for b.Loop() {
				if _, err := ingest.Run(context.Background(), o); err != nil {
					b.Fatal(err)
				}
			}
			each := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(each)/float64(bare), "x-bare")
			b.ReportMetric(float64(each-bare)/1e6, "ms-over")
		})
	}
}
