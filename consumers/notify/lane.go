package notify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// A lane is what one destination, or one channel of it, is told: one notice at a
// time, in order. Each has a goroutine, so that none waits for another. All of it
// is guarded by the desk's mu.
type lane struct {
	key     string // destination, NUL, the sink's word for the lane
	dest    string
	items   []*item // by Order
	sending *item
	wake    chan struct{} // has one when there is something new

	paused    time.Time // until when the destination asked to be left alone
	throttled bool      // it did, and has taken nothing since
	breaker   breaker
	bucket    bucket
}

// held is a sink in use: it is closed when it has been replaced and nobody sends.
type held struct {
	sink.Sink
	sum     [32]byte // of its settings
	hidden  *sink.Hidden
	uses    int
	retired bool
	stop    func() // ends what it does beside Send, and waits for it
}

// updates reports whether a target's messages change in place. The caller holds mu.
func (d *desk) updates(t target) bool {
	h := d.sinks[t.Dest]
	return h != nil && h.Capabilities().Updates
}

// admit puts an item whose time has come into its lane. The caller holds mu.
func (d *desk) admit(it *item, now time.Time) {
	if it.lane != nil || d.idle {
		return
	}
	h := d.sinks[it.Target.Dest]
	switch {
	case h == nil:
		d.bury(it, "the destination is in the rules no more", "no_destination")
		return
	case d.st.dests[it.Target.Dest].Disabled && !it.Again:
		d.bury(it, "the destination is disabled: "+d.st.dests[it.Target.Dest].Why, "disabled")
		return
	}
	n := d.noteOf(it)
	if n == nil {
		d.drop("damaged", it)
		return
	}
	l := d.lane(it.Target.Dest, h.Lane(n))
	it.lane = l
	at, _ := slices.BinarySearchFunc(l.items, it.Order, func(o *item, order uint64) int { return cmp.Compare(o.Order, order) })
	l.items = slices.Insert(l.items, at, it)
	if it.Pause.After(now) { // as before a restart
		l.pause(it.Pause)
	}
	if limit := d.rules.queue(l.dest); len(l.items) > limit {
		d.overflow(l)
	}
	l.poke()
}

// overflow drops the oldest item of a full lane that nobody is in the middle of. The
// caller holds mu.
func (d *desk) overflow(l *lane) {
	for _, it := range l.items {
		if it != l.sending && !it.Unsure {
			d.log.Warn("queue is full, notice dropped", "destination", l.dest, "notice", it.ID, "kind", it.Kind)
			d.m.ended(it, "dropped")
			d.drop("queue_full", it)
			return
		}
	}
}

func (d *desk) lane(dest, name string) *lane {
	key := dest + "\x00" + name
	l := d.lanes[key]
	if l == nil {
		l = &lane{key: key, dest: dest, wake: make(chan struct{}, 1)}
		d.limit(l)
		d.lanes[key] = l
		if d.start != nil {
			d.start(l)
		}
	}
	return l
}

// limit takes the lane's rate from the rules. The caller holds mu.
func (d *desk) limit(l *lane) {
	l.bucket.every, l.bucket.burst = d.rules.rate(l.dest)
}

// pause leaves the destination alone until t: it said that it is busy.
func (l *lane) pause(t time.Time) {
	if t.After(l.paused) {
		l.paused, l.throttled = t, true
	}
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// leave takes an item out of its lane. The caller holds mu.
func (d *desk) leave(it *item) {
	if it.lane != nil {
		it.lane.items = slices.DeleteFunc(it.lane.items, func(o *item) bool { return o == it })
		it.lane = nil
	}
}

// work delivers what is in a lane until ctx ends.
func (d *desk) work(ctx context.Context, l *lane) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		it, wait := d.pick(l)
		if it != nil {
			if err := d.attempt(ctx, l, it); err != nil && ctx.Err() == nil {
				d.log.Error("outbox not written, delivery waits", "destination", l.dest, "error", err)
				wait = time.Second
			} else {
				continue
			}
		} else if err := d.commit(); err != nil && ctx.Err() == nil {
			d.log.Error("outbox not written", "error", err)
			wait = time.Second
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// idle is how long a lane sleeps that has nothing to do and is not woken.
const idle = time.Hour

// pick chooses the next item and notes that an attempt begins, or says how long there
// is none. Items of one run keep their order; those of other runs overtake one that
// waits for its next attempt.
func (d *desk) pick(l *lane) (*item, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.expire(l, now)
	if len(l.items) == 0 {
		return nil, idle
	}
	if d.st.dests[l.dest].Disabled && !l.items[0].Again {
		return nil, idle
	}
	if w := max(l.paused.Sub(now), l.breaker.wait(now), l.bucket.wait(now)); w > 0 {
		return nil, w
	}
	ready, wait := l.ready(now)
	if len(ready) == 0 {
		return nil, wait
	}
	it := ready[0]
	if together := d.together(l, ready); len(together) > 1 {
		it = d.merge(together, "", now)
		it.lane, it.durable = l, true
		l.items = slices.Insert(l.items, 0, it)
	}
	l.bucket.take(now)
	l.sending = it
	return it, 0
}

// ready lists what may be attempted now, and for how long nothing may where the list
// is empty.
func (l *lane) ready(now time.Time) (list []*item, wait time.Duration) {
	wait = idle
	behind := map[string]bool{} // runs with an item that waits
	for _, it := range l.items {
		key := runKey(it.Tenant, it.Run)
		switch {
		case it.Run != "" && behind[key]:
		case it.Next.After(now):
			wait = min(wait, it.Next.Sub(now))
			behind[key] = true
		default:
			list = append(list, it)
			behind[key] = behind[key] || !mergeable(it.Kind)
		}
	}
	return list, wait
}

// expire gives up what is too old. The caller holds mu.
func (d *desk) expire(l *lane, now time.Time) {
	for _, it := range slices.Clone(l.items) {
		if !it.Expires.After(now) && it != l.sending {
			d.bury(it, fmt.Sprintf("not delivered for %v", now.Sub(it.Made).Round(time.Second)), "expired")
		}
	}
}

// attempt tells one notice once: the attempt is on the disk before, its outcome is
// staged behind it and is on the disk before the lane rests.
func (d *desk) attempt(ctx context.Context, l *lane, it *item) error {
	d.mu.Lock()
	unsure := it.Unsure
	d.put(&record{Try: &try{Item: it.ID, N: it.Tries + 1, Unsure: true}})
	n := d.noteOf(it)
	h := d.sinks[l.dest]
	if h != nil {
		h.uses++
	}
	d.mu.Unlock()
	err := d.commit()
	switch {
	case err != nil:
	case h == nil || n == nil:
		err = fmt.Errorf("destination %s is gone", l.dest)
	default:
		n.Unsure = unsure
		n.Updates, err = d.refOf(it)
	}
	var out sink.Outcome
	if err == nil {
		out = d.send(ctx, h, n)
	}
	d.mu.Lock()
	l.sending = nil
	if h != nil {
		h.uses--
	}
	if err != nil { // nothing was sent
		d.put(&record{Try: &try{Item: it.ID, N: it.Tries - 1, Unsure: unsure}})
	} else if d.st.items[it.ID] == it {
		if ctx.Err() != nil && out.Verdict == sink.Unknown {
			d.put(&record{Try: &try{Item: it.ID, N: it.Tries, Unsure: true}}) // the next process looks
		} else {
			d.outcome(l, it, n, unsure, out)
		}
	}
	d.mu.Unlock()
	if h != nil {
		d.release(h)
	}
	return err
}

// send calls a sink. One that panics has failed.
func (d *desk) send(ctx context.Context, h *held, n *sink.Notice) (out sink.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = sink.Outcome{Verdict: sink.Unknown, Err: fmt.Errorf("the destination's code failed: %v", p)}
		}
		out = h.hidden.Outcome(out) // sinks say no secret: this is behind them
	}()
	d.m.requests.WithLabelValues(h.Name()).Inc()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { // what is under way may end
		t := time.NewTimer(lastWords)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-inner.Done():
		}
	})()
	return h.Send(inner, n)
}

// lastWords is how long an attempt may go on when everything ends.
const lastWords = 5 * time.Second

// release closes a replaced sink that nobody uses any more.
func (d *desk) release(h *held) {
	d.mu.Lock()
	last := h.retired && h.uses == 0
	d.mu.Unlock()
	if last {
		if err := h.shut(); err != nil {
			d.log.Warn("close destination", "destination", h.Name(), "error", h.hidden.Clean(err.Error()))
		}
	}
}

// refOf is the run's message at an item's target, nil for none.
func (d *desk) refOf(it *item) (*sink.Ref, error) {
	if it.Run == "" {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.marksOf(it.Tenant, it.Run)
	if err != nil {
		return nil, err
	}
	return m.Refs[it.Target.key()], nil
}

// shut ends a sink.
func (h *held) shut() error {
	h.stop()
	return h.Close()
}

// listen starts what a sink does beside Send: a Slack app hears of clicks.
func (h *held) listen(ctx context.Context, log *slog.Logger) {
	s, ok := h.Sink.(interface{ Run(context.Context) error })
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // stop waits for it
		defer close(ended)
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			log.Error("clicks are not heard any more", "destination", h.Name(), "error", err)
		}
	}()
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
}
