package event_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
)

func full() *event.Event {
	return &event.Event{
		Tenant: "acme/eu", Run: "01a22b5e-86e2-71ce-bba9-deb6689bb787", Seq: 42,
		Time: time.Date(2026, 11, 30, 7, 32, 25, 926000000, time.UTC),
		Type: "dev.cbcast.cbc.system.task_progress", Kind: event.Task, Stream: event.Out,
		Session: "s é 1", Task: "t\"%1", Parent: "call_1", ContentType: event.JSON,
		Chunk: event.Part{I: 2, N: 3}, Part: event.Part{I: 1, N: 2}, Cut: true,
		TraceParent: "00-274971ab90dc8e38d09d6a7a6318f648-128c8446d30c5384-01",
		Redacted:    []event.Span{{Rule: "account", Off: 10, Len: 18, RawLen: 200}, {Rule: "bearer", Off: 40, Len: 17, RawLen: 60}},
		RawLen:      4096, RawHash: "hmac-sha256:ab12",
		Ext:  map[string]string{"cirepo": "o/r", "note": "a b"},
		Data: []byte(`{"type":"system"}`),
	}
}

func TestAttributesRoundTrip(t *testing.T) {
	want := full()
	got := &event.Event{Kind: want.Kind, Data: want.Data}
	want.Attributes(func(name, value string) {
		enc := event.EncodeValue(value)
		for i := range len(enc) {
			if c := enc[i]; c <= ' ' || c > '~' {
				t.Errorf("%s: %q holds byte %#x", name, enc, c)
			}
		}
		if err := got.Set(strings.ToUpper(name), event.DecodeValue(enc)); err != nil {
			t.Error(err)
		}
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestMetaRoundTrip(t *testing.T) {
	want := full()
	got := &event.Event{Tenant: want.Tenant, Run: want.Run, Seq: want.Seq, Data: want.Data}
	if err := event.DecodeMeta(event.AppendMeta(nil, want), got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDecodeMetaRefuses(t *testing.T) {
	e := &event.Event{Time: full().Time, Type: "t", Kind: event.Raw, ContentType: event.Binary}
	fixed := len(event.AppendMeta(nil, e))
	whole := event.AppendMeta(nil, full())
	for n := range fixed {
		if err := event.DecodeMeta(event.AppendMeta(nil, e)[:n], &event.Event{}); err == nil {
			t.Errorf("a meta cut at byte %d of %d was accepted", n, fixed)
		}
	}
	// Inside a name or value the cut shows, too; between two pairs it does not.
	if err := event.DecodeMeta(whole[:len(whole)-1], &event.Event{}); err == nil {
		t.Error("a cut value was accepted")
	}
	if err := event.DecodeMeta(append([]byte{99}, whole[1:]...), &event.Event{}); err == nil {
		t.Error("another version was accepted")
	}
}

// TestNames holds the case of attribute names and empty required attributes:
// only lower-case letters and digits, at most 20, and the SDK's own validation.
func TestNames(t *testing.T) {
	e := full()
	seen := map[string]bool{}
	e.Attributes(func(name, value string) {
		if seen[name] {
			t.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if len(name) > 20 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Errorf("attribute name %q", name)
		}
		if value == "" {
			t.Errorf("attribute %s is empty", name)
		}
	})
	if event.ValidExtension("run_id") || event.ValidExtension("session") || event.ValidExtension("parentToolUseId") ||
		event.ValidExtension("") || event.ValidExtension(strings.Repeat("a", 21)) || !event.ValidExtension("cirepo") {
		t.Error("ValidExtension")
	}
	if _, err := e.CloudEvent(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAppendJSONKeepsBytes(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		embedded   bool
	}{
		{"plain", `{"b":1,"a":"<&>"}`, true},
		{"inner space", `{"n" : 9223372036854775807, "m":0.10, "e":1E5, "z":-0, "big":1e400}`, true},
		{"line separators", "{\"t\":\"a\u2028b\u2029c\u0085\"}", true},
		{"lone surrogate", `{"t":"\ud83d"}`, true},
		{"escaped NUL", `{"t":"W\u0000"}`, true},
		{"trailing space", `{"a":1} `, false},
		{"trailing CR", "{\"a\":1}\r", false},
		{"inner CR", "{\"a\":\r1}", false},
		{"raw invalid UTF-8", "{\"a\":\"\xff\"}", false},
		{"no JSON", "hello", false},
		{"glued", `{"a":1}{"b":2}`, false},
		{"SSE injection", "x\nid: 999999\nevent: approval\n\ndata: {}", false},
		{"empty", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := full()
			e.Chunk, e.Part, e.Data = event.Part{}, event.Part{}, []byte(tt.data)
			line := e.AppendJSON(nil)
			if bytes.ContainsAny(line, "\r\n") {
				t.Errorf("more than one line: %q", line)
			}
			if !json.Valid(line) {
				t.Fatalf("not JSON: %s", line)
			}
			if got := strings.Contains(string(line), `"data":`); got != tt.embedded {
				t.Errorf("embedded = %v in %s", got, line)
			}
			got, err := event.ParseJSON(line)
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Data) != tt.data {
				t.Errorf("data = %q, want %q", got.Data, tt.data)
			}
			got.Kind, got.Data, e.Data = e.Kind, nil, nil
			if d := cmp.Diff(e, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCloudEvent(t *testing.T) {
	e := full()
	out, err := e.CloudEvent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if out.ID() != e.ID() || out.Source() != e.Source() || out.Type() != e.Type || !out.Time().Equal(e.Time) ||
		out.DataContentType() != event.JSON || !bytes.Equal(out.Data(), e.Data) {
		t.Errorf("converted to %v", out)
	}
	if out.Extensions()["sequence"] != "000000000042" || out.Extensions()["stream"] != "out" {
		t.Errorf("extensions %v", out.Extensions())
	}
}

func TestDecodeValueReadsBothSpellings(t *testing.T) {
	for in, want := range map[string]string{"a%20b": "a b", "a b": "a b", "100%": "100%", "%zz": "%zz", "%C3%A9": "é"} {
		if got := event.DecodeValue(in); got != want {
			t.Errorf("DecodeValue(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLimitSpans(t *testing.T) {
	data := bytes.Repeat([]byte("xx[redacted]yy"), 100)
	var spans []event.Span
	for i := range 100 {
		spans = append(spans, event.Span{Rule: "r", Off: i*14 + 2, Len: 10, RawLen: 20})
	}
	out, got := event.LimitSpans(data, spans, "[redacted:many]")
	if len(got) != 64 {
		t.Fatalf("%d spans", len(got))
	}
	raw := len(out)
	for _, s := range got {
		raw += s.RawLen - s.Len
	}
	if want := len(data) + 100*10; raw != want {
		t.Errorf("raw length by spans %d, want %d", raw, want)
	}
	if !bytes.HasSuffix(out, []byte("[redacted:many]yy")) {
		t.Errorf("ends %q", out[len(out)-20:])
	}
}

func pieces(seq uint64, data string, size, partsOf int) []*event.Event {
	var out []*event.Event
	chunks := event.Split([]byte(data), size)
	for i, c := range chunks {
		e := &event.Event{Run: "r", Seq: seq + uint64(i), Data: c}
		if len(chunks) > 1 {
			e.Chunk = event.Part{I: i + 1, N: len(chunks)}
		}
		if partsOf == 0 || len(c) <= partsOf {
			out = append(out, e)
			continue
		}
		ps := event.Split(c, partsOf)
		for k, p := range ps {
			m := *e
			m.Part, m.Data = event.Part{I: k + 1, N: len(ps)}, p
			out = append(out, &m)
		}
	}
	return out
}

func TestJoiner(t *testing.T) {
	data := strings.Repeat("0123456789", 7)
	for _, size := range []int{3, 10, 69, 70, 1000} {
		for _, part := range []int{0, 1, 4, 100} {
			var j event.Joiner
			in := append(pieces(5, data, size, part), pieces(900, "next", 10, 0)...)
			var got []string
			var last uint64
			for _, e := range in {
				w, l, broken := j.Add(e)
				if broken != nil {
					t.Errorf("size %d part %d: broken %v", size, part, broken)
				}
				if w != nil {
					got = append(got, string(w.Data))
					if len(got) == 1 {
						last = l
						if w.Seq != 5 || w.Cut || !w.Chunk.IsZero() || !w.Part.IsZero() {
							t.Errorf("joined %+v", w)
						}
					}
				}
			}
			if d := cmp.Diff([]string{data, "next"}, got); d != "" {
				t.Errorf("size %d part %d: %s", size, part, d)
			}
			if want := 5 + uint64((len(data)+size-1)/size) - 1; last != want {
				t.Errorf("size %d: last %d, want %d", size, last, want)
			}
		}
	}
}

func TestJoinerBroken(t *testing.T) {
	var j event.Joiner
	in := pieces(1, "abcdef", 2, 0)
	j.Add(in[0])
	whole, _, broken := j.Add(&event.Event{Seq: 9, Data: []byte("z")})
	if whole == nil || string(whole.Data) != "z" || broken == nil || string(broken.Data) != "ab" || !broken.Cut {
		t.Errorf("whole %v broken %v", whole, broken)
	}
	// A reader that starts inside a frame gets its pieces as they are.
	whole, last, _ := j.Add(in[1])
	if whole != in[1] || last != 2 {
		t.Errorf("whole %v last %d", whole, last)
	}
	// Past the bound a frame comes in pieces, none lost.
	j = event.Joiner{Max: 3}
	var got []string
	for _, e := range in {
		if w, _, _ := j.Add(e); w != nil {
			got = append(got, string(w.Data))
		}
	}
	if s := strings.Join(got, ""); s != "abcdef" {
		t.Errorf("bounded join gave %q", got)
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add(full().AppendJSON(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := event.ParseJSON(b)
		if err != nil {
			return
		}
		if e2, err := event.ParseJSON(e.AppendJSON(nil)); err == nil && !bytes.Equal(e.Data, e2.Data) {
			t.Fatalf("data %q came back as %q", e.Data, e2.Data)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(event.AppendMeta(nil, full()))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &event.Event{}
		if event.DecodeMeta(b, e) != nil {
			return
		}
		e2 := &event.Event{}
		if err := event.DecodeMeta(event.AppendMeta(nil, e), e2); err != nil {
			t.Fatal(err)
		}
	})
}
