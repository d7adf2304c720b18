package bus_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

func TestPublishAndRead(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	src := newMemory(evs("r1", 5000)...).end()
	st := publish(t, b, "r1", src)
	if src.acked != 5000 || st.Events != 5000 || st.Messages != 5000 || st.Batches != 1 {
		t.Errorf("acked %d, %+v", src.acked, st)
	}
	whole(t, b, "r1", 5000)
	got := history(t, b, ref("r1"), 4990)
	if len(got) != 10 {
		t.Fatalf("%d events after 4990", len(got))
	}
	if diff := cmp.Diff(ev("r1", 4991), got[0]); diff != "" {
		t.Error(diff)
	}
	last, sseq, err := b.Last(t.Context(), ref("r1"))
	if err != nil || last.Seq != 5000 || sseq != 5000 {
		t.Errorf("Last = %v %d %v", last, sseq, err)
	}
	if _, _, err := b.Last(t.Context(), ref("r2")); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Last of no run: %v", err)
	}
}

func TestPublishAsEventsCome(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	src := newMemory()
	acked := make(chan uint64, 1000)
	src.ack = func(n uint64) { acked <- n }
	done := make(chan error, 1)
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src}
	go func() { done <- p.Run(t.Context()) }()
	for n := uint64(1); n <= 200; n++ {
		src.add(ev("r1", n))
		for <-acked != n { // each is acknowledged without another coming
		}
	}
	src.end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if st := p.Stats(); st.Singles != 200 || st.Recovers != 1 {
		t.Errorf("%+v", st)
	}
	whole(t, b, "r1", 200)
}

// A second publisher of the same run goes on where the first ended.
func TestPublishResumed(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 700)...).end())
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: newMemory(evs("r1", 2000)...).end(), Resumed: true}
	st := runPublisher(t, p)
	if st.Messages != 1300 || st.Singles != 256 {
		t.Errorf("%+v", st)
	}
	whole(t, b, "r1", 2000)
}

// Two writers with the same events, as when an edge that was thought dead is
// not: the fence and the ids keep the run whole.
func TestPublishTwice(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	ctx := t.Context()
	done := make(chan error, 3)
	for range 3 {
		p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: newMemory(evs("r1", 3000)...).end(), Log: testLog(t)}
		go func() { done <- p.Run(ctx) }()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	whole(t, b, "r1", 3000)
}

// Case 079: the limit is the connection's, counts headers, and what does not
// fit is split.
func TestPublishOverMaxPayload(t *testing.T) {
	for _, limit := range []int32{64 << 10, 1 << 20} {
		b := open(t, serve(t, natsd.Options{DontListen: true, MaxPayload: limit}))
		if got := b.MaxPayload(); got != int(limit) {
			t.Fatalf("MaxPayload = %d, want %d", got, limit)
		}
		var events []*event.Event
		for i, n := range []int{700_000, int(limit) - 10, int(limit), 786_000, 10, 1_000_000, 1_048_000, 1_048_576, 0, 3 << 20} {
			e := ev("r1", uint64(i+1))
			e.Data = bytes.Repeat([]byte{'a' + byte(i)}, n)
			e.Redacted = []event.Span{{Rule: "x", Off: 1, Len: 2, RawLen: 3}}
			events = append(events, e)
		}
		st := publish(t, b, "r1", newMemory(events...).end())
		if st.Replaced != 0 || st.Split == 0 || st.Events != uint64(len(events)) {
			t.Errorf("%+v", st)
		}
		var j event.Joiner
		var got []*event.Event
		for e, err := range b.History(t.Context(), ref("r1"), 0) {
			if err != nil {
				t.Fatal(err)
			}
			w, _, broken := j.Add(e)
			if broken != nil {
				t.Fatalf("event %d is broken", broken.Seq)
			}
			if w != nil {
				got = append(got, w)
			}
		}
		if len(got) != len(events) {
			t.Fatalf("%d events, want %d", len(got), len(events))
		}
		for i := range got {
			if !bytes.Equal(got[i].Data, events[i].Data) {
				t.Errorf("limit %d: event %d came back with %d bytes, want %d", limit, i+1, len(got[i].Data), len(events[i].Data))
			}
			if diff := cmp.Diff(events[i].Redacted, got[i].Redacted); diff != "" {
				t.Errorf("event %d: %s", i+1, diff)
			}
		}
	}
}

// A publisher that finds an event of which only some parts are stored goes on
// with the next part.
func TestPublishResumesInsideEvent(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true, MaxPayload: 64 << 10}))
	big := ev("r1", 1)
	big.Data = bytes.Repeat([]byte("0123456789"), 50_000)
	first := *big
	first.Part = event.Part{I: 1, N: 9}
	first.Data = big.Data[:len(big.Data)/9]
	m := bus.Encode(0, &first)
	m.Header.Set("Nats-Msg-Id", bus.MsgID(&first))
	if _, err := b.Conn().RequestMsgWithContext(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: newMemory(big, ev("r1", 2)).end(), Resumed: true}
	if st := runPublisher(t, p); st.Messages != 9 {
		t.Errorf("%+v", st)
	}
	var j event.Joiner
	for e, err := range b.History(t.Context(), ref("r1"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if w, _, broken := j.Add(e); broken != nil || w != nil && w.Seq == 1 && !bytes.Equal(w.Data, big.Data) {
			t.Errorf("part %v does not continue", e.Part)
		}
	}
}

// An event whose headers alone are too much is replaced, and those behind it
// are not held up.
func TestPublishCannotFit(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	events := evs("r1", 10)
	events[4].Parent = strings.Repeat("p", 70_000)
	st := publish(t, b, "r1", newMemory(events...).end())
	if st.Replaced != 1 || st.Events != 10 {
		t.Errorf("%+v", st)
	}
	got := history(t, b, ref("r1"), 0)
	if len(got) != 10 || got[4].Type != event.TypeGap || got[4].Seq != 5 || got[5].Seq != 6 {
		t.Errorf("%d events, the fifth is %+v", len(got), got[4])
	}
}

// A stream with its own, smaller limit.
func TestPublishStreamLimit(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	update(t, b, "EV_0", func(cfg map[string]any) { cfg["max_msg_size"] = 20_000 })
	events := evs("r1", 300)
	events[200].Data = bytes.Repeat([]byte("x"), 100_000)
	st := publish(t, b, "r1", newMemory(events...).end())
	if st.Replaced != 0 || st.Split == 0 || st.Events != 300 {
		t.Errorf("%+v", st)
	}
	var n uint64
	for _, e := range history(t, b, ref("r1"), 0) {
		if e.Seq != n && e.Seq != n+1 {
			t.Fatalf("event %d after %d", e.Seq, n)
		}
		n = e.Seq
	}
}

// A stream without batches takes events one at a time, and the caller hears.
func TestPublishWithoutBatches(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	update(t, b, "EV_0", func(cfg map[string]any) { cfg["allow_batched"] = false })
	var causes []error
	p := &bus.Publisher{
		Bus: b, Ref: ref("r1"), Source: newMemory(evs("r1", 100)...).end(),
		Notice: func(err error) { causes = append(causes, err) },
	}
	st := runPublisher(t, p)
	if st.Events != 100 || len(causes) != 1 || !errors.Is(causes[0], bus.ErrOneByOne) {
		t.Errorf("%+v, notices %v", st, causes)
	}
	whole(t, b, "r1", 100)
}

func TestPublishEndsWithContext(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	ctx, cancel := context.WithCancelCause(t.Context())
	src := newMemory(evs("r1", 10)...)
	why := errors.New("enough")
	src.ack = func(n uint64) {
		if n == 10 {
			cancel(why)
		}
	}
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src}
	if err := p.Run(ctx); !errors.Is(err, why) {
		t.Errorf("Run = %v", err)
	}
}

// update changes a stream's configuration behind our back.
func update(tb testing.TB, b *bus.Bus, stream string, change func(map[string]any)) {
	tb.Helper()
	var info struct {
		Config map[string]any `json:"config"`
	}
	api(tb, b, "STREAM.INFO."+stream, nil, &info)
	change(info.Config)
	api(tb, b, "STREAM.UPDATE."+stream, info.Config, nil)
}
