package child_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest/child"
)

func response(id string) string {
	return fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q}}`+"\n", id)
}

// The parent does not see the answer to a line of ours, and sees all others.
func TestHide(t *testing.T) {
	t.Parallel()
	p := start(t, config("answer"))
	p.Hide("cbcast-1")
	if err := p.Inject(t.Context(), []byte(line)); err != nil {
		t.Fatal(err)
	}
	// An id that hosts use again and again, and again ours.
	p.stdin.WriteString(strings.ReplaceAll(line, "cbcast-1", "interrupt_7") + "text\n" + line)
	p.stdin.Close()
	out := p.rest()
	res, tap := p.wait()
	if want := response("interrupt_7") + "text\n" + response("cbcast-1"); out != want {
		t.Errorf("parent got %q, want %q", out, want)
	}
	if want := response("cbcast-1") + out; string(tap[child.Out]) != want {
		t.Errorf("tap got %q, want %q", tap[child.Out], want)
	}
	if res.Hidden != 1 || res.HiddenBytes != int64(len(response("cbcast-1"))) {
		t.Errorf("Hidden = %d, %d bytes", res.Hidden, res.HiddenBytes)
	}
}

func TestFilter(t *testing.T) {
	const pre = `{"type":"control_response"`
	ours := response("cbcast-1")
	long := pre + strings.Repeat("x", 70<<10) + `"cbcast-1"` + "\n"
	for _, tt := range []struct {
		name  string
		ids   []string
		reads []string
		want  []string // what the parent gets at each read
		flush string
	}{
		{"nothing awaited", nil, []string{ours, pre}, []string{ours, pre}, ""},
		{"whole", []string{"cbcast-1"}, []string{"a\n" + ours + "b\n"}, []string{"a\nb\n"}, ""},
		{"in halves", []string{"cbcast-1"}, []string{"a\n{", `"type":"contr`, ours[14:50], ours[50:] + "b"}, []string{"a\n", "", "", "b"}, ""},
		{"another begins alike", []string{"cbcast-1"}, []string{`{"type":"con`, `text"}` + "\n"}, []string{"", `{"type":"context"}` + "\n"}, ""},
		{"half a line passes", []string{"cbcast-1"}, []string{`{"type":"assistant","te`, `xt":1}` + "\n"}, []string{`{"type":"assistant","te`, `xt":1}` + "\n"}, ""},
		{"not at a line's start", []string{"cbcast-1"}, []string{"x", ours, ours}, []string{"x", ours, ""}, ""},
		{"of another", []string{"cbcast-1"}, []string{response("7")}, []string{response("7")}, ""},
		{"id as a part of another", []string{"cbcast-1"}, []string{response("cbcast-12")}, []string{response("cbcast-12")}, ""},
		{"once", []string{"cbcast-1"}, []string{ours + ours}, []string{ours}, ""},
		{"two, other order", []string{"cbcast-1", "cbcast-2"}, []string{response("cbcast-2"), ours + "a"}, []string{"", "a"}, ""},
		{"too long", []string{"cbcast-1"}, []string{long[:100], long[100:], ours}, []string{"", long, ""}, ""},
		{"codex", []string{"cbcast-1"}, []string{`{"id":"cbcast-1","result":{}}` + "\nx"}, []string{"x"}, ""},
		{"codex, in halves", []string{"cbcast-1"}, []string{`{"i`, `d":"cbcast-1","res`, `ult":{}}` + "\nx"}, []string{"", "", "x"}, ""},
		{"codex, an error", []string{"cbcast-1"}, []string{`{"error":{"code":-32600,"message":"no"},`, `"id":"cbcast-1"}` + "\n"}, []string{"", ""}, ""},
		{"codex, the host's", []string{"cbcast-1"}, []string{`{"id":1,"resu`, `lt":{}}` + "\n"}, []string{`{"id":1,"resu`, `lt":{}}` + "\n"}, ""},
		{"codex, the host's of like form", []string{"cbcast-1"}, []string{`{"id":"cb-1","resu`, `lt":"cbcast-1"}` + "\n"}, []string{`{"id":"cb-1","resu`, `lt":"cbcast-1"}` + "\n"}, ""},
		{"codex, the host's error", []string{"cbcast-1"}, []string{`{"error":{"code":-32600,"message":"no"},"id":4}` + "\n"}, []string{`{"error":{"code":-32600,"message":"no"},"id":4}` + "\n"}, ""},
		{"codex, a note", []string{"cbcast-1"}, []string{`{"method":"x","pa`, `rams":{}}` + "\n"}, []string{`{"method":"x","pa`, `rams":{}}` + "\n"}, ""},
		{"no LF at EOF", []string{"cbcast-1"}, []string{ours[:60]}, []string{""}, ours[:60]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := child.NewFilter(tt.ids...)
			for i, r := range tt.reads {
				if got := string(f.Filter([]byte(r))); got != tt.want[i] {
					t.Errorf("read %d: parent gets %.80q, want %.80q", i, got, tt.want[i])
				}
			}
			if got := string(f.Flush()); got != tt.flush {
				t.Errorf("at the end: %q, want %q", got, tt.flush)
			}
		})
	}
}

// What is held is let go when the answer is no more awaited.
func TestUnhide(t *testing.T) {
	f := child.NewFilter("cbcast-1")
	f.Filter([]byte(`{"type":`))
	f.Remove("cbcast-1")
	if got, want := string(f.Filter([]byte("1}\n"))), `{"type":1}`+"\n"; got != want {
		t.Errorf("parent gets %q, want %q", got, want)
	}
}

// FuzzFilter: however the stream is cut into reads, the parent gets it without
// the first line that answers our id, and bytes of other lines are not held.
func FuzzFilter(f *testing.F) {
	ours := response("cbcast-1")
	f.Add([]byte("a\n"+ours+"b"), uint8(3))
	f.Add([]byte(ours+ours), uint8(1))
	f.Add([]byte(`{"type":"control_response"`+"\n"+`{"type":"control_resp`), uint8(5))
	f.Add([]byte(`{"id":7,"result":{}}`+"\n"+`{"id":"cbcast-1","result":{}}`+"\n"+`{"id":"cb`), uint8(4))
	f.Add([]byte(`{"error":{"code":1},"id":"x"}`+"\n"+`{"error":{"code":1},"id":"cbcast-1"}`+"\n"), uint8(2))
	answers := [][]byte{[]byte(`{"type":"control_response"`), []byte(`{"id":"cbcast-`), []byte(`{"error":{"`)}
	f.Fuzz(func(t *testing.T, in []byte, read uint8) {
		in = bytes.ReplaceAll(in, []byte("@"), []byte(ours)) // let the fuzzer find it
		var want []byte
		hidden := false
		for l := range bytes.Lines(in) {
			answer := slices.ContainsFunc(answers, func(p []byte) bool { return bytes.HasPrefix(l, p) })
			if !hidden && l[len(l)-1] == '\n' && answer &&
				bytes.Contains(l, []byte(`"cbcast-1"`)) && len(l) <= 64<<10 {
				hidden = true
				continue
			}
			want = append(want, l...)
		}
		flt := child.NewFilter("cbcast-1")
		var got []byte
		for rest := in; len(rest) > 0; {
			n := min(int(read)+1, len(rest))
			got = append(got, flt.Filter(rest[:n])...)
			rest = rest[n:]
		}
		got = append(got, flt.Flush()...)
		if !bytes.Equal(got, want) {
			t.Errorf("parent gets %q, want %q", got, want)
		}
	})
}
