package dialect

import (
	"bytes"
	"slices"
)

// mainSession decides which session is the run's own. CodeBuddy writes init
// frames of sub-agents with their own ids among the rest, and opens a session of
// its own for each message that comes before its first turn has ended: the first
// init counts, or the first assistant or result frame where none came before;
// no later one replaces it. Claude Code changes it by conversation_reset, and
// writes no init of another session otherwise.
type mainSession struct{ id string }

func (m *mainSession) see(f *Frame, d Name) {
	v := f.field(keySession)
	switch f.Type {
	case typeSystem:
		if f.Subtype != subInit || len(v) <= 2 || !v.IsString() {
			return
		}
		if m.id == "" || d == Claude && string(v.inner()) != m.id {
			m.id = v.Text()
		}
	case typeAssistant, typeStreamEvent, typeResult:
		if m.id == "" && len(v) > 2 && v.IsString() {
			m.id = v.Text()
		}
	case typeReset:
		if id := f.Get("new_conversation_id").Text(); id != "" {
			m.id = id
		}
	}
}

// cache keeps the last text seen, so that an id that repeats costs no allocation.
type cache [2]struct {
	raw  []byte
	text string
}

func (c *cache) text(v Value) string {
	if !v.IsString() {
		return ""
	}
	if len(v) > maxJoinID {
		return v.Text()
	}
	if bytes.Equal(c[0].raw, v) {
		return c[0].text
	}
	c[0], c[1] = c[1], c[0]
	if bytes.Equal(c[0].raw, v) {
		return c[0].text
	}
	c[0].raw = append(c[0].raw[:0], v...)
	c[0].text = v.Text()
	return c[0].text
}

// maxJoinID bounds the ids that a tracker remembers; real ones have 36 bytes.
// Longer ones are carried and not joined.
const maxJoinID = 1024

// joins is a bounded map that forgets the oldest key.
type joins struct {
	max   int
	m     map[string]string
	order []string
}

func (j *joins) get(key string) string { return j.m[key] }

func (j *joins) set(key, value string) {
	if key == "" || value == "" || len(key)+len(value) > maxJoinID {
		return
	}
	if _, ok := j.m[key]; !ok {
		if j.m == nil {
			j.m = map[string]string{}
		}
		if len(j.order) >= j.max {
			delete(j.m, j.order[0])
			j.order = j.order[1:]
		}
		j.order = append(j.order, key)
	}
	j.m[key] = value
}

func (j *joins) remove(key string) {
	if _, ok := j.m[key]; ok {
		delete(j.m, key)
		j.order = slices.DeleteFunc(j.order, func(k string) bool { return k == key })
	}
}
