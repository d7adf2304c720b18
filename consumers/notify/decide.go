package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A decision is what is told of one event, while it is made.
type decision struct {
	d      *desk
	now    time.Time
	stored time.Time // when the bus had the event
	ev     *event.Event
	st     *run.State
	view   *run.View
	m      *marks
	r      record
	before marks // as stored
}

// decide stages what an event makes worth telling. The state is the one behind it.
func (d *desk) decide(ev *event.Event, st *run.State, stored time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	past := ended(d.st.byRun[runKey(ev.Tenant, ev.Run)], st)
	if len(past) == 0 && !telling(ev) {
		return nil
	}
	if d.told.forgotten(ev.Tenant, ev.Run) { // just now
		return nil
	}
	x := &decision{d: d, now: time.Now(), stored: stored, ev: ev, st: st}
	var err error
	if x.m, err = d.marksOf(ev.Tenant, ev.Run); err != nil {
		return err
	}
	x.before = *x.m
	for _, s := range news(ev, st, x.m, d.m.suppress) {
		x.tell(s)
	}
	x.over(past)
	x.settle()
	return nil
}

// telling reports whether an event can be worth telling by itself.
func telling(ev *event.Event) bool {
	switch ev.Type {
	case event.TypeExited, event.TypeLost, event.TypeResumed, event.TypeStalled:
		return true
	}
	return ev.Kind == event.Ask || ev.Ext["ask"] != ""
}

func runKey(tenant, run string) string { return tenant + "/" + run }

func (x *decision) settle() {
	m := x.m
	if m.Ask != x.before.Ask || len(m.Late) != len(x.before.Late) || len(m.Skipped) != len(x.before.Skipped) || m.Stalled != x.before.Stalled ||
		m.Lost != x.before.Lost || m.Resumed != x.before.Resumed || m.End != x.before.End || len(m.LostTo) != len(x.before.LostTo) {
		m.At = x.now.UTC()
		x.r.Marks = append(x.r.Marks, m)
	}
	if len(x.r.Marks)+len(x.r.Items)+len(x.r.Watch)+len(x.r.Closed)+len(x.r.Gone) > 0 {
		x.d.put(&x.r)
		for _, w := range x.r.Watch {
			x.d.poke(w.due())
		}
	}
}

func (x *decision) viewOf() *run.View {
	if x.view == nil {
		v := x.st.View()
		x.view = &v
	}
	return x.view
}

// firstSight is how long an ask that stood open at the very first start is waited
// with: what follows in the log may close it.
const firstSight = 10 * time.Second

// lookback is how far before the very first start causes are told.
const lookback = 15 * time.Minute

// tell stages one signal for everybody whose rule matches.
func (x *decision) tell(s signal) {
	hold := time.Time{}
	switch old := x.stored.Before(x.d.st.since.Add(-lookback)); {
	case old && s.kind != sink.Waiting:
		x.d.m.suppress("before_first_start")
		return
	case old:
		hold = x.now.Add(firstSight)
	case x.now.Sub(x.stored) > x.d.rules.maxAge():
		x.d.m.suppress("stale")
		return
	}
	if len(x.d.st.items)+len(x.r.Items) >= maxItems || x.d.st.bytes >= maxNoteBytes {
		x.d.m.suppress("outbox_full")
		x.d.log.Error("outbox is full, nobody is told", "run", x.ev.Run, "kind", s.kind)
		return
	}
	f := factsOf(s.kind, x.viewOf(), x.now)
	n := noticeOf(s, x.ev, x.st, x.view)
	n.Links = sink.Links{Run: x.d.links(n.Tenant, n.Run), CI: n.CI["ciurl"]}
	corrected := x.correct(s)
	n.Reopened = s.kind == sink.Resumed
	before := len(x.r.Items)
	if s.kind != sink.Resumed {
		x.match(n, f, s, hold)
	}
	// Who was told that the run is lost is told what is true.
	for _, t := range corrected {
		if !x.toldNow(n.ID, t) {
			x.item(n, nil, t, s, hold)
		}
	}
	if len(x.r.Items) > before {
		x.r.Notes = append(x.r.Notes, n)
		return
	}
	if s.kind != sink.Resumed {
		x.d.m.suppress("no_rule")
	}
}

// match stages an item for each target of the rules that match, and a watch where
// what is told may hold for long.
func (x *decision) match(n *sink.Notice, f *facts, s signal, hold time.Time) {
	for _, r := range x.d.rules.Rules {
		if !r.matches(f) {
			continue
		}
		var to []target
		for _, t := range r.To {
			t := t.target()
			if x.toldNow(n.ID, t) {
				continue
			}
			it := x.item(n, r, t, s, hold)
			x.grouped(it, r, f)
			if until := x.d.quietFor(it, x.now); until.After(x.now) && until.After(it.Hold) {
				x.d.quieten(it, until)
			}
			to = append(to, t)
		}
		if len(to) > 0 && (s.kind == sink.Waiting || s.kind == sink.Lost) {
			x.watch(n, r, s, to)
		}
		if s.kind == sink.Lost {
			x.m.LostTo = append(x.m.LostTo, to...)
		}
		if !r.Continue {
			return
		}
	}
}

func (x *decision) toldNow(notice string, t target) bool {
	return slices.ContainsFunc(x.r.Items, func(it *item) bool { return it.Note == notice && it.Target == t })
}

// item stages one notice for one target.
func (x *decision) item(n *sink.Notice, r *Rule, t target, s signal, hold time.Time) *item {
	d := x.d
	it := d.newItem(n, n.ID, t, s.kind, x.now)
	it.Ask, it.Hold, it.First = s.ask, hold, true
	if r != nil {
		it.Rule, it.Mention = r.Name, r.Mention
	}
	x.r.Items = append(x.r.Items, it)
	d.m.decided.WithLabelValues(t.Dest, string(s.kind)).Inc()
	return it
}

// newItem makes an item of a notice under an id. The caller holds mu.
func (d *desk) newItem(n *sink.Notice, id string, t target, kind sink.Kind, now time.Time) *item {
	d.st.order++
	return &item{
		ID: id + "@" + t.key(), Note: n.ID, Target: t, Kind: kind, Tenant: n.Tenant, Run: n.Run, Order: d.st.order,
		Made: now.UTC(), Expires: now.Add(d.rules.age(t.Dest)).UTC(),
	}
}

// grouped holds an item back for those of its group. Asks go alone: each has its
// own buttons.
func (x *decision) grouped(it *item, r *Rule, f *facts) {
	if !mergeable(it.Kind) {
		return
	}
	key := r.groupKey(f, it.Target)
	if key == "" {
		return
	}
	g := x.d.st.groups[key]
	if x.r.Groups != nil {
		if staged, ok := x.r.Groups[key]; ok {
			g = staged
		}
	}
	if !g.Due.After(x.now) { // none is open
		g.Due = x.now.Add(time.Duration(r.Group.Wait))
		if next := g.Last.Add(time.Duration(r.Group.Interval)); !g.Last.IsZero() && next.After(g.Due) {
			g.Due = next
		}
		g.Due = g.Due.UTC()
		g.Last = g.Due
		if x.r.Groups == nil {
			x.r.Groups = map[string]group{}
		}
		if len(x.d.st.groups) >= maxGroups {
			return
		}
		x.r.Groups[key] = g
	}
	it.Group = key
	if g.Due.After(it.Hold) {
		it.Hold = g.Due
	}
}

// mergeable reports whether notices of a kind may be told as lines of a digest.
func mergeable(k sink.Kind) bool {
	switch k {
	case sink.Finished, sink.Failed, sink.Lost, sink.Interrupted, sink.Stalled, sink.Resumed:
		return true
	default:
		return false
	}
}

// watch stages what keeps an eye on something that holds.
func (x *decision) watch(n *sink.Notice, r *Rule, s signal, to []target) {
	if len(x.d.st.watches)+len(x.r.Watch) >= maxWatches {
		x.d.m.suppress("too_many_open")
		return
	}
	what := s.ask
	if s.kind == sink.Lost {
		what = "lost"
	}
	w := &watch{
		ID: fmt.Sprintf("%s/%s@%s", runKey(n.Tenant, n.Run), what, r.Name), Tenant: n.Tenant, Run: n.Run, Ask: s.ask,
		Rule: r.Name, Note: n.ID, Told: to, Since: x.now.UTC(), Seq: x.ev.Seq,
	}
	w.Next = r.reminderAfter(w)
	if r.Waiting != nil && r.Waiting.Escalate != nil && s.kind == sink.Waiting {
		w.Climb = w.Since.Add(time.Duration(r.Waiting.Escalate.After))
	}
	x.r.Watch = append(x.r.Watch, w)
}

// reminderAfter is when the next reminder behind the watch's last one is due, zero
// for never.
func (r *Rule) reminderAfter(w *watch) time.Time {
	var steps []Duration
	if r.Waiting != nil && w.Ask != "" {
		steps = r.Waiting.Remind
	}
	if w.N < len(steps) {
		return w.Since.Add(time.Duration(steps[w.N]))
	}
	if r.Group == nil || r.Group.Repeat == 0 {
		return time.Time{}
	}
	first := w.Since
	if len(steps) > 0 {
		first = first.Add(time.Duration(steps[len(steps)-1]))
	}
	return first.Add(time.Duration(w.N-len(steps)+1) * time.Duration(r.Group.Repeat))
}
