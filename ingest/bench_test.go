package ingest_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
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

// What one line costs from the bytes to the spool: framed, masked, classified,
// stored, folded.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := options(b)
			o.Dial, o.SpoolMax = nil, -1
			line := claude.text("#")
			line = strings.Replace(line, "#", strings.Repeat("x", size-len(line)), 1) + "\n"
			in := strings.NewReader(strings.Repeat(line, max(1, (64<<20)/size)))
			b.SetBytes(int64(size))
			n := 0
			for b.Loop() {
				o.SpoolRoot = b.TempDir()
				in.Seek(0, io.SeekStart)
				if _, err := ingest.Import(b.Context(), o, in); err != nil {
					b.Fatal(err)
				}
				n += int(in.Size()) / size
			}
			b.ReportMetric(float64(b.Elapsed())/float64(n), "ns/line")
			b.ReportMetric(0, "ns/op")
		})
	}
}
