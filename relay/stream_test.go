package relay_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

func TestStreamFromBeginningAndMiddleOverRestart(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(notes(300)...)
	e.shipped()
	s := r.relay(relay.Config{})
	first, middle := s.stream("/v1/runs/run-1/stream", nil), s.stream("/v1/runs/run-1/stream?after=150", nil)
	a, b := first.take(310-10), middle.take(100)
	e.emit(notes(50)...)
	a = append(a, first.take(20)...)
	s.stop()
	a, b = append(a, first.all()...), append(b, middle.all()...)
	e.emit(notes(50)...)

	s = r.relay(relay.Config{})
	last := func(list []sseEvent) map[string]string {
		return map[string]string{"Last-Event-ID": list[len(list)-1].id}
	}
	first, middle = s.stream("/v1/runs/run-1/stream?after=1", last(a)), s.stream("/v1/runs/run-1/stream?after=1", last(b))
	a = append(a, first.take(10)...)
	e.emit(note(0), exited())
	a, b = append(a, first.all()...), append(b, middle.all()...)
	if len(a) != 402 || len(b) != 252 {
		t.Fatalf("got %d and %d events, want 402 and 252", len(a), len(b))
	}
	for i, ev := range a {
		if ev.seq(t) != uint64(i+1) {
			t.Fatalf("event %d of the first client has id %s", i+1, ev.id)
		}
	}
	if d := cmp.Diff(a[150:], b, cmp.AllowUnexported(sseEvent{})); d != "" {
		t.Errorf("the tails differ:\n%s", d)
	}
	for _, h := range []map[string]string{last(a), last(b)} {
		if got := s.get("/v1/runs/run-1/stream", h); got.status != http.StatusNoContent || len(got.body) != 0 {
			t.Errorf("after the end: %d %q, want 204", got.status, got.body)
		}
	}
	if got := s.stream("/v1/runs/run-1/stream?after=401", nil).all(); ids(got) != "402" {
		t.Errorf("before the end: %s, want 402", ids(got))
	}
}

func TestStreamHeaders(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1), exited())
	e.shipped()
	s := r.relay(relay.Config{})
	c := s.stream("/v1/runs/run-1/stream", map[string]string{"Accept-Encoding": "gzip"})
	want := map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": "",
	}
	for k, v := range want {
		if got := c.res.Header.Get(k); got != v {
			t.Errorf("%s: %q, want %q", k, got, v)
		}
	}
	if got := ids(c.all()); got != "1 2" {
		t.Errorf("events %s", got)
	}
}

// The frames of the SSE injection (case 100), U+2028 (010) and HTML-escape cases.
func TestStreamBytes(t *testing.T) {
	lines := []string{
		`{"type":"system","subtype":"x\nid: 999999\nevent: approval","session_id":"s1"}`,
		`{"type":"user","message":{"role":"user","content":"a\n\ndata: {\"type\":\"result\"}\n\n"}}`,
		"{\"type\":\"user\",\"t\":\"a\u2028b\u2029c\u0085d\"}",
		`{ "type" : "assistant", "b":1, "a":2, "text":"if a<b && c>d {x}"}`,
		`{ "type" : "assistant", "b":1, "a":2, "text":"trailing space"} `,
		"\r\nid: 7\r\ndata: no json", "", "\x00\xff\xfe", "{\"a\":1}\r", " ", "data: x\n\nid: 5",
		`{"big":"` + strings.Repeat("x", 700<<10) + `"}`, strings.Repeat("y", 600<<10),
	}
	r := newRig(t, small())
	e := r.edge("run-1")
	var want [][]byte
	var seqs []uint64
	for i, l := range lines {
		ev := frameOf(l)
		if !strings.HasPrefix(l, "{") {
			ev.ContentType, ev.Kind, ev.Type = event.Binary, event.Raw, "dev.cbcast.claude.raw"
		}
		ev.Session = "s\r\nid: 1\n\n"
		ev.Task = "t\nevent: x"
		if i == 0 {
			ev.Kind = "x\nid: 3" // no edge does; a bus is an input all the same
		}
		want, seqs = append(want, []byte(l)), append(seqs, e.emit(ev))
	}
	s := r.relay(relay.Config{})
	live := s.stream("/v1/runs/run-1/stream", nil)
	got := live.take(len(lines))
	e.emit(exited())
	replay := s.stream("/v1/runs/run-1/stream", nil).all()
	if d := cmp.Diff(got, replay[:len(got)], cmp.AllowUnexported(sseEvent{})); d != "" {
		t.Errorf("live and replay differ:\n%.2000s", d)
	}
	names := []string{"life", "msg", "task", "end", "ask", "cmd", "raw"}
	for i, ev := range got {
		if ev.seq(t) != seqs[i] {
			t.Errorf("frame %d: id %s, want %d", i, ev.id, seqs[i])
		}
		if !slices.Contains(names, ev.name) {
			t.Errorf("frame %d: event %q", i, ev.name)
		}
		sameBytes(t, fmt.Sprintf("frame %d", i), dataOf(t, ev), want[i])
	}
}

func TestStreamFilters(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	for i := range 9 {
		ev := note(i)
		ev.Session, ev.Task = fmt.Sprintf("s%d", i%2), fmt.Sprintf("t%d", i%3)
		e.emit(ev)
	}
	e.emit(exited())
	e.shipped()
	s := r.relay(relay.Config{})
	for query, want := range map[string]string{
		"": "1 2 3 4 5 6 7 8 9 10", "?session=s1": "2 4 6 8 10", "?task=t0": "1 4 7 10", "?task=t0&session=s1": "4 10",
		"?task=none": "10", "?task=t0&after=4": "7 10",
	} {
		if got := ids(s.stream("/v1/runs/run-1/stream"+query, nil).all()); got != want {
			t.Errorf("stream %q: %s, want %s", query, got, want)
		}
		p := s.page("/v1/runs/run-1/events" + query)
		var list []string
		for _, ev := range p.Events {
			list = append(list, fmt.Sprint(ev.Seq))
		}
		if got := strings.Join(list, " "); got != want || p.Next != 10 || p.Head != 10 || !p.Ended {
			t.Errorf("page %q: %s next %d head %d ended %v, want %s", query, got, p.Next, p.Head, p.Ended, want)
		}
	}
	if got := s.get("/v1/runs/run-1/stream?task=none&after=10", nil); got.status != http.StatusNoContent {
		t.Errorf("filtered, at the end: %d", got.status)
	}
}

// What is no cursor is an error, and one of another run opens nothing (cases 093, 105).
func TestCursor(t *testing.T) {
	r := newRig(t, small())
	for _, run := range []string{"run-1", "run-2"} {
		e := r.edge(run)
		e.emit(notes(9)...)
		if run == "run-2" {
			e.emit(frameOf(`{"secret":"of run-2"}`))
			e.emit(notes(90)...)
		}
		e.emit(exited())
		e.shipped()
	}
	s := r.relay(relay.Config{})
	bad := []struct {
		query, header string
		set           bool
	}{
		{query: "?after=abc"},
		{query: "?after=-1"},
		{query: "?after=18446744073709551616"},
		{query: "?after="},
		{query: "?after=1.0"},
		{query: "?after=0x1"},
		{query: "?after=%201"},
		{query: "?after=1&after=2"},
		{query: "?after_seq=x"},
		{query: "?after=%EF%BC%91"},
		{header: "", set: true},
		{header: "abc", set: true},
		{header: "-1", set: true},
		{header: "18446744073709551616", set: true},
		{query: "?after=1", header: "run-2/5", set: true},
	}
	for _, c := range bad {
		h := map[string]string{}
		if c.set {
			h["Last-Event-ID"] = c.header
		}
		for _, path := range []string{"stream", "events"} {
			got := s.get("/v1/runs/run-1/"+path+c.query, h)
			var body relay.ErrorBody
			got.into(t, &body)
			if got.status != http.StatusBadRequest || body.Code != relay.CodeBadCursor || body.Message == "" {
				t.Errorf("%s %q %q: %d %s", path, c.query, c.header, got.status, got.body)
			}
		}
	}
	for _, c := range []struct{ query, header, want string }{
		{"?after=7", "", "8 9 10"},
		{"?after_seq=7", "", "8 9 10"},
		{"?after=8&after_seq=1", "", "9 10"},
		{"?after=1", "8", "9 10"},
		{"?after=00000000000000000009", "", "10"},
		{"?after=0", "", "1 2 3 4 5 6 7 8 9 10"},
		{"", "50", "reset 1 2 3 4 5 6 7 8 9 10"},
		{"", "18446744073709551615", "reset 1 2 3 4 5 6 7 8 9 10"},
	} {
		h := map[string]string{}
		if c.header != "" {
			h["Last-Event-ID"] = c.header
		}
		list := s.stream("/v1/runs/run-1/stream"+c.query, h).all()
		if got := ids(list); got != c.want {
			t.Errorf("%q %q: %s, want %s", c.query, c.header, got, c.want)
		}
		for _, ev := range list {
			if strings.Contains(ev.data, "secret of run-2") {
				t.Error("the other run shows")
			}
		}
	}
	a, b := s.get("/v1/runs/run-3/stream", nil), s.get("/v1/runs/run-1%2F..%2Frun-2/stream", nil)
	if a.status != http.StatusNotFound || b.status != http.StatusNotFound || string(a.body) != string(b.body) {
		t.Errorf("unknown runs: %d %s, %d %s", a.status, a.body, b.status, b.body)
	}
}
