package notify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// outcome stages what became of an attempt. unsure says that an earlier attempt's end
// is not known. The caller holds mu.
func (d *desk) outcome(l *lane, it *item, n *sink.Notice, unsure bool, out sink.Outcome) {
	now := time.Now()
	why := ""
	if out.Err != nil {
		why = out.Err.Error()
	}
	d.keepRef(it, out.Ref, now)
	if out.Verdict != sink.Delivered {
		d.m.failed.WithLabelValues(l.dest, failure(out)).Inc()
	}
	log := d.log.With("destination", l.dest, "notice", n.ID, "kind", it.Kind, "run", it.Run, "attempt", it.Tries)
	switch out.Verdict {
	case sink.Delivered:
		if l.breaker.failures >= breakerAfter { // it is back: the others need not wait for their time
			for _, o := range l.items {
				o.Next = time.Time{}
			}
		}
		l.breaker.ok()
		l.throttled = false
		d.leave(it)
		d.put(&record{Gone: []gone{{it.ID, "delivered"}}})
		d.m.delivered(it, now)
		d.sent.add(it, d.noteOfSent(n), now)
		if out.Note != "" {
			log.Warn("notice delivered, not as it was to be", "note", out.Note)
		} else {
			log.Debug("notice delivered")
		}
	case sink.Gone:
		d.disable(l.dest, why, now)
	case sink.Refused:
		l.breaker.ok() // it answers
		if out.Permanent || it.Tries >= fewTries {
			d.bury(it, why, "dead")
			return
		}
		d.again(l, it, out, false, now)
		log.Warn("notice refused", "error", why, "again", it.Next)
	case sink.Unknown:
		l.breaker.failed(now)
		if h := d.sinks[l.dest]; (h == nil || !h.Capabilities().Idempotent) && unsure {
			d.bury(it, "nobody knows whether it was delivered: "+why, "unknown")
			return
		}
		d.again(l, it, out, true, now)
		log.Warn("notice may be delivered", "error", why, "again", it.Next)
	default: // Retry
		if !out.Throttled {
			l.breaker.failed(now)
		}
		d.again(l, it, out, unsure, now) // an attempt before this one may have worked
		log.Warn("notice not delivered", "error", why, "again", it.Next)
	}
}

// again stages the time of an item's next attempt. The caller holds mu.
func (d *desk) again(l *lane, it *item, out sink.Outcome, unsure bool, now time.Time) {
	after, more := d.rules.climb(l.dest).after(it.Tries)
	if !more && !out.Throttled { // the ladder is at its end
		d.bury(it, "every attempt failed, the last with: "+errText(out.Err), "dead")
		return
	}
	t := &try{Item: it.ID, N: it.Tries, Unsure: unsure}
	switch {
	case out.After > 0:
		after = min(out.After, maxAfter)
		t.Pause = now.Add(after).UTC()
	case out.Throttled:
		if after = min(after, throttledFor); !more {
			after = throttledFor
		}
		t.Pause = now.Add(after).UTC()
	}
	t.Next = now.Add(after).UTC()
	l.pause(t.Pause)
	d.put(&record{Try: t})
}

func errText(err error) string {
	if err == nil {
		return "no reason"
	}
	return err.Error()
}

// failure is an outcome as a label.
func failure(out sink.Outcome) string {
	if out.Throttled {
		return "throttled"
	}
	return string(out.Verdict)
}

// keepRef stages where the run's message is now. The caller holds mu.
func (d *desk) keepRef(it *item, ref *sink.Ref, now time.Time) {
	if ref == nil || it.Run == "" {
		return
	}
	m, err := d.marksOf(it.Tenant, it.Run)
	if err != nil {
		d.log.Error("place of a message is not kept", "run", it.Run, "error", err)
		return
	}
	if m.Refs == nil {
		m.Refs = map[string]*sink.Ref{}
	}
	m.Refs[it.Target.key()], m.At = ref, now.UTC()
	d.put(&record{Marks: []*marks{m}})
}

// bury stages the end of an item that is given up, and writes it to the letters that
// replay takes up again. The caller holds mu.
func (d *desk) bury(it *item, why, how string) {
	d.leave(it)
	n := d.noteOf(it)
	if n != nil {
		if err := d.dead.put(letter{Item: it, Notice: n, Why: why, How: how, At: time.Now().UTC()}); err != nil {
			d.log.Error("letter not kept", "notice", it.ID, "error", err)
		}
	}
	d.put(&record{Gone: []gone{{it.ID, how}}})
	d.m.ended(it, how)
	d.log.Error("notice given up", "destination", it.Target.Dest, "notice", noticeID(it.ID), "kind", it.Kind, "run", it.Run, "how", how, "error", why)
}

// disable notes that a destination is gone, gives up what it was to get, and tells
// the owner once. The caller holds mu.
func (d *desk) disable(dest, why string, now time.Time) {
	was := d.st.dests[dest]
	d.put(&record{Dest: &destState{Name: dest, Disabled: true, Why: why, At: now.UTC()}})
	for _, id := range slices.Sorted(maps.Keys(d.st.items)) {
		if it := d.st.items[id]; it != nil && it.Target.Dest == dest {
			d.bury(it, "the destination is gone: "+why, "disabled")
		}
	}
	if was.Disabled {
		return
	}
	d.log.Error("destination is disabled: it answered that it is gone; cbcast notify enable takes it up again", "destination", dest, "error", why)
	n := &sink.Notice{
		ID: fmt.Sprintf("disabled/%s/%d", dest, now.Unix()), Kind: sink.Disabled, At: now.UTC(),
		Note: fmt.Sprintf("destination %s is disabled: it says that it is gone; cbcast notify enable %s takes it up again", dest, dest),
	}
	r := record{}
	for _, o := range d.rules.Owner {
		if o != dest && !d.st.dests[o].Disabled {
			r.Items = append(r.Items, d.newItem(n, n.ID, target{Dest: o}, n.Kind, now))
		}
	}
	if len(r.Items) > 0 {
		r.Notes = []*sink.Notice{n}
		d.put(&r)
	}
}

// ErrNoDestination is returned for a name that is not in the rules.
var ErrNoDestination = errors.New("no such destination in the rules")

// enable takes a disabled destination up again.
func (d *desk) enable(dest string) error {
	d.mu.Lock()
	if err := d.rules.known(dest); err != nil {
		d.mu.Unlock()
		return err
	}
	d.put(&record{Dest: &destState{Name: dest}})
	for _, l := range d.lanes {
		if l.dest == dest {
			l.breaker.ok()
			l.paused = time.Time{}
			l.poke()
		}
	}
	d.mu.Unlock()
	return d.commit()
}

// known says that the rules have no such destination, and which they have. "" is all.
func (r *Rules) known(dest string) error {
	if dest == "" || r.Destinations[dest] != nil {
		return nil
	}
	return fmt.Errorf("%s: %w; they are %s", dest, ErrNoDestination, strings.Join(slices.Sorted(maps.Keys(r.Destinations)), ", "))
}

// noteOfSent is what the sent log keeps of a notice: what replay needs.
func (d *desk) noteOfSent(n *sink.Notice) *sink.Notice {
	c := *n
	c.Updates = nil
	return &c
}
