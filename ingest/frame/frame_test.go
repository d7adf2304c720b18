package frame_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/frame"
)

// got is a frame as tests compare it.
type got struct {
	Data          string
	Cut, Cont     bool
	Gap, GapLines int64
}

// split feeds writes to a Splitter and returns its frames. It checks that
// offsets go on without a hole or an overlap.
func split(t testing.TB, limit int, writes ...string) []got {
	t.Helper()
	var frames []got
	next := int64(0)
	s := frame.New(limit, func(f frame.Frame) {
		if f.Offset != next {
			t.Errorf("frame %d: Offset = %d, want %d", len(frames), f.Offset, next)
		}
		next = f.Offset + int64(len(f.Data)) + f.Gap
		if !f.Cut && f.Gap == 0 {
			next++
		}
		frames = append(frames, got{string(f.Data), f.Cut, f.Cont, f.Gap, f.GapLines})
	})
	for _, w := range writes {
		if n, err := s.Write([]byte(w)); n != len(w) || err != nil {
			t.Fatalf("Write = %d, %v; want %d, nil", n, err, len(w))
		}
	}
	s.Close()
	return frames
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		max    int
		writes []string
		want   []got
	}{
		{"nothing", 0, nil, nil},
		{"empty lines", 0, []string{"\n\n", "\n"}, []got{{}, {}, {}}},
		{
			"bytes that end nothing", 0,
			[]string{"\xef\xbb\xbf{\"a\":1}\r\n\x00\xff\xfe\u2028\u2029\u0085\x0b\x0c\n"},
			[]got{{Data: "\xef\xbb\xbf{\"a\":1}\r"}, {Data: "\x00\xff\xfe\u2028\u2029\u0085\x0b\x0c"}},
		},
		{
			"banner before json", 0,
			[]string{"🚀 Start\n• one, two\n\n{\n", "{\"type\":\"system\"}\n"},
			[]got{{Data: "🚀 Start"}, {Data: "• one, two"}, {}, {Data: "{"}, {Data: `{"type":"system"}`}},
		},
		{"glued objects are one frame", 0, []string{"{}{}\n"}, []got{{Data: "{}{}"}}},
		{
			"frame split over reads", 0,
			[]string{`{"type":"result","ephemeral_5m_input_tok`, `ens":97252,"result":"caf\u00`, `e9"}`, "\n"},
			[]got{{Data: `{"type":"result","ephemeral_5m_input_tokens":97252,"result":"caf\u00e9"}`}},
		},
		{"tail at EOF", 0, []string{"a\nb"}, []got{{Data: "a"}, {Data: "b", Cut: true}}},
		{"cut inside a rune", 0, []string{"\xf0\x9f", "\x9a\x80\n"}, []got{{Data: "🚀"}}},
		{"exactly max", 4, []string{"abcd\nabcd", "\n"}, []got{{Data: "abcd"}, {Data: "abcd"}}},
		{
			"over max", 4,
			[]string{"abcdefghij\nk\n"},
			[]got{{Data: "abcd", Cut: true}, {Data: "efgh", Cut: true, Cont: true}, {Data: "ij", Cont: true}, {Data: "k"}},
		},
		{
			"over max in small reads", 4,
			[]string{"abc", "d", "e", "\n", "k\n"},
			[]got{{Data: "abcd", Cut: true}, {Data: "e", Cont: true}, {Data: "k"}},
		},
		{
			"over max at EOF", 4,
			[]string{"abcde"},
			[]got{{Data: "abcd", Cut: true}, {Data: "e", Cut: true, Cont: true}},
		},
		{
			"max multiple", 2,
			[]string{"abcd\n\n"},
			[]got{{Data: "ab", Cut: true}, {Data: "cd", Cont: true}, {}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, split(t, tt.max, tt.writes...)); diff != "" {
				t.Errorf("frames (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDrop(t *testing.T) {
	type step struct {
		write     string
		n, lines_ int64
	}
	for _, tt := range []struct {
		name  string
		max   int
		steps []step
		want  []got
	}{
		{
			"inside a frame", 0,
			[]step{{write: "a\nbc"}, {n: 10, lines_: 2}, {write: "def\ng\n"}},
			[]got{{Data: "a"}, {Data: "bc", Cut: true}, {Gap: 14, GapLines: 3}, {Data: "g"}},
		},
		{
			"between frames", 0,
			[]step{{write: "a\n"}, {n: 10, lines_: 2}, {write: "\ng\n"}},
			[]got{{Data: "a"}, {Gap: 11, GapLines: 3}, {Data: "g"}},
		},
		{
			"twice before an LF", 0,
			[]step{{n: 5}, {write: "xyz"}, {n: 6, lines_: 1}, {write: "w\nok\n"}},
			[]got{{Gap: 16, GapLines: 2}, {Data: "ok"}},
		},
		{
			"at the end", 0,
			[]step{{write: "a"}, {n: 5, lines_: 5}},
			[]got{{Data: "a", Cut: true}, {Gap: 5, GapLines: 5}},
		},
		{"no LF follows", 0, []step{{n: 5}, {write: "abc"}}, []got{{Gap: 8}}},
		{
			"after a piece", 4,
			[]step{{write: "abcdef"}, {n: 5}, {write: "x\ny\n"}},
			[]got{{Data: "abcd", Cut: true}, {Data: "ef", Cut: true, Cont: true}, {Gap: 7, GapLines: 1}, {Data: "y"}},
		},
		{"of nothing", 0, []step{{write: "a"}, {n: 0}, {write: "b\n"}}, []got{{Data: "ab"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var frames []got
			var total, out int64
			s := frame.New(tt.max, func(f frame.Frame) {
				frames = append(frames, got{string(f.Data), f.Cut, f.Cont, f.Gap, f.GapLines})
				if f.Offset != out {
					t.Errorf("Offset = %d, want %d", f.Offset, out)
				}
				out += int64(len(f.Data)) + f.Gap
				if !f.Cut && f.Gap == 0 {
					out++
				}
			})
			for _, st := range tt.steps {
				s.Write([]byte(st.write))
				s.Drop(st.n, st.lines_)
				total += int64(len(st.write)) + st.n
			}
			s.Close()
			if diff := cmp.Diff(tt.want, frames); diff != "" {
				t.Errorf("frames (-want +got):\n%s", diff)
			}
			if out != total {
				t.Errorf("frames and holes cover %d bytes of %d", out, total)
			}
		})
	}
}

// A frame that lies whole in one write is not copied at all.
func TestWriteAllocs(t *testing.T) {
	line := []byte(strings.Repeat("x", 511) + "\n")
	p := bytes.Repeat(line, 100)
	n := 0
	s := frame.New(0, func(f frame.Frame) { n += len(f.Data) })
	if got := testing.AllocsPerRun(100, func() { s.Write(p) }); got != 0 {
		t.Errorf("Write of 100 whole frames: %v allocations, want 0", got)
	}
}

// A line of 16 MiB in reads of 64 KiB costs a buffer that doubles, no more.
func TestLongLineAllocs(t *testing.T) {
	p := bytes.Repeat([]byte{'x'}, 64<<10)
	s := frame.New(0, func(frame.Frame) {})
	got := testing.AllocsPerRun(1, func() {
		for range 256 {
			s.Write(p)
		}
		s.Write([]byte{'\n'})
	})
	if got > 16 {
		t.Errorf("one line of 16 MiB: %v allocations, want at most 16", got)
	}
}

func TestMax(t *testing.T) {
	p := bytes.Repeat([]byte{'x'}, 1<<20)
	var sizes []int
	s := frame.New(0, func(f frame.Frame) { sizes = append(sizes, len(f.Data)) })
	for range frame.Max / len(p) {
		s.Write(p)
	}
	s.Write([]byte("\n"))
	for range frame.Max / len(p) {
		s.Write(p)
	}
	s.Write([]byte("y\n"))
	if diff := cmp.Diff([]int{frame.Max, frame.Max, 1}, sizes); diff != "" {
		t.Errorf("sizes of frames (-want +got):\n%s", diff)
	}
}

// FuzzSplit: whatever the bytes, the reads and the bound, the frames joined are
// the stream, pieces stay within the bound, and no frame holds an LF.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n\xff\x00c"), uint16(1), uint16(3))
	f.Add([]byte("abcdefghijklmnop\nq"), uint16(5), uint16(4))
	f.Add([]byte("\n\n\n"), uint16(2), uint16(1))
	f.Add([]byte("{\"type\":\"x\"}\n{\"type\":\"y\"}"), uint16(7), uint16(0))
	f.Fuzz(func(t *testing.T, in []byte, read, limit uint16) {
		var out []byte
		bound := int(limit)
		cont := false
		s := frame.New(bound, func(f frame.Frame) {
			if f.Offset != int64(len(out)) {
				t.Fatalf("Offset = %d, want %d", f.Offset, len(out))
			}
			if f.Cont != cont {
				t.Fatalf("at %d: Cont = %v, want %v", f.Offset, f.Cont, cont)
			}
			if bytes.IndexByte(f.Data, '\n') >= 0 {
				t.Fatalf("frame %q holds an LF", f.Data)
			}
			if bound > 0 && len(f.Data) > bound {
				t.Fatalf("frame of %d bytes, bound %d", len(f.Data), bound)
			}
			out = append(out, f.Data...)
			if !f.Cut {
				out = append(out, '\n')
			}
			cont = f.Cut
		})
		rest := in
		for i := 0; len(rest) > 0; i++ {
			n := min(int(read)%(i+7)+1, len(rest)) // reads of several sizes
			s.Write(bytes.Clone(rest[:n]))
			rest = rest[n:]
		}
		s.Close()
		if !bytes.Equal(out, in) {
			t.Fatalf("joined: %q, want %q", out, in)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	for _, size := range []int{512, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("frame=%d", size), func(b *testing.B) {
			line := append(bytes.Repeat([]byte{'x'}, size-1), '\n')
			stream := bytes.Repeat(line, max(1, (1<<20)/size))
			s := frame.New(0, func(frame.Frame) {})
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				for p := stream; len(p) > 0; {
					n := min(64<<10, len(p))
					s.Write(p[:n])
					p = p[n:]
				}
			}
		})
	}
}

func ExampleSplitter() {
	s := frame.New(0, func(f frame.Frame) { fmt.Printf("%q whole=%v\n", f.Data, f.Whole()) })
	s.Write([]byte("{\"type\":\"sys"))
	s.Write([]byte("tem\"}\nWarning: x\n{\"ty"))
	s.Close()
	// Output:
	// "{\"type\":\"system\"}" whole=true
	// "Warning: x" whole=true
	// "{\"ty" whole=false
}

// A whole line stays until the next write, also one that began before.
func TestLinesStay(t *testing.T) {
	var held [][]byte
	var want []string
	s := frame.New(0, func(f frame.Frame) {
		if f.Whole() {
			held, want = append(held, f.Data), append(want, string(f.Data))
		}
	})
	check := func() {
		t.Helper()
		for i, got := range held {
			if string(got) != want[i] {
				t.Errorf("%.40q became %.40q", want[i], got)
			}
		}
		held, want = nil, nil
	}
	for i, w := range []string{"begin ", "end\nnext\nta", "il\nx", "y\n" + strings.Repeat("z", 10_000), "\n\nlast\nrest", "\n"} {
		if i%2 == 0 {
			check()
		}
		buf := []byte(w)
		_, _ = s.Write(buf)
		check()
		clear(buf)
	}
	s.Close()
}
