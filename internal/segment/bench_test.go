package segment_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// frames gives 16 MiB of data of 4 KiB each: recorded frames, in which each message has
// other digits here and there.
func frames(b *testing.B) [][]byte {
	b.Helper()
	var raw []byte
	for _, pattern := range []string{"../run/testdata/cases/*.ndjson", "../../cmd/cbcast/demo/*.ndjson"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			b.Fatal("no recorded frames ", pattern, err)
		}
		for _, p := range paths {
			f, err := os.ReadFile(p)
			if err != nil {
				b.Fatal(err)
			}
			raw = append(raw, f...)
		}
	}
	const size, total = 4 << 10, 16 << 20
	random := rand.New(rand.NewPCG(1, 2))
	var out [][]byte
	for at := 0; len(out) < total/size; at += size {
		if at+size > len(raw) {
			at = random.IntN(size)
		}
		m := append([]byte(nil), raw[at:at+size]...)
		for i, c := range m {
			if c >= '0' && c <= '9' && random.IntN(8) == 0 {
				m[i] = byte('0' + random.IntN(10))
			}
		}
		out = append(out, m)
	}
	return out
}

// BenchmarkAppend writes messages of 4 KiB of as many runs as its name says, seals every
// 100 000 of them, and tells the bytes before compression.
func BenchmarkAppend(b *testing.B) {
	for _, runs := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			data := frames(b)
			r := newRig(b)
			r.Store, r.Keys, r.Dir = openStore(b, b.TempDir()), openStore(b, b.TempDir()), b.TempDir()
			a := r.open()
			recs := make([]*segment.Record, runs)
			for i := range recs {
				e := &event.Event{
					Tenant: "acme", Run: fmt.Sprintf("run-%d", i), Seq: 1, Time: day, Type: "dev.cbcast.claude.assistant",
					Kind: event.Msg, Stream: event.Out, Session: "00000000-0000-4000-8000-000000000001", ContentType: event.JSON,
				}
				subj := subject.Event{Tenant: e.Tenant, Run: e.Run, Session: e.Session, Kind: "msg"}.String()
				recs[i] = segment.NewRecord(0, e, subj, headers(e), nil, 0, day)
				recs[i].Seq = 0
			}
			b.SetBytes(4 << 10)
			b.ReportAllocs()
			before := cpu(b)
			n := uint64(0)
			for b.Loop() {
				rec := recs[n%uint64(runs)]
				rec.Data = data[n%uint64(len(data))]
				rec.Seq++
				n++
				rec.StreamSeq, rec.Stored = n, day.Add(time.Duration(n)*time.Microsecond)
				if _, err := a.Append(b.Context(), rec); err != nil {
					b.Fatal(err)
				}
				if n%100000 == 0 {
					r.seal()
				}
			}
			r.seal()
			b.ReportMetric(float64(b.N)*(4<<10)/1e6/(cpu(b)-before).Seconds(), "MB/cpu-s")
			s := a.Stats()
			b.ReportMetric(float64(s.Bytes)/float64(max(s.SealedBytes, 1)), "ratio")
		})
	}
}

// cpu is the time that this process has computed: on a machine that others use, too, it says
// more than the clock.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
