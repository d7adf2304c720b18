package ingest

import (
	"bytes"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

const (
	// maxOpenAsks bounds the asks that can be answered from here at one time. A
	// child has a handful open.
	maxOpenAsks = 256
	// maxAskBytes bounds the lines that are kept of them. An ask beyond it is open
	// like any other, and its host can answer it; we cannot, for a yes repeats the
	// input.
	maxAskBytes = 16 << 20
)

// asks keeps what the child's open asks said, byte for byte, says when one is
// closed, and lets the policy decide. It is guarded by the recorder's lock.
type asks struct {
	c      *commander
	policy *policy // nil: everything is for people
	kept   map[string]*keptAsk
	size   int // bytes kept
	closed int // asks closed in the fold that were looked at
}

// keptAsk is one that is not closed.
type keptAsk struct {
	id   string
	line []byte // of the child; nil where it is too large
	req  dialect.AskRequest
	by   *pending      // the answer that is being written, or was
	over chan struct{} // closed with the ask
}

func newAsks(c *commander, p *policy) *asks {
	return &asks{c: c, policy: p, kept: map[string]*keptAsk{}}
}

// waits reports whether any line may end an ask: what is said of that must follow
// it at once.
func (b *asks) waits() bool { return len(b.kept) > 0 }

// auto is asked before an ask is recorded: "allow" or "deny" where a rule decides
// it, which makes it one that nobody waits for.
func (b *asks) auto(cls *dialect.Class, line []byte) string {
	if b.policy == nil || !cls.AskOpens || b.kept[cls.Ask] != nil || !b.room(line) {
		return ""
	}
	reqs := dialect.AskRequests(line)
	if len(reqs) != 1 || reqs[0].Ambiguous {
		return ""
	}
	r := b.policy.rule(&reqs[0])
	if r == nil {
		return ""
	}
	return r.Then
}

// watch is told of every recorded line, under the recorder's lock.
func (b *asks) watch(l line) {
	if l.class.AskOpens && l.stream == event.Out {
		ids := dialect.SplitAsks(l.class.Ask)
		for i := range min(len(ids), len(dialect.AskRequests(l.data))) {
			b.opened(ids[i], l.data, i)
		}
	}
	if n := b.c.rec.state.AsksClosed(); n != b.closed {
		b.closed = n
		for id, k := range b.kept {
			if v, ok := b.c.rec.state.Ask(id); !ok || v.State == run.AskShut {
				b.close(k, v)
			}
		}
	}
}

// opened keeps the i-th request of a line.
func (b *asks) opened(id string, line []byte, i int) {
	if b.kept[id] != nil || len(b.kept) >= maxOpenAsks {
		return // it is told again, or there are too many
	}
	if v, ok := b.c.rec.state.Ask(id); !ok || v.State == run.AskShut {
		return // it is told again
	}
	k, room := &keptAsk{id: id, over: make(chan struct{})}, b.room(line)
	b.kept[id] = k
	if room {
		k.line = bytes.Clone(line)
		k.req = dialect.AskRequests(k.line)[i]
		b.size += len(line)
	}
	if b.policy != nil && k.line != nil && !k.req.Ambiguous {
		b.decide(k)
	}
}

// room reports whether one more ask can be answered from here.
func (b *asks) room(line []byte) bool {
	return len(b.kept) < maxOpenAsks && b.size+len(line) <= maxAskBytes
}

// close states that an ask is closed.
func (b *asks) close(k *keptAsk, v run.AskView) {
	b.forget(k)
	if v.Closed == nil {
		return // the fold dropped it: there are too many
	}
	d := event.AskClosed{Ask: k.id, Reason: v.Closed.Reason, Outcome: v.Outcome}
	if v.Decided != nil {
		d.By, d.Decision, d.Command = v.Decided.By, v.Decided.Decision, v.Decided.Command
	}
	b.c.rec.factLocked(time.Now(), event.TypeAsk, event.Ask, d, true)
}

func (b *asks) forget(k *keptAsk) {
	close(k.over)
	b.size -= len(k.line)
	delete(b.kept, k.id)
}
