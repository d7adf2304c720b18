package notify

import (
	"cmp"
	"time"
)

// What a destination is where its rules do not say.
const (
	defaultQueue  = 1000
	defaultMaxAge = 24 * time.Hour
	defaultMerge  = 5
)

// read reports whether people read at a destination of this type, so that many
// notices are better told as one.
func peopleRead(typ string) bool {
	switch typ {
	case "slack", "slack_webhook", "email":
		return true
	}
	return false
}

func (r *Rules) dest(name string) *Destination {
	if d := r.Destinations[name]; d != nil {
		return d
	}
	return &Destination{}
}

func (r *Rules) maxAge() time.Duration {
	return cmp.Or(time.Duration(r.MaxAge), defaultMaxAge)
}

// age is when a notice of a destination is given up.
func (r *Rules) age(dest string) time.Duration {
	return cmp.Or(time.Duration(r.dest(dest).Retry.MaxAge), maxAge)
}

func (r *Rules) queue(dest string) int { return cmp.Or(r.dest(dest).Queue, defaultQueue) }

// merge is from how many on waiting notices become a digest, 0 for never.
func (r *Rules) merge(dest string) int {
	d := r.dest(dest)
	switch {
	case d.Merge != nil:
		return *d.Merge
	case peopleRead(d.Type):
		return defaultMerge
	}
	return 0
}

func (r *Rules) climb(dest string) climb {
	var steps []time.Duration
	for _, s := range r.dest(dest).Retry.Ladder {
		steps = append(steps, time.Duration(s))
	}
	return newClimb(steps)
}

// rate is the time between two attempts and how many may come at once. A Slack app
// keeps to Slack's own limits; an incoming webhook takes about one a second, and
// servers of mail and programs are spared.
func (r *Rules) rate(dest string) (every time.Duration, burst int) {
	d := r.dest(dest)
	if d.Rate.Every > 0 {
		return time.Duration(d.Rate.Every), max(d.Rate.Burst, 1)
	}
	switch d.Type {
	case "slack_webhook":
		return time.Second, 3
	case "email":
		return 2 * time.Second, 5
	case "command":
		return 100 * time.Millisecond, 20
	}
	return 0, 1
}
