package relay

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A manyFilter chooses what a stream of many runs tells.
type manyFilter struct {
	caller *caller

	tenants, dialects, states, waits []string // nil is every
	kinds                            []string
	session                          string

	list, events bool
	limit        int // of the list
	start        bool
}

// maxWords bounds the words of one parameter.
const maxWords = 32

func manyFilterOf(q *http.Request) (manyFilter, *apiErr) {
	query := q.URL.Query()
	f := manyFilter{caller: callerOf(q), session: query.Get("session")}
	var aerr *apiErr
	words := func(param string, known []string) []string {
		v := query.Get(param)
		if v == "" {
			return nil
		}
		list := strings.Split(v, ",")
		bad := func(w string) bool { return w == "" || known != nil && !slices.Contains(known, w) }
		switch {
		case len(list) > maxWords:
			aerr = fail(CodeBadRequest, param+" has too many words").with("parameter", param)
		case slices.ContainsFunc(list, bad):
			text := param + " must be words separated by commas"
			if known != nil {
				text += ", of " + strings.Join(known, ", ")
			}
			aerr = fail(CodeBadRequest, text).with("parameter", param)
		}
		return list
	}
	var kinds []string
	for _, k := range event.Kinds {
		kinds = append(kinds, string(k))
	}
	f.tenants, f.dialects, f.kinds = words("tenant", nil), words("dialect", nil), words("kind", kinds)
	f.states, f.waits = words(listWords[0].param, listWords[0].words), words(listWords[1].param, listWords[1].words)
	f.list, f.events = true, true
	switch query.Get("runs") {
	case "", "with":
	case "only":
		f.events = false
	case "none":
		f.list = false
	default:
		aerr = fail(CodeBadRequest, "runs must be with, only or none").with("parameter", "runs")
	}
	switch query.Get("from") {
	case "", "now":
	case "start":
		f.start = true
	default:
		aerr = fail(CodeBadRequest, "from must be now or start").with("parameter", "from")
	}
	if aerr == nil {
		f.limit, aerr = limitOf(q, listDefault, listMax)
	}
	return f, aerr
}

func anyOf(words []string, have string) bool { return words == nil || slices.Contains(words, have) }

// plain reports whether a run's entry is not needed to choose its events.
func (f *manyFilter) plain() bool {
	return f.dialects == nil && f.states == nil && f.waits == nil && f.session == ""
}

// one is the only word there may be, "" for several.
func one(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return ""
}

// frame reports whether an event may be told as far as it shows itself.
func (f *manyFilter) frame(w *wideFrame) bool {
	return anyOf(f.kinds, string(w.kind)) && anyOf(f.tenants, w.tenant) && f.caller.sees(bus.RunInfo{Tenant: w.tenant, Run: w.run})
}

// lasting reports whether an entry matches in what does not change much.
func (f *manyFilter) lasting(i *bus.RunInfo, c *conversation) bool {
	return f.caller.sees(*i) && anyOf(f.tenants, i.Tenant) && anyOf(f.dialects, i.Dialect) && c.has(i)
}

// entry reports whether a run's entry matches.
func (f *manyFilter) entry(i *bus.RunInfo, c *conversation) bool {
	return anyOf(f.states, i.State) && anyOf(f.waits, i.WaitingFor) && f.lasting(i, c)
}

// A conversation is the runs of one, kept up to date; nil is every run.
type conversation struct {
	reg     *registry
	session string
	in      map[node]bool
}

func (g *registry) following(session string) *conversation {
	if session == "" {
		return nil
	}
	return &conversation{g, session, g.conversation(session)}
}

// has reports whether a run belongs to it. What a run brings with it may be what
// others are linked by.
func (c *conversation) has(i *bus.RunInfo) bool {
	if c == nil {
		return true
	}
	all := append(names(i), node{i.Tenant, "run", i.Run})
	known := 0
	for _, n := range all {
		if c.in[n] {
			known++
		}
	}
	in := known > 0 || slices.Contains(i.Sessions, c.session)
	if in && known < len(all) {
		c.in = c.reg.conversation(c.session)
	}
	return in
}

const (
	// entryWait is how long an event of a run without an entry waits for it, where
	// the entry decides: an edge writes both at once, over different streams.
	entryWait = 2 * time.Second

	// entryLook is how often it is looked for.
	entryLook = 20 * time.Millisecond

	// changedSlack is how much earlier than the cursor's time an entry may have
	// changed that is taken for one that changed while the client was away: edges
	// have clocks of their own.
	changedSlack = time.Minute
)

// A choice is what becomes of an event.
type choice int

const (
	skip choice = iota
	tell
	await // not known yet
)

// choose decides about an event. late is set for what was stored while the
// client was away, since; waited is how long the event has been held.
func (s *many) choose(w *wideFrame, late bool, waited time.Duration) choice {
	if !s.filter.frame(w) {
		return skip
	}
	if s.filter.plain() {
		return tell
	}
	i := s.r.reg.get(w.run)
	switch {
	case i == nil && !s.r.reg.whole():
		return await
	case i == nil && waited < entryWait && time.Since(w.time) < entryWait:
		return await
	case i == nil:
		return skip
	case s.filter.entry(i, s.conv):
		return tell
	case late && i.Updated.After(s.since.Add(-changedSlack)) && s.filter.lasting(i, s.conv):
		return tell
	}
	return skip
}
