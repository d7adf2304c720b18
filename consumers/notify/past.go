package notify

import (
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// correct ends what was told of a loss, where a signal says that it holds no more,
// and returns whom it was told. Of those who have not been told yet nobody is.
func (x *decision) correct(s signal) []target {
	switch s.kind {
	case sink.Resumed, sink.Finished, sink.Failed, sink.Interrupted:
	default:
		return nil
	}
	for _, w := range x.d.st.byRun[runKey(x.ev.Tenant, x.ev.Run)] {
		if w.Ask == "" {
			x.r.Closed = append(x.r.Closed, w.ID)
		}
	}
	told := x.unsaid(x.m.LostTo, func(it *item) bool { return it.Kind == sink.Lost || it.Text == textStillLost })
	x.m.LostTo = nil
	return told
}

// ended lists the watches of asks that are open no more. The state may be of a time
// before the ask: after a crash events come again.
func ended(watched []*watch, st *run.State) (list []*watch) {
	for _, w := range watched {
		if w.Ask == "" || st.LastSeq() < w.Seq {
			continue
		}
		if a, ok := st.Ask(w.Ask); ok && a.State == run.AskOpen {
			continue
		}
		list = append(list, w)
	}
	return list
}

// over ends watches, and says so where their cause was told.
func (x *decision) over(past []*watch) {
	for _, w := range past {
		x.r.Closed = append(x.r.Closed, w.ID)
		a, _ := x.st.Ask(w.Ask)
		x.answered(w, &a)
	}
}

// answered tells that an ask waits no more, where that changes what is shown.
func (x *decision) answered(w *watch, a *run.AskView) {
	told := x.unsaid(w.Told, func(it *item) bool { return it.Ask == w.Ask })
	s := signal{kind: sink.Answered, id: eventID(x.ev) + ":" + w.Ask, ask: w.Ask}
	var n *sink.Notice
	for _, t := range told {
		r := x.d.rule(w.Rule)
		if x.endTold(t) {
			continue // which says so, too
		}
		if !x.d.updates(t) && (r == nil || r.Match == nil || !r.Match.Kind.has(string(sink.Answered))) {
			continue
		}
		if n == nil {
			n = noticeOf(s, x.ev, x.st, x.viewOf())
			n.Links = sink.Links{Run: x.d.links(n.Tenant, n.Run), CI: n.CI["ciurl"]}
			n.Note = closedText(a)
			x.r.Notes = append(x.r.Notes, n)
		}
		if !x.toldNow(n.ID, t) {
			x.item(n, nil, t, s, time.Time{})
		}
	}
}

// endTold reports whether the run's end is told to a target by this decision.
func (x *decision) endTold(t target) bool {
	return x.m.End != "" && slices.ContainsFunc(x.r.Items, func(it *item) bool { return it.Target == t && it.Kind == x.m.End })
}

// closedText says why an ask is open no more.
func closedText(a *run.AskView) string {
	switch {
	case a.Closed == nil && a.Decided != nil:
		return "decided: " + a.Decided.Decision + " (" + a.Decided.By + ")"
	case a.Closed == nil:
		return "open no more"
	case a.Decided != nil:
		return "closed: " + a.Closed.Reason + ", " + a.Decided.Decision + " (" + a.Decided.By + ")"
	}
	return "closed: " + a.Closed.Reason
}

// unsaid stages the end of the run's items that nobody has seen and that are about
// what is past, and returns those of the targets that have or may have seen one.
func (x *decision) unsaid(told []target, about func(*item) bool) (seen []target) {
	unseen := map[target]bool{}
	for _, it := range x.d.st.items {
		if it.Run != x.ev.Run || it.Tenant != x.ev.Tenant || !about(it) {
			continue
		}
		if it.lane != nil && it.lane.sending == it || it.Unsure {
			continue
		}
		if it.First {
			unseen[it.Target] = true
		}
		x.d.leave(it)
		x.r.Gone = append(x.r.Gone, gone{it.ID, "closed"})
		x.d.m.suppress("closed")
	}
	for _, t := range told {
		if !unseen[t] && !slices.Contains(seen, t) {
			seen = append(seen, t)
		}
	}
	return seen
}
