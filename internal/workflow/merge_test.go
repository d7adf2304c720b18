package workflow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/workflow"
)

var start = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

// deltaOf is an envelope with a delta; its text stands as it is between quotes.
func deltaOf(seq uint64, node, channel, text string) workflow.Envelope {
	return workflow.Envelope{
		SchemaVersion: "1.0", RunID: "r", WorkflowID: "w", VersionID: "v", Seq: seq, Event: workflow.NodeOutputDelta,
		NodeID: node, NodeRunID: node + "#1", Timestamp: start.Add(time.Duration(seq) * time.Millisecond),
		Data: json.RawMessage(`{"channel":"` + channel + `","delta":"` + text + `"}`),
	}
}

func merged(m *workflow.Merger, list ...workflow.Envelope) (out []workflow.Envelope) {
	for _, e := range list {
		out = append(out, whole(m.Add(e))...)
	}
	return append(out, whole(m.Flush())...)
}

func whole(list []workflow.Merged) (out []workflow.Envelope) {
	for _, m := range list {
		if e, ok := m.After(0); ok {
			out = append(out, e)
		}
	}
	return out
}

func TestMerge(t *testing.T) {
	other := deltaOf(5, "a", "text", "")
	other.Event, other.Data = workflow.NodeProgress, json.RawMessage(`{"delta":"no delta"}`)
	more := deltaOf(4, "a", "text", "")
	more.Data = json.RawMessage(`{"channel":"text","delta":"y","n":"1"}`)
	bare := deltaOf(6, "a", "text", "")
	bare.Data = json.RawMessage(`{"delta":7}`)
	tests := []struct {
		name string
		off  bool
		in   []workflow.Envelope
		want []string // seq, milliseconds, data
	}{
		{
			name: "two", in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), deltaOf(4, "a", "text", "y")},
			want: []string{`4 3 {"channel":"text","delta":"xy"}`},
		},
		{
			name: "off", off: true, in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), deltaOf(4, "a", "text", "y")},
			want: []string{`3 3 {"channel":"text","delta":"x"}`, `4 4 {"channel":"text","delta":"y"}`},
		},
		{
			name: "another channel", in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), deltaOf(4, "a", "plan", "y")},
			want: []string{`3 3 {"channel":"text","delta":"x"}`, `4 4 {"channel":"plan","delta":"y"}`},
		},
		{
			name: "another node", in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), deltaOf(4, "b", "text", "y"), deltaOf(5, "a", "text", "z")},
			want: []string{`3 3 {"channel":"text","delta":"x"}`, `4 4 {"channel":"text","delta":"y"}`, `5 5 {"channel":"text","delta":"z"}`},
		},
		{
			name: "something else between", in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), deltaOf(4, "a", "text", "y"), other, deltaOf(7, "a", "text", "z")},
			want: []string{`4 3 {"channel":"text","delta":"xy"}`, `5 5 {"delta":"no delta"}`, `7 7 {"channel":"text","delta":"z"}`},
		},
		{
			name: "no text", in: []workflow.Envelope{deltaOf(3, "a", "text", "x"), bare},
			want: []string{`3 3 {"channel":"text","delta":"x"}`, `6 6 {"delta":7}`},
		},
		{
			name: "halves of a character", in: []workflow.Envelope{deltaOf(3, "a", "text", `\ud83d`), deltaOf(4, "a", "text", `\ude00"`[:6])},
			want: []string{`4 3 {"channel":"text","delta":"\ud83d\ude00"}`},
		},
		{
			name: "escapes", in: []workflow.Envelope{deltaOf(3, "a", "text", `\n\"`), deltaOf(4, "a", "text", `\\`), deltaOf(5, "a", "text", `\n\ndata: x`)},
			want: []string{`5 3 {"channel":"text","delta":"\n\"\\\n\ndata: x"}`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, e := range merged(&workflow.Merger{Off: tt.off}, tt.in...) {
				if !json.Valid(e.Data) {
					t.Errorf("data %s", e.Data)
				}
				got = append(got, fmt.Sprint(e.Seq, " ", e.Timestamp.Sub(start).Milliseconds(), " ", string(e.Data)))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// What is joined is bounded; a long delta is never cut.
func TestMergeBytes(t *testing.T) {
	var in []workflow.Envelope
	for i := range uint64(100) {
		in = append(in, deltaOf(i+1, "a", "text", strings.Repeat("x", 100)))
	}
	in = append(in, deltaOf(200, "a", "text", strings.Repeat("y", 5000)))
	var sizes []int
	for _, e := range merged(&workflow.Merger{}, in...) {
		var d struct{ Delta string }
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(d.Delta))
	}
	if want := []int{1100, 1100, 1100, 1100, 1100, 1100, 1100, 1100, 1100, 5100}; !cmp.Equal(want, sizes) {
		t.Errorf("sizes %v, want %v", sizes, want)
	}
}

// Relays join what comes as it comes, each at other places, and clients move from one
// to the other wherever they are cut: the text is the same, every seq rises.
func TestMergeExactOverAnyReconnects(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		in, want := talk(rnd)
		relays := [][]workflow.Merged{cut(rnd, in), cut(rnd, in), cut(rnd, in)}
		got, cursor := map[string]string{}, uint64(0)
		for last := in[len(in)-1].Seq; cursor < last; {
			list := relays[rnd.IntN(len(relays))]
			for n := rnd.IntN(20); n >= 0 && len(list) > 0; list = list[1:] {
				e, ok := list[0].After(cursor)
				if !ok {
					continue
				}
				if e.Seq <= cursor {
					t.Fatalf("seed %d: %d after %d", seed, e.Seq, cursor)
				}
				cursor = e.Seq
				n--
				say(got, e)
				if !json.Valid(e.Data) {
					t.Fatalf("seed %d: data %s", seed, e.Data)
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
}

// talk makes envelopes, and the text that each node says on each channel.
func talk(rnd *rand.Rand) (list []workflow.Envelope, want map[string]string) {
	seq := uint64(0)
	want = map[string]string{}
	words := []string{"a", "bc", `\n`, "é", `\ud83d`, `\ude00`, "", `\"`, strings.Repeat("z", 700)}
	for range 10 + rnd.IntN(150) {
		seq += 1 + rnd.Uint64N(3)*workflow.Step
		e := deltaOf(seq, []string{"a", "b"}[rnd.IntN(8)/7], []string{"text", "plan"}[rnd.IntN(8)/7], words[rnd.IntN(len(words))])
		if rnd.IntN(12) == 0 {
			e.Event = workflow.NodeProgress
		}
		list = append(list, e)
	}
	for _, e := range list {
		say(want, e)
	}
	return list, want
}

// say adds the text of a delta, as it is escaped, to that of its node and channel.
func say(said map[string]string, e workflow.Envelope) {
	if e.Event != workflow.NodeOutputDelta {
		return
	}
	data := strings.TrimSuffix(strings.TrimPrefix(string(e.Data), `{"channel":"`), `"}`)
	channel, text, _ := strings.Cut(data, `","delta":"`)
	said[e.NodeRunID+" "+channel] += text
}

// cut joins envelopes with an end to what is open at any time.
func cut(rnd *rand.Rand, in []workflow.Envelope) (out []workflow.Merged) {
	m := workflow.Merger{Off: rnd.IntN(10) == 0}
	for _, e := range in {
		out = append(out, m.Add(e)...)
		switch open, ok := m.Open(); {
		case ok && rnd.IntN(8) == 0: // as a page shows it
			out = append(out, open)
		case rnd.IntN(6) == 0:
			out = append(out, m.Flush()...)
		}
	}
	return append(out, m.Flush()...)
}
