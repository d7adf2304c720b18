package relay_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

type pageDoc struct {
	Events     []*event.Event
	Next, Head uint64
	Ended      bool
	Gap, Reset *relay.Gap
}

func (s *served) page(path string) pageDoc {
	s.t.Helper()
	var raw struct {
		Events     []json.RawMessage `json:"events"`
		Next       uint64            `json:"next"`
		Head       uint64            `json:"head"`
		Ended      bool              `json:"ended"`
		Gap, Reset *relay.Gap
	}
	s.get(path, nil).into(s.t, &raw)
	p := pageDoc{Next: raw.Next, Head: raw.Head, Ended: raw.Ended, Gap: raw.Gap, Reset: raw.Reset}
	for _, r := range raw.Events {
		e, err := event.ParseJSON(r)
		if err != nil {
			s.t.Fatal(err)
		}
		p.Events = append(p.Events, e)
	}
	return p
}

func TestPages(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(notes(20)...)
	big := make([]byte, 700<<10) // three chunks
	for i := range big {
		big[i] = 'x'
	}
	ev := frameOf(string(big))
	ev.ContentType = event.Binary
	e.emit(ev)
	e.emit(notes(5)...)
	e.shipped()
	s := r.relay(relay.Config{})
	var seqs []uint64
	after, pages := uint64(0), 0
	for ; ; pages++ {
		p := s.page(fmt.Sprintf("/v1/runs/run-1/events?limit=6&after=%d", after))
		if p.Head != 28 || p.Ended || p.Gap != nil || p.Reset != nil {
			t.Errorf("page after %d: %+v", after, p)
		}
		for _, e := range p.Events {
			seqs = append(seqs, e.Seq)
			if e.Seq == 21 && len(e.Data) != len(big) {
				t.Errorf("the long frame has %d bytes", len(e.Data))
			}
		}
		if after = p.Next; after == p.Head {
			break
		}
	}
	want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 26, 27, 28}
	if d := cmp.Diff(want, seqs); d != "" || pages != 4 {
		t.Errorf("%d pages: %s", pages+1, d)
	}
	p := s.page("/v1/runs/run-1/events?after=99")
	if d := cmp.Diff(&relay.Gap{Asked: 99, First: 1, Last: 28, Reason: "beyond_head"}, p.Reset); d != "" || len(p.Events) != 26 {
		t.Errorf("beyond the head: %d events, %s", len(p.Events), d)
	}
}

// Retention took the beginning: every reader is told before the first event (case 093).
func TestGap(t *testing.T) {
	r := newRig(t, bus.Topology{MaxBytes: 64 << 10})
	e := r.edge("run-1")
	for i := range 40 {
		e.emit(frameOf(fmt.Sprintf(`{"n":%d,"x":%q}`, i, make([]byte, 600))))
	}
	e.emit(exited())
	e.shipped()
	first, _, err := r.bus.FirstKept(t.Context(), e.ref)
	if err != nil || first.Seq < 3 {
		t.Fatalf("first kept %v, %v", first, err)
	}
	s := r.relay(relay.Config{})
	want := relay.Gap{Asked: 2, First: first.Seq, Last: 41, Reason: "not_kept"}
	list := s.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": "2"}).all()
	var got relay.Gap
	if list[0].name != "gap" || list[0].id != "" || json.Unmarshal([]byte(list[0].data), &got) != nil || got != want {
		t.Errorf("first event %+v, want gap %+v", list[0], want)
	}
	for i, ev := range list[1:] {
		if ev.seq(t) != first.Seq+uint64(i) {
			t.Fatalf("event %d: %s", i, ev.id)
		}
	}
	if len(list) != int(42-first.Seq)+1 {
		t.Errorf("%d events", len(list))
	}
	p := s.page("/v1/runs/run-1/events?after=2")
	if d := cmp.Diff(&want, p.Gap); d != "" || p.Events[0].Seq != first.Seq {
		t.Errorf("page: %s", d)
	}
	if p := s.page(fmt.Sprintf("/v1/runs/run-1/events?after=%d", first.Seq-1)); p.Gap != nil {
		t.Errorf("no gap, but %+v", p.Gap)
	}
}
