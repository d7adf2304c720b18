package relay

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// lookTimeout bounds one look at a run, its fold included.
	lookTimeout = time.Minute

	// flushing is how long after "resumed" a spool may take to be shipped before
	// the run, still without an exit and an edge, is called lost again.
	flushing = time.Minute

	// atOnce bounds looks at once; each may read a whole run.
	atOnce = 4
)

// A keeper looks at runs whose edge may be gone, each when its time has come: it
// says once that a run is lost, and keeps the registry's last word true.
type keeper struct {
	r    *Relay
	wake chan struct{} // capacity 1

	mu   sync.Mutex // guards the rest
	due  map[string]look
	plan looks // by their time, those that were replaced in due too
}

type look struct {
	run string
	at  time.Time
	gen uint64 // of the bus's connection when it was planned
}

// looks is a heap: there may be as many as runs.
type looks []look

func (l looks) Len() int           { return len(l) }
func (l looks) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l looks) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *looks) Push(x any)        { *l = append(*l, x.(look)) }
func (l *looks) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	*l = (*l)[:last]
	return x
}

func newKeeper(r *Relay) *keeper {
	return &keeper{r: r, wake: make(chan struct{}, 1), due: map[string]look{}}
}

// look plans a look at a run. The earliest plan counts.
func (k *keeper) look(run string, in time.Duration) {
	at := time.Now().Add(in)
	k.mu.Lock()
	have, ok := k.due[run]
	if ok && !at.Before(have.at) {
		k.mu.Unlock()
		return
	}
	k.put(look{run, at, k.r.bus.Generation()})
	first := k.plan[0].at.Equal(at)
	k.mu.Unlock()
	if !first {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// put plans a look; k.mu is held.
func (k *keeper) put(l look) {
	k.due[l.run] = l
	heap.Push(&k.plan, l)
}

// run looks until ctx ends.
func (k *keeper) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, atOnce)
	for {
		ready, wait := k.next()
		for _, run := range ready {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() { // ends with ctx, or after lookTimeout
				defer func() { <-slots }()
				k.at(ctx, run)
			})
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-k.wake:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// next takes the runs whose time has come, and says how long nothing will.
func (k *keeper) next() (ready []string, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, gen := time.Now(), k.r.bus.Generation()
	for len(k.plan) > 0 {
		l := k.plan[0]
		if wait := l.at.Sub(now); wait > 0 {
			return ready, wait
		}
		heap.Pop(&k.plan)
		switch {
		case k.due[l.run] != l: // another plan counts
		case l.gen != gen:
			// While the bus was away no edge could renew its presence.
			k.put(look{l.run, now.Add(k.r.cfg.LostGrace), gen})
		default:
			delete(k.due, l.run)
			ready = append(ready, l.run)
		}
	}
	return ready, time.Hour
}

func (k *keeper) at(ctx context.Context, run string) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := k.judge(ctx, run)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	k.r.log.Debug("look at run", "run", run, "error", err)
	k.look(run, k.r.cfg.LostGrace)
}

// judge does what the evidence on the bus asks for. Everything is read again, so
// that several relays and late words of an edge change nothing.
//
//	exit event        registry final        nothing
//	exit event        registry not final    the fold's verdict goes to the registry
//	none, alive       registry says lost    the fold's state goes to the registry
//	none, gone        liveness lost         registry says lost
//	none, gone        liveness else         lost is written, registry says lost
func (k *keeper) judge(ctx context.Context, run string) error {
	b := k.r.bus
	i, err := b.Run(ctx, run)
	if notFoundErr(err) {
		return nil // left with its events
	}
	if err != nil {
		return err
	}
	alive, err := b.Alive(ctx, run)
	if err != nil {
		return err
	}
	last, _, err := b.Last(ctx, i.Ref())
	if err != nil && !notFoundErr(err) {
		return err
	}
	if err == nil && last.Type == event.TypeExited {
		if over(i) || alive { // an edge that lives says so itself
			return nil
		}
		return k.r.reg.correct(ctx, i)
	}
	if alive {
		if i.State != stateLost {
			return nil
		}
		return k.r.reg.correct(ctx, i)
	}
	word, seq, err := b.Control(ctx, i.Tenant, run, subject.Liveness)
	if err != nil && !notFoundErr(err) {
		return err
	}
	if err == nil && word.Type == event.TypeResumed {
		if left := flushing - time.Since(word.Time); left > 0 { // its spool is being shipped
			k.look(run, left)
			return nil
		}
	}
	if err != nil || word.Type != event.TypeLost {
		if err := k.lose(ctx, i, seq); err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	if i.State == stateLost && i.Verdict == stateLost {
		return nil
	}
	return k.r.reg.correct(ctx, i)
}

// Lost is the data of the fact that a run's edge is gone.
type Lost struct {
	Synthesised bool      `json:"synthesised"` // always true: no edge said it
	Reason      string    `json:"reason"`
	Time        time.Time `json:"time"`
	LastSeq     uint64    `json:"last_seq,omitempty"` // as the registry knew it
}

// lose says that the run is lost, once among all relays.
func (k *keeper) lose(ctx context.Context, i bus.RunInfo, fence uint64) error {
	now := time.Now().UTC()
	data, err := json.Marshal(Lost{Synthesised: true, Reason: "presence_expired", Time: now, LastSeq: i.LastSeq})
	if err != nil {
		return err
	}
	_, err = k.r.bus.PutControl(ctx, &event.Event{
		Tenant: i.Tenant, Run: i.Run, Ref: "lost-" + now.Format("20060102T150405.000000000Z"), Time: now,
		Type: event.TypeLost, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: data,
	}, subject.Liveness, fence)
	if err == nil {
		k.r.log.Info("run is lost", "run", i.Run)
	}
	return err
}
