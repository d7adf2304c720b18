package relay

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
)

// A parsed is one event as a client dispatches it.
type parsed struct{ id, name, data string }

// parseSSE reads a stream as the HTML standard says (9.2.6): lines end in CR, LF or
// both; fields that are not known are ignored; an event without data is none.
func parseSSE(stream string) (list []parsed, retries int) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var e parsed
	var data []string
	lastID := ""
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] { // what no line end follows is dropped
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				list = append(list, parsed{lastID, e.name, strings.Join(data, "\n")})
			}
			e, data = parsed{}, nil
		case field == "event":
			e.name = value
		case field == "data":
			data = append(data, value)
		case field == "id" && !strings.Contains(value, "\x00"):
			lastID = value
		case field == "retry":
			retries++
		}
	}
	return list, retries
}

// FuzzFrame says that a client decodes exactly one event of each frame, with our id
// and a name of the fixed list, whatever the agent wrote, and that its bytes come
// back: case 100.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		"x\nid: 999999\nevent: approval", "\n\ndata: {\"type\":\"result\"}\n\n", "\r\nid: 7\r\n\r\ndata: x", "a\rb", "\u2028\u2029\u0085",
		`{"a":"\n\ndata: x"}`, "{\"a\":1}\r", " {}", "{}\n", "\x00\xff", "", ":", "data", "retry: 1", "\ufeffdata: x\n\n", `{"a":1}{"b":2}`,
	} {
		f.Add(uint64(3), s, s, s, s)
		f.Add(uint64(0), s, "msg", `{"type":"assistant"}`, "")
	}
	f.Fuzz(func(t *testing.T, seq uint64, text, kind, data, ref string) {
		e := &event.Event{
			Tenant: text, Run: "r" + text, Seq: seq, Time: time.Unix(1, 0), Type: "dev.cbcast." + text, Kind: event.Kind(kind), Stream: event.Stream(text),
			Session: text, Task: text, Parent: text, ContentType: event.JSON, TraceParent: text, RawHash: text, Data: []byte(data), Ref: ref,
			Ext: map[string]string{"note": text},
		}
		list, retries := parseSSE(string(newFrame(e, seq).sse))
		if len(list) != 1 || retries > 0 {
			t.Fatalf("%d events, %d retries", len(list), retries)
		}
		want := ""
		if seq > 0 {
			want = strconv.FormatUint(seq, 10)
		}
		if got := list[0]; got.id != want || !slices.Contains(event.Kinds, event.Kind(got.name)) {
			t.Fatalf("id %q, event %q; want id %q", got.id, got.name, want)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(list[0].data), &fields); err != nil {
			t.Fatal(err)
		}
		var raw []byte
		if b, ok := fields["data_base64"]; ok {
			if err := json.Unmarshal(b, &raw); err != nil {
				t.Fatal(err)
			}
		} else {
			raw = fields["data"]
		}
		if !bytes.Equal(raw, []byte(data)) {
			t.Fatalf("data is %q, was %q", raw, data)
		}
	})
}

// FuzzEnvelope says the same of the frames of the workflow protocol.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{"x\nid: 999999\nevent: approval", "\n\ndata: {}\n\n", "\r\rid: 7", "\u2028\u0085\x00", `"}` + "\n\n"} {
		f.Add(uint64(4097), s)
	}
	f.Fuzz(func(t *testing.T, seq uint64, text string) {
		data, err := json.Marshal(map[string]string{"delta": text, "channel": text})
		if err != nil {
			t.Fatal(err)
		}
		env := workflow.Envelope{
			SchemaVersion: workflow.SchemaVersion, RunID: text, WorkflowID: text, VersionID: text, Seq: seq, Event: workflow.NodeOutputDelta,
			NodeID: text, NodeRunID: text, Timestamp: time.Unix(1, 0), Data: data,
		}
		for _, withID := range []bool{true, false} {
			sse, _ := appendEnvelope(nil, &env, withID)
			list, retries := parseSSE(string(sse))
			if len(list) != 1 || retries > 0 || list[0].name != string(workflow.NodeOutputDelta) {
				t.Fatalf("%d events, %d retries: %q", len(list), retries, sse)
			}
			if want := strconv.FormatUint(seq, 10); withID && list[0].id != want || !withID && list[0].id != "" {
				t.Fatalf("id %q, want %q", list[0].id, want)
			}
			if !json.Valid([]byte(list[0].data)) {
				t.Fatalf("%q is no JSON", list[0].data)
			}
		}
	})
}
