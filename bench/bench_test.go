package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/bus"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newLab(b *testing.B) *lab {
	b.Helper()
	l, err := startLab(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.stop)
	return l
}

// BenchmarkPublish is one iteration a frame. Compare the candidates by the table
// of bench/run, which interleaves them; this is for profiles.
func BenchmarkPublish(b *testing.B) {
	l := newLab(b)
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		for name, f := range map[string]func(all [][]byte) error{
			"async": func(all [][]byte) error { return async(b.Context(), l, nuid.Next(), all, true) },
			"fast":  func(all [][]byte) error { return fastIngest(b.Context(), l, nuid.Next(), all, true) },
			"edge": func(all [][]byte) error {
				return edgePath(b.Context(), l, bytes.NewReader(append(bytes.Join(all, []byte("\n")), '\n')))
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				all := frames(b.N, size)
				b.ResetTimer()
				if err := f(all); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := l.empty(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkReplay is one iteration an event, read out of interleaved runs.
func BenchmarkReplay(b *testing.B) {
	l := newLab(b)
	lens, first, err := load(b.Context(), l, 100_000)
	if err != nil {
		b.Fatal(err)
	}
	c, err := bus.Connect(b.Context(), bus.Config{URL: l.url}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	for name, f := range map[string]func(run int) (int, error){
		"direct": func(run int) (int, error) { return direct(b.Context(), l, run, first[run]) },
		"history": func(run int) (int, error) {
			return read(b.Context(), c, bus.Ref{Tenant: tenant, Run: runName(run), First: first[run]}, 0)
		},
	} {
		b.Run(name, func(b *testing.B) {
			for n, run := 0, 0; n < b.N; run = (run + 1) % replayRuns {
				got, err := f(run)
				if err != nil || got != lens[run] {
					b.Fatal(got, err)
				}
				n += got
			}
		})
	}
}
