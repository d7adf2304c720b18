package ingest

import (
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// A gate keeps lines of ours back until the host is ready for them: a host that
// sends initialize first gets its answer before the child hears anything else.
// It opens with the host's first line where that is no initialize, with the
// answer where it is, and with the end of the host's side, after which no
// initialize can come. It sees every line under the recorder's lock.
type gate struct {
	open         func()
	opened, seen bool
	id           string // of the initialize that is out
}

// waits reports whether the next line of the child may open the gate.
func (g *gate) waits() bool { return !g.opened && g.id != "" }

func (g *gate) watch(l line) {
	if g.opened {
		return
	}
	switch {
	case l.eof && g.id == "":
	case l.eof:
		return // the answer is still to come
	case l.stream == event.In && !g.seen:
		g.seen = true
		f, ok := dialect.Parse(l.data)
		if ok && f.Type == "control_request" && f.Subtype == "initialize" {
			g.id = string(f.ControlID())
			return
		}
		if m, rpc := f.RPC(); ok && rpc && m.Method == dialect.MethodInitialize && m.ID != nil {
			g.id = string(m.ID)
			return
		}
	case l.stream == event.Out && g.id != "":
		resp, ok := dialect.ResponseOf(l.data)
		if !ok || string(resp.ID) != g.id {
			return
		}
	default:
		return
	}
	g.opened = true
	g.open()
}
