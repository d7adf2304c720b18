package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// full has every attribute, with values that need encoding.
func full() *event.Event {
	return &event.Event{
		Tenant: "acme", Run: "r1", Seq: 7, Time: epoch, Type: "dev.cbcast.claude.assistant", Kind: event.Msg,
		Stream: event.Out, Session: "s é 1", Task: `t%20"x"`, Parent: "toolu_1", ContentType: event.JSON,
		Chunk: event.Part{I: 2, N: 3}, Part: event.Part{I: 1, N: 2}, Cut: true,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Redacted:    []event.Span{{Rule: "bearer", Off: 1, Len: 2, RawLen: 3}}, RawLen: 99, RawHash: "abc",
		Ext: map[string]string{"ciprovider": "github", "cijob": "a b\r\nc"}, Data: []byte("{\"a\":1}\r"),
	}
}

func TestCodecRoundTrip(t *testing.T) {
	for name, want := range map[string]*event.Event{"full": full(), "plain": ev("r1", 1)} {
		m := bus.Encode(0, want)
		for k, vs := range m.Header {
			if k != strings.ToLower(k) || !strings.HasPrefix(k, "ce-") {
				t.Errorf("%s: header %q", name, k)
			}
			for _, c := range vs[0] {
				if c <= ' ' || c > '~' || c == '"' {
					t.Errorf("%s: header %s holds %q", name, k, vs[0])
				}
			}
		}
		got, err := bus.Decode(m.Subject, m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// Case 092: other CloudEvents software takes it.
		if _, err := got.CloudEvent(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// What the CloudEvents Go SDK writes, and what its users write by hand.
func TestDecodeOtherSpellings(t *testing.T) {
	const subj = "cbc.ev.0.acme.r1.s1._.msg"
	want := ev("r1", 3)
	for name, h := range map[string]nats.Header{
		"sdk": {
			"ce-specversion": {"1.0"}, "ce-id": {"r1/3"}, "ce-source": {"/cbcast/acme/r1"}, "ce-type": {want.Type},
			"ce-time": {"2026-01-02T03:04:05.003006Z"}, "content-type": {event.JSON}, "ce-sequence": {"3"},
			"ce-session": {"s1"}, "ce-stream": {"out"},
		},
		"case": {
			"Ce-Specversion": {"1.0"}, "CE-ID": {"r1/3"}, "Ce-Source": {"/cbcast/acme/r1"}, "Ce-Type": {want.Type},
			"Ce-Time": {"2026-01-02T03:04:05.003006Z"}, "Ce-DataContentType": {event.JSON}, "CE-Sequence": {"000000000003"},
			"Ce-Session": {"s1"}, "Ce-Stream": {"out"}, "Nats-Msg-Id": {"r1/3"},
		},
	} {
		got, err := bus.Decode(subj, h, want.Data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	h := nats.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}
	got, err := bus.Decode(subj, h, want.AppendJSON(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("structured: %s", diff)
	}
}

// A publisher may write only where its subject permits, so the subject says
// whose event it is. One that says otherwise itself was not written there.
func TestDecodeTrustsSubject(t *testing.T) {
	e := ev("r1", 3)
	m := bus.Encode(0, e)
	got, err := bus.Decode("cbc.ev.0.acme.r2.s1._.end", m.Header, m.Data)
	if !errors.Is(err, bus.ErrForeign) {
		t.Errorf("%+v, %v", got, err)
	}
	delete(m.Header, "ce-source")
	got, err = bus.Decode("cbc.ev.0.acme.r2.s1._.end", m.Header, m.Data)
	if err != nil || got.Run != "r2" || got.Kind != event.End {
		t.Errorf("%+v, %v", got, err)
	}
	for name, h := range map[string]nats.Header{
		"no event": {"x": {"y"}}, "no sequence": {"ce-type": {"t"}}, "bad time": {"ce-type": {"t"}, "ce-time": {"now"}},
		"version": {"ce-type": {"t"}, "ce-specversion": {"0.3"}},
	} {
		if got, err := bus.Decode("cbc.ev.0.acme.r2.s1._.end", h, nil); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("cbc.ev.0.acme.r1.s1._.msg", "ce-type", "t", "ce-sequence", "1", []byte("{}"))
	f.Add("cbc.ctl.acme.r1.liveness", "content-type", "application/cloudevents+json", "", "", []byte(`{"data":1}`))
	f.Fuzz(func(t *testing.T, subj, k1, v1, k2, v2 string, data []byte) {
		e, err := bus.Decode(subj, nats.Header{k1: {v1}, k2: {v2}}, data)
		if (e == nil) == (err == nil) {
			t.Fatalf("%v, %v", e, err)
		}
	})
}

// A row of messages from one encoder has in each the headers of its own event
// and nothing of another.
func TestEncodeRow(t *testing.T) {
	var evs []*event.Event
	for i := range uint64(40) {
		e := ev("r1", i+1)
		if i%5 == 3 {
			e = full()
		}
		if i%7 == 4 {
			e.Task, e.Ext = "t", map[string]string{"note": "x"}
		}
		evs = append(evs, e)
	}
	for i, got := range bus.EncodeRow(0, evs) {
		want := bus.Encode(0, evs[i]).Header
		want["Nats-Msg-Id"] = []string{evs[i].ID()}
		if i%3 == 0 {
			want["Nats-Expected-Last-Subject-Sequence"] = []string{"1"}
			want["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{"x"}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("message %d: %s", i, d)
		}
	}
}
