package notify

import (
	"math/rand/v2"
	"time"
)

// ladder is when an attempt follows the one before, as Standard Webhooks proposes
// it: the first at once.
var ladder = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// maxAge is the age at which a notice is given up, unless its destination says
	// otherwise.
	maxAge = 72 * time.Hour
	// fewTries is how often what was refused is tried: a 404 may be a deployment that
	// goes on.
	fewTries = 3
	// throttledFor is how long a busy destination is left alone at most that does not
	// say how long it wants to be.
	throttledFor = 30 * time.Second
	// maxAfter caps what a destination may ask for.
	maxAfter = time.Hour
)

// A climb says when attempts follow one another. jitter returns a number in [0,1).
type climb struct {
	steps  []time.Duration
	jitter func() float64
}

func newClimb(steps []time.Duration) climb {
	if len(steps) == 0 {
		steps = ladder
	}
	return climb{steps, rand.Float64}
}

// after is how long to wait behind attempt n (1 is the first), and false where the
// ladder has no further step. A fifth is added at random, so that many which failed
// at once do not come back at once.
func (c climb) after(n int) (time.Duration, bool) {
	if n < 1 || n > len(c.steps) {
		return 0, false
	}
	d := c.steps[n-1]
	return d + time.Duration(c.jitter()*float64(d)/5), true
}

// Breaker states, as the metric shows them.
const (
	breakerClosed   = 0
	breakerHalfOpen = 1
	breakerOpen     = 2
)

const (
	breakerAfter = 5 // failures in a row
	breakerFirst = 15 * time.Second
	breakerMax   = 10 * time.Minute
)

// A breaker keeps a destination that fails every time from being asked for each
// notice. After breakerAfter failures in a row it opens for a time that doubles,
// then lets one attempt through.
type breaker struct {
	failures int
	opened   int // times in a row
	until    time.Time
}

// wait is how long no attempt is made from now on.
func (b *breaker) wait(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }

func (b *breaker) ok() { *b = breaker{} }

func (b *breaker) failed(now time.Time) {
	b.failures++
	if b.failures < breakerAfter {
		return
	}
	d := breakerMax
	if b.opened < 8 {
		d = min(breakerMax, breakerFirst<<b.opened)
	}
	b.opened++
	b.until = now.Add(d)
}

func (b *breaker) state(now time.Time) int {
	switch {
	case b.failures < breakerAfter:
		return breakerClosed
	case b.until.After(now):
		return breakerOpen
	}
	return breakerHalfOpen
}

// A bucket is a rate limit: burst attempts at once, then one each interval. An
// interval of 0 is no limit.
type bucket struct {
	every time.Duration
	burst int
	full  time.Time // when it will be full again
}

// wait is how long until an attempt may be made.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.every <= 0 {
		return 0
	}
	behind := max(0, b.full.Sub(now))
	return max(0, behind-time.Duration(b.burst-1)*b.every)
}

func (b *bucket) take(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.every)
}
