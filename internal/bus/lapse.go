package bus

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// lapseTick is how soon after its time a key's end is noticed, at most a
	// hundredth of the time that keys have.
	lapseTick, lapseTickMax = 200 * time.Millisecond, time.Minute

	// lapseAgain is when the leader is asked again whether a key that is due is there.
	lapseAgain = 2 * time.Second
)

// A lapse notices keys of a bucket that end because nobody renews them. The server
// says nothing then: markers would need roll-ups, see [Topology]. The time runs here
// from when a key's last message came; the leader has the last word.
type lapse struct {
	b      *Bus
	bucket string
	ended  func(key string) // is called with mu held

	mu  sync.Mutex // guards due and whatever the caller's functions touch
	due map[string]due
}

// A due is when a key's end is looked for, and by which message.
type due struct {
	at  time.Time
	ttl time.Duration
	seq uint64
}

// saw takes note of a key's message. mu is held.
func (p *lapse) saw(key string, s *stored) {
	n, err := strconv.Atoi(s.header.Get(hdrTTL))
	if err != nil || n <= 0 || gone(s) {
		delete(p.due, key)
		return
	}
	ttl := time.Duration(n) * time.Second
	if p.due == nil {
		p.due = map[string]due{}
	}
	p.due[key] = due{time.Now().Add(ttl), ttl, s.seq}
}

// run looks for ends until ctx ends.
func (p *lapse) run(ctx context.Context) {
	for wait := lapseTick; ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		var ready []string
		ready, wait = p.ready(time.Now())
		for _, key := range ready {
			p.look(ctx, key)
		}
	}
}

// ready returns the keys whose time has come, and how long to wait for more.
func (p *lapse) ready(now time.Time) (keys []string, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = lapseTickMax
	for key, d := range p.due {
		wait = min(wait, max(d.ttl/100, lapseTick))
		if d.at.Before(now) {
			keys = append(keys, key)
		}
	}
	if len(p.due) == 0 {
		wait = lapseTick
	}
	return keys, wait
}

// look asks the leader for a key that is due.
func (p *lapse) look(ctx context.Context, key string) {
	p.mu.Lock()
	was, ok := p.due[key]
	p.mu.Unlock()
	if !ok {
		return
	}
	s, err := p.b.get(ctx, kvStream(p.bucket), getRequest{LastFor: kvRoot(p.bucket) + key})
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ok := p.due[key]
	switch {
	case !ok || now.seq != was.seq: // it was written meanwhile
	case errors.Is(err, ErrNotFound), err == nil && foreign(p.bucket, s):
		delete(p.due, key)
		p.ended(key)
	case err == nil && s.seq != was.seq: // its message is on the way to us
		p.due[key] = due{time.Now().Add(was.ttl), was.ttl, was.seq}
	default:
		p.due[key] = due{time.Now().Add(lapseAgain), was.ttl, was.seq}
	}
}

// watch reads the bucket and looks for ends until ctx ends or the tail does. saw is
// called for each message, ended for each key that ended by itself, one at a time.
func (b *Bus) watchKeys(ctx context.Context, bucket string, ready func(), saw func(key string, s *stored), ended func(key string)) error {
	p := lapse{b: b, bucket: bucket, ended: ended}
	t := tail{b: b, stream: kvStream(bucket), filter: kvRoot(bucket) + ">", snapshot: true}
	if ready != nil {
		t.ready = func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			ready()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { p.run(ctx) }) // ends with ctx
	err := t.run(ctx, func(s *stored) error {
		if foreign(bucket, s) {
			b.log.Warn("a key's message is none of ours, left out", "bucket", bucket, "key", s.subject)
			return nil
		}
		key := kvKey(bucket, s.subject)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.saw(key, s)
		saw(key, s)
		return nil
	})
	return err
}

// foreign reports whether a message of the registry or of presence is none that an
// edge or a relay wrote there: the server may have been made to write it.
func foreign(bucket string, s *stored) bool {
	switch {
	case s.copied:
		return true
	case gone(s):
		return false
	case bucket == subject.PresenceBucket:
		return len(s.data) > 0 || s.header.Get(hdrTTL) == ""
	}
	_, err := runOf(s)
	return err != nil
}

// runOfKey is the run that a key names.
func runOfKey(key string) string {
	run, _ := subject.Untoken(key)
	return run
}
