package child

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// answerPrefixes begin each answer to a control request: that of Claude Code and
// CodeBuddy, and what Codex writes of a result, which is one of ours by its id,
// and of an error, whose id comes last. A line that begins otherwise is never held.
var answerPrefixes = [...][]byte{
	[]byte(`{"type":"control_response"`),
	[]byte(`{"id":"cbcast-`),
	[]byte(`{"error":{"`),
}

// maxHeld bounds a line that is held back, in bytes. Answers to the requests
// that are injected take less than 1 KiB; a longer line is passed on.
const maxHeld = 64 << 10

// hider keeps answers to injected requests from the parent. It holds back only
// the line that may be one, and only while one is awaited: every host ignores an
// answer it did not ask for, but some break when a line comes in two pieces.
type hider struct {
	active atomic.Bool // ids is not empty

	mu  sync.Mutex // guards ids
	ids map[string]struct{}

	// Of the goroutine that calls filter.
	start   bool   // the next byte begins a line
	held    []byte // beginning of a line that may be an answer
	scratch []byte
	lines   int
	bytes   int64
}

func (h *hider) add(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]struct{}{}
	}
	h.ids[id] = struct{}{}
	h.active.Store(true)
}

func (h *hider) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, id)
	h.active.Store(len(h.ids) > 0)
}

// match reports whether line answers an id, which is awaited no more then. The
// ids are unique, so that finding one as a JSON string is enough.
func (h *hider) match(line []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.ids {
		if bytes.Contains(line, []byte(`"`+id+`"`)) {
			delete(h.ids, id)
			h.active.Store(len(h.ids) > 0)
			return true
		}
	}
	return false
}

// filter returns what of p, and of what was held, the parent gets now. It is
// valid until the next call.
func (h *hider) filter(p []byte) []byte {
	if !h.active.Load() {
		if len(h.held) > 0 {
			h.scratch = append(append(h.scratch[:0], h.held...), p...)
			h.held = h.held[:0]
			h.start = p[len(p)-1] == '\n'
			return h.scratch
		}
		h.start = p[len(p)-1] == '\n'
		return p
	}
	out := h.scratch[:0]
	for len(p) > 0 {
		seg := p
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			seg = p[:i+1]
		}
		p = p[len(seg):]
		ended := seg[len(seg)-1] == '\n'
		if len(h.held) == 0 && !h.start || !h.possible(seg) {
			out = append(append(out, h.held...), seg...)
			h.held, h.start = h.held[:0], ended
			continue
		}
		h.start = ended
		switch h.held = append(h.held, seg...); {
		case !ended:
			continue
		case h.match(h.held):
			h.lines++
			h.bytes += int64(len(h.held))
		default:
			out = append(out, h.held...)
		}
		h.held = h.held[:0]
	}
	h.scratch = out
	return out
}

// possible reports whether the held bytes with seg after them may begin an answer.
func (h *hider) possible(seg []byte) bool {
	n := len(h.held)
	if n+len(seg) > maxHeld {
		return false
	}
	for _, p := range answerPrefixes {
		if n <= len(p) && !bytes.Equal(h.held, p[:n]) || n > len(p) && !bytes.HasPrefix(h.held, p) {
			continue
		}
		rest := p[min(n, len(p)):]
		if m := min(len(seg), len(rest)); bytes.Equal(seg[:m], rest[:m]) {
			return true
		}
	}
	return false
}

// flush returns what is held at the end of the stream.
func (h *hider) flush() []byte {
	p := h.held
	h.held = nil
	return p
}
