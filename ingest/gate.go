package ingest

import "github.com/cbcast/cbcast/internal/dialect"

// A gate keeps lines of ours back until the host is ready for them: a host that
// sends initialize first gets its answer before the child hears anything else.
// It sees every line under the recorder's lock.
type gate struct {
	open         func()
	opened, seen bool
	id           string // of the initialize that is out
}

func (g *gate) watch(l line) {
	if g.opened {
		return
	}
	switch {
	case l.stream == "in" && !g.seen:
		g.seen = true
		f, ok := dialect.Parse(l.data)
		if ok && f.Type == "control_request" && f.Subtype == "initialize" {
			g.id = string(f.ControlID())
			return
		}
	case l.stream == "out" && g.id != "":
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
