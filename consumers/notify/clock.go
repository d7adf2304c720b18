package notify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// textStillLost is the note of a lost run that is told again.
const textStillLost = "still lost"

// clock does what is due: groups and quiet hours that end, reminders, escalations.
// All times are of the journal, so a restart changes none.
func (d *desk) clock(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := d.tick(time.Now())
		if err := d.commit(); err != nil {
			d.log.Error("outbox not written, the clock waits", "error", err)
			next = time.Now().Add(time.Second)
		}
		timer.Reset(time.Until(next))
		select {
		case <-d.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// tick does what is due at now and says when to look again.
func (d *desk) tick(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = now.Add(time.Hour)
	d.open(now)
	for _, id := range slices.Sorted(maps.Keys(d.st.watches)) {
		w := d.st.watches[id]
		if due := w.due(); !due.IsZero() && !due.After(now) {
			d.remind(w, now)
		}
		d.sooner(d.st.watches[id].due())
	}
	for key, g := range d.st.groups {
		if now.Sub(g.Due) > 7*24*time.Hour {
			delete(d.st.groups, key)
		}
	}
	return d.next
}

func (d *desk) sooner(t time.Time) {
	if !t.IsZero() && t.Before(d.next) {
		d.next = t
	}
}

// open lets go what was held back until now: each group as one.
func (d *desk) open(now time.Time) {
	groups := map[string][]*item{}
	var due []*item
	for _, it := range d.st.items {
		if it.lane != nil || !it.durable {
			continue
		}
		if it.Hold.After(now) {
			d.sooner(it.Hold)
			continue
		}
		due = append(due, it)
	}
	slices.SortFunc(due, func(a, b *item) int { return int(int64(a.Order) - int64(b.Order)) })
	for _, it := range due {
		if until := d.quietFor(it, now); until.After(now) {
			d.holdBack(it, until)
			continue
		}
		if it.Group == "" || !mergeable(it.Kind) {
			d.admit(it, now)
			continue
		}
		groups[it.Group] = append(groups[it.Group], it)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		for items := range slices.Chunk(groups[key], maxDigest) {
			if len(items) == 1 {
				d.admit(items[0], now)
				continue
			}
			d.merge(items, "", now) // is dispatched when it is on the disk
		}
	}
}

// holdBack keeps an item until quiet hours end, with others of its rule.
func (d *desk) holdBack(it *item, until time.Time) {
	c := *it
	d.quieten(&c, until)
	d.put(&record{Items: []*item{&c}})
	d.sooner(until)
}

func (d *desk) quieten(it *item, until time.Time) {
	it.Hold = until.UTC()
	if it.Group == "" && mergeable(it.Kind) && d.rules.merge(it.Target.Dest) > 1 {
		it.Group = "quiet\x00" + it.Rule + "\x00" + it.Target.key()
	}
}

// quietFor is until when an item is held back by quiet hours.
func (d *desk) quietFor(it *item, now time.Time) time.Time {
	r := d.rule(it.Rule)
	if r == nil || len(r.quiet) == 0 || r.Pass.has(string(it.Kind)) || it.Again {
		return now
	}
	return quietUntil(r.quiet, now)
}

// remind tells a watch's cause again, or others of it. The times of the rules as
// they are now count; without the rule nothing more is told.
func (d *desk) remind(w *watch, now time.Time) {
	c := *w
	r, n := d.rule(w.Rule), d.st.notes[w.Note]
	if r == nil || n == nil {
		c.Next, c.Climb = time.Time{}, time.Time{}
		d.put(&record{Watch: []*watch{&c}})
		return
	}
	rec := record{}
	if !c.Climb.IsZero() && !c.Climb.After(now) {
		c.Climb, c.Climbed = time.Time{}, true
		if r.Waiting != nil && r.Waiting.Escalate != nil {
			d.escalate(&rec, &c, r, n, now)
		}
	}
	if !c.Next.IsZero() && !c.Next.After(now) {
		c.N++
		for _, t := range w.Told {
			kind, text := sink.Reminder, fmt.Sprintf("reminder %d: open for %v", c.N, now.Sub(w.Since).Round(time.Second))
			if w.Ask == "" {
				kind, text = sink.Lost, textStillLost
			}
			it := d.newItem(n, fmt.Sprintf("%s:reminder-%d", n.ID, c.N), t, kind, now)
			it.Rule, it.Mention, it.Text, it.Ask = r.Name, r.Mention, text, w.Ask
			rec.Items = append(rec.Items, it)
		}
		c.Next = r.reminderAfter(&c).UTC()
		for !c.Next.IsZero() && !c.Next.After(now) { // what a stop has missed is told once
			c.N++
			c.Next = r.reminderAfter(&c).UTC()
		}
	}
	rec.Watch = []*watch{&c}
	d.put(&rec)
}

// escalate tells others of an ask, or the same ones louder.
func (d *desk) escalate(rec *record, w *watch, r *Rule, n *sink.Notice, now time.Time) {
	e := r.Waiting.Escalate
	to := slices.Clone(w.Told)
	if len(e.To) > 0 {
		to = nil
		for _, t := range e.To {
			to = append(to, t.target())
		}
	}
	for _, t := range to {
		it := d.newItem(n, n.ID+":escalated", t, sink.Escalated, now)
		it.Rule, it.Mention, it.Ask = r.Name, e.Mention, w.Ask
		it.Text = fmt.Sprintf("nobody has answered for %v", now.Sub(w.Since).Round(time.Second))
		it.First = !slices.Contains(w.Told, t)
		rec.Items = append(rec.Items, it)
	}
	for _, t := range to {
		if !slices.Contains(w.Told, t) {
			w.Told = append(slices.Clone(w.Told), t)
		}
	}
}
