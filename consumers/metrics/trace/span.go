package trace

import (
	"strings"
	"time"
)

// A Span is one finished piece of a run's work.
type Span struct {
	Context Context // its Parent is of the CI's own span, see Remote
	ID      SpanID
	Parent  SpanID // zero of a trace's root
	Remote  bool   // the parent is the CI's own span
	Path    string // what the id was made of
	Name    string
	Kind    Kind
	Start   time.Time
	End     time.Time
	Attrs   []Attr
	Events  []Event
	Links   []Context // spans of other traces: the child's own
	Status  Status
	Message string // of an Error

	DroppedAttrs, DroppedEvents, DroppedLinks uint32
}

// Kind is a span's kind, by its number in OTLP.
type Kind int32

// The kinds that are used: what happens within the agent's process, and its calls
// of a model.
const (
	Internal Kind = 1
	Client   Kind = 3
)

// Status is a span's status, by its number in OTLP.
type Status int32

// The statuses.
const (
	Unset Status = 0
	OK    Status = 1
	Error Status = 2
)

// An Attr is an attribute: a string, bool, int64, float64 or []string.
type Attr struct {
	Key   string
	Value any
}

// An Event happened at one moment of a span.
type Event struct {
	Name  string
	At    time.Time
	Attrs []Attr
}

// Bounds of one span. What does not fit is cut (texts) or counted as dropped.
const (
	maxValue   = 1 << 10 // bytes of a text
	maxContent = 8 << 10 // bytes of a text that is only there where content was asked for
	maxName    = 128     // bytes of a span's name, and of the names in it
	maxAttrs   = 64
	maxEvents  = 128
	maxLinks   = 8
	maxItems   = 8 // texts of a list
)

// clip cuts a text to n bytes of valid UTF-8.
func clip(t string, n int) string {
	if len(t) <= n {
		return strings.ToValidUTF8(t, "\ufffd")
	}
	t = t[:n]
	for len(t) > 0 && t[len(t)-1]&0xC0 == 0x80 { // of a rune that was cut
		t = t[:len(t)-1]
	}
	if n := len(t); n > 0 && t[n-1] >= 0xC0 {
		t = t[:n-1]
	}
	return strings.ToValidUTF8(t, "\ufffd") + "…"
}

// attrs collects attributes. Zero values are left out, except by its methods num
// and is.
type attrs []Attr

func (a *attrs) str(key, value string) {
	if value != "" {
		*a = append(*a, Attr{key, clip(value, maxValue)})
	}
}

func (a *attrs) content(key, value string) {
	if value != "" {
		*a = append(*a, Attr{key, clip(value, maxContent)})
	}
}

func (a *attrs) int(key string, value int64) {
	if value != 0 {
		a.num(key, value)
	}
}

func (a *attrs) num(key string, value int64)     { *a = append(*a, Attr{key, value}) }
func (a *attrs) float(key string, value float64) { *a = append(*a, Attr{key, value}) }

func (a *attrs) is(key string, value bool) { *a = append(*a, Attr{key, value}) }

func (a *attrs) yes(key string, value bool) {
	if value {
		a.is(key, true)
	}
}

func (a *attrs) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	list := make([]string, 0, min(len(values), maxItems))
	for _, v := range values[:min(len(values), maxItems)] {
		list = append(list, clip(v, maxValue))
	}
	*a = append(*a, Attr{key, list})
}

// happenings are the events of a span that is still open, bounded.
type happenings struct {
	list    []Event
	dropped uint32
}

func (h *happenings) add(name string, at time.Time, a attrs) {
	if len(h.list) >= maxEvents {
		h.dropped++
		return
	}
	h.list = append(h.list, Event{name, at, a})
}

// finish puts a span into bounds and order.
func (s *Span) finish() {
	s.Name = clip(s.Name, maxName)
	s.Message = clip(s.Message, maxValue)
	if len(s.Attrs) > maxAttrs {
		s.DroppedAttrs += uint32(len(s.Attrs) - maxAttrs) //nolint:gosec // a span has few
		s.Attrs = s.Attrs[:maxAttrs:maxAttrs]
	}
	if len(s.Links) > maxLinks {
		s.DroppedLinks += uint32(len(s.Links) - maxLinks) //nolint:gosec // see its maker
		s.Links = s.Links[:maxLinks:maxLinks]
	}
	if s.End.Before(s.Start) { // clocks may go back
		s.End = s.Start
	}
}
