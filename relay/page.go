package relay

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	pageDefault, pageMax = 500, 5000

	// pageBytes is when a page is full, whatever its limit. One event alone may
	// be larger.
	pageBytes = 8 << 20
)

// pageEvents answers with {"events":[…],"next":n,"head":n,"ended":b} and "gap" or
// "reset" (a [Gap]) where the events do not follow on the cursor. events are
// CloudEvents in JSON, split frames joined, data byte for byte. next is the
// cursor for the next page; the run has no more for now when it equals head.
func (r *Relay) pageEvents(w http.ResponseWriter, q *http.Request) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	after, aerr := cursorOf(q)
	if aerr != nil {
		return aerr
	}
	limit, aerr := limitOf(q, pageDefault, pageMax)
	if aerr != nil {
		return aerr
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	p := page{limit: limit, filter: filterOf(q), next: after}
	if err := p.read(ctx, r.past, i.Ref()); err != nil {
		return r.busErr(err)
	}
	writeBody(w, http.StatusOK, p.body())
	return nil
}

func filterOf(q *http.Request) filter {
	v := q.URL.Query()
	return filter{session: v.Get("session"), task: v.Get("task")}
}

// page is one answer while it is collected.
type page struct {
	limit  int
	filter filter

	next, head  uint64
	ended       bool
	gaps, reset []byte
	n           int
	events      []byte
}

func (p *page) read(ctx context.Context, b reader, ref bus.Ref) error {
	last, _, err := b.Last(ctx, ref)
	switch {
	case notFoundErr(err):
	case err != nil:
		return err
	default:
		p.head, p.ended = last.Seq, last.Type == event.TypeExited
	}
	if p.next > p.head {
		g := Gap{Asked: p.next, Last: p.head, Reason: reasonBeyond}
		if first, _, err := b.FirstKept(ctx, ref); err == nil {
			g.First = first.Seq
		}
		p.reset, p.next = mustJSON(g), 0
	}
	var asm assembler
	for e, err := range b.History(ctx, ref, p.next) {
		if err != nil {
			return err
		}
		for _, f := range asm.add(e) {
			if p.n > 0 && len(p.events)+len(f.data) > pageBytes {
				return nil
			}
			if !p.add(f) {
				return nil
			}
		}
	}
	return nil
}

// add takes the next frame and reports whether there is room for more.
func (p *page) add(f *frame) bool {
	if f.first > p.next+1 && p.gaps == nil {
		p.gaps = mustJSON(Gap{Asked: p.next, First: f.first, Last: p.head, Reason: reasonNotKept})
	}
	p.next, p.head = f.last, max(p.head, f.last)
	if p.filter.takes(f) {
		if p.n++; p.n > 1 {
			p.events = append(p.events, ',')
		}
		p.events = append(p.events, f.data...)
	}
	return p.n < p.limit
}

// body is made by hand: the frames' bytes must not pass an encoder.
func (p *page) body() []byte {
	b := append([]byte(`{"events":[`), p.events...)
	b = strconv.AppendUint(append(b, `],"next":`...), p.next, 10)
	b = strconv.AppendUint(append(b, `,"head":`...), p.head, 10)
	b = strconv.AppendBool(append(b, `,"ended":`...), p.ended && p.next >= p.head)
	if p.gaps != nil {
		b = append(append(b, `,"gap":`...), p.gaps...)
	}
	if p.reset != nil {
		b = append(append(b, `,"reset":`...), p.reset...)
	}
	return append(b, "}\n"...)
}

// mustJSON encodes values that always marshal.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
