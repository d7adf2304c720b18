package notify

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A signal is what an event makes worth telling of its run.
type signal struct {
	kind sink.Kind
	id   string // of the notice
	ask  string
}

// endKind is how the end of a run with this verdict is told.
func endKind(v run.Verdict) sink.Kind {
	switch v {
	case run.Failed:
		return sink.Failed
	case run.Interrupted:
		return sink.Interrupted
	default:
		return sink.Finished
	}
}

// Bounds of what one run can tell. A run that flaps tells no more, and says so in
// the metric of what is suppressed.
const (
	maxLosses = 8
	maxStalls = 32
)

// news looks at the state behind an event and says what was not told yet. It
// changes m accordingly. why counts what is not told and the reason.
func news(ev *event.Event, st *run.State, m *marks, why func(string)) (all []signal) {
	id := eventID(ev)
	switch ev.Type {
	case event.TypeExited:
		if j := st.Verdict(); st.Ended() && j != nil && m.End == "" {
			m.End = endKind(j.Verdict)
			all = append(all, signal{kind: m.End, id: id})
		}
	case event.TypeLost:
		switch {
		case !st.Lost() || m.End != "" || ev.Ref <= m.Lost:
		case m.Losses >= maxLosses:
			why("flapping")
			m.Lost = ev.Ref
		default:
			m.Lost = ev.Ref
			m.Losses++
			all = append(all, signal{kind: sink.Lost, id: id})
		}
	case event.TypeResumed:
		if m.End == "" && ev.Ref > m.Resumed && m.Lost != "" {
			m.Resumed = ev.Ref
			all = append(all, signal{kind: sink.Resumed, id: id})
		}
	case event.TypeStalled:
		switch {
		case ev.Seq <= m.Stalled:
		case m.Stalls >= maxStalls:
			why("flapping")
			m.Stalled = ev.Seq
		default:
			m.Stalled = ev.Seq
			m.Stalls++
			all = append(all, signal{kind: sink.Stalled, id: id})
		}
	}
	if ev.Kind == event.Ask || ev.Ext["ask"] != "" {
		all = append(all, newAsks(id, st, m)...)
	}
	return all
}

// maxLate bounds the asks of a run that are told behind one with a higher number:
// the policy was to decide them, and could not.
const maxLate = 16

func newAsks(id string, st *run.State, m *marks) (all []signal) {
	for _, a := range st.Asks() {
		n := askNumber(a.ID)
		if a.State != run.AskOpen || n == 0 || slices.Contains(m.Late, a.ID) {
			continue
		}
		if n <= m.Ask {
			// Told when it was asked, or decided by a rule whose answer failed.
			if !slices.Contains(m.Skipped, a.ID) {
				continue
			}
			m.Late = append(m.Late, a.ID)
			m.Late = m.Late[max(0, len(m.Late)-maxLate):]
		}
		nid := id
		if len(all) > 0 {
			nid += ":" + a.ID
		}
		all = append(all, signal{kind: sink.Waiting, id: nid, ask: a.ID})
	}
	for _, a := range st.Asks() {
		n := askNumber(a.ID)
		if n > m.Ask && a.State != run.AskOpen { // it never waited for a person
			m.Skipped = append(m.Skipped, a.ID)
			m.Skipped = m.Skipped[max(0, len(m.Skipped)-maxLate):]
		}
	}
	for _, a := range st.Asks() {
		m.Ask = max(m.Ask, askNumber(a.ID))
	}
	return all
}

// eventID is an event's id as a notice's: the message it came in does not matter,
// and what the protocols do not take is replaced.
func eventID(ev *event.Event) string {
	ref := strconv.FormatUint(ev.Seq, 10)
	if ev.Seq == 0 {
		ref = ev.Ref
	}
	return cleanID(ev.Run + "/" + ref)
}

// maxNoticeID leaves room for what is put behind.
const maxNoticeID = 150

// cleanID keeps to printable ASCII without space, "." and "@". What had to be
// changed carries a hash of the whole, so that two never become one.
func cleanID(id string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '-', r == '_', r == '/', r == ':':
			return r
		}
		return '-'
	}, id)
	if len(clean) <= maxNoticeID && clean == strings.ReplaceAll(id, ".", "-") { // of our own ids only times have one
		return clean
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return fmt.Sprintf("%s-%016x", clean[:min(len(clean), maxNoticeID-17)], h.Sum64())
}

// factsOf is what rules look at.
func factsOf(kind sink.Kind, v *run.View, now time.Time) *facts {
	f := &facts{kind: kind, tenant: v.Tenant, dialect: v.Dialect, ci: v.CI, cost: v.Usage.CostUSD}
	if v.Verdict != nil {
		f.verdict = string(v.Verdict.Verdict)
	}
	for _, t := range v.Tasks {
		if strings.Contains(strings.ToLower(t.Type), "workflow") {
			for _, name := range []string{t.Name, t.Label} {
				if name != "" && !slices.Contains(f.workflow, name) {
					f.workflow = append(f.workflow, name)
				}
			}
		}
	}
	switch {
	case v.Exit != nil && v.Exit.DurationMS > 0:
		f.duration = time.Duration(v.Exit.DurationMS) * time.Millisecond
	case v.StartedAt != nil && v.EndedAt != nil:
		f.duration = v.EndedAt.Sub(*v.StartedAt)
	case v.StartedAt != nil:
		f.duration = max(0, now.Sub(*v.StartedAt))
	}
	return f
}

// Bounds of a notice that is kept. A run with more is told with less.
const (
	maxNotice    = 96 << 10
	maxEventData = 8 << 10
	maxNoteAsks  = 20
	maxNoteTurns = 8
	maxNoteTasks = 64
)

// noticeOf makes the notice of a signal.
func noticeOf(s signal, ev *event.Event, st *run.State, v *run.View) *sink.Notice {
	n := &sink.Notice{ID: s.id, Kind: s.kind, Tenant: ev.Tenant, Run: ev.Run, At: ev.Time, Summary: st.Summary(), CI: v.CI}
	e := *ev
	if len(e.Data) > maxEventData {
		e.Data = nil
	}
	n.Event = &e
	for _, a := range v.Asks {
		if a.State != run.AskOpen {
			continue
		}
		if len(n.Asks) < maxNoteAsks || a.ID == s.ask {
			n.Asks = append(n.Asks, a)
		}
	}
	n.View = trimView(*v)
	return n
}

// trimView leaves out of a view what a notice can do without, more of it the larger
// it is. What is left out is counted as dropped.
func trimView(v run.View) *run.View {
	v.Checkpoints, v.Commands, v.Subagents = nil, nil, nil
	v.Interrupts = v.Interrupts[max(0, len(v.Interrupts)-4):]
	d := run.Dropped{}
	if v.Dropped != nil {
		d = *v.Dropped
	}
	keep := func(turns, tasks int) {
		if n := len(v.Turns) - turns; n > 0 {
			v.Turns, d.Turns = v.Turns[n:], d.Turns+n
		}
		if n := len(v.Tasks) - tasks; n > 0 {
			v.Tasks, d.Tasks = v.Tasks[n:], d.Tasks+n
		}
		if n := len(v.Asks) - maxNoteAsks; n > 0 {
			v.Asks, d.Asks = v.Asks[n:], d.Asks+n
		}
		v.Dropped = &d
	}
	if len(v.Turns) > maxNoteTurns || len(v.Tasks) > maxNoteTasks || len(v.Asks) > maxNoteAsks {
		keep(maxNoteTurns, maxNoteTasks)
	}
	if jsonSize(v) > maxNotice {
		tasks := slices.Clone(v.Tasks)
		for i := range tasks {
			tasks[i].Agents, tasks[i].Phases = nil, nil
		}
		v.Tasks = tasks
		v.Argv, v.Usage.Models = nil, nil
		if v.Result != nil {
			r := *v.Result
			r.Structure = nil
			v.Result = &r
		}
	}
	if jsonSize(v) > maxNotice {
		keep(1, 8)
		v.Warnings, v.Sessions = nil, nil
		asks := slices.Clone(v.Asks)
		for i := range asks {
			asks[i].Form = nil
		}
		v.Asks = asks
	}
	return &v
}

func jsonSize(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(b)
}
