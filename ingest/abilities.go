package ingest

import (
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// abilities says what the child can do: on its start what the arguments show, and
// in a fact whenever the lines that pass show more, or less. That comes from a
// goroutine of its own, because a line that is looked at may have others behind it
// that are kept already.
type abilities struct {
	rec   *recorder
	probe *dialect.Probe     // guarded by rec.mu, like the rest
	told  event.Capabilities // by a fact
	ended bool
	news  chan struct{}
	done  chan struct{}
}

// newAbilities reads the arguments. stdin says that the child's stdin is a pipe.
func newAbilities(rec *recorder, argv []string, stdin bool) *abilities {
	a := &abilities{
		rec: rec, probe: dialect.NewProbe(rec.track.Dialect(), argv, stdin),
		news: make(chan struct{}, 1), done: make(chan struct{}),
	}
	a.told = a.probe.Capabilities()
	return a
}

// watch is told of every recorded line, under the recorder's lock.
func (a *abilities) watch(l line) {
	if a.ended || !a.probe.Wants(l.stream, &l.class) || !a.probe.See(l.stream, l.data, a.rec.track.Dialect()) {
		return
	}
	select {
	case a.news <- struct{}{}:
	default:
	}
}

func (a *abilities) run() {
	defer close(a.done)
	for range a.news { // ends by end
		a.rec.mu.Lock()
		if now := a.probe.Capabilities(); !a.rec.closed && !reflect.DeepEqual(now, a.told) {
			a.told = now
			a.rec.factLocked(time.Now(), event.TypeCapabilities, event.Life, now, true)
		}
		a.rec.mu.Unlock()
	}
}

func (a *abilities) end() {
	a.rec.mu.Lock()
	a.ended = true
	close(a.news)
	a.rec.mu.Unlock()
	<-a.done
}

// asides look at the recorded lines beside the commander. Whatever they add to
// the run is there before its last event.
type asides struct {
	abilities *abilities
	outputs   *outputs // nil where outputs are not published
}

// asides starts them; end ends them.
func (e *edge) asides() *asides {
	a := &asides{abilities: e.abilities}
	if e.o.CaptureOutputs && !e.pipe { // of a program behind a pipe nothing is known
		a.outputs = newOutputs(e.rec, e.getenv, e.cwd(), e.log)
	}
	go a.abilities.run() // ends by end
	e.rec.mu.Lock()
	defer e.rec.mu.Unlock()
	before := e.rec.watch
	e.rec.watch = func(l line) {
		if before != nil {
			before(l)
		}
		a.abilities.watch(l)
		if a.outputs != nil {
			a.outputs.watch(l)
		}
	}
	return a
}

// end waits for them, no longer than a run's end may take; see [outputs].
func (a *asides) end(hurry <-chan struct{}) {
	if a.outputs != nil {
		a.outputs.end(hurry)
	}
	a.abilities.end()
}

// cwd is the directory that the child starts in.
func (e *edge) cwd() string {
	dir, _ := os.Getwd()
	return dir
}

// getenv looks up a variable of the child.
func (e *edge) getenv(name string) string {
	value := ""
	for _, kv := range e.o.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}
