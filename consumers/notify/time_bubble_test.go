package notify

import (
	"testing"
	"time"
)

func at(t *testing.T, zone, s string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	v, err := time.ParseInLocation("2006-01-02 15:04", s, loc)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Quiet hours follow the clock on the wall: over midnight, over the days of the week,
// over an hour that is skipped and one that comes twice.
func TestQuiet(t *testing.T) {
	night := &Quiet{Zone: "Europe/Berlin", From: "22:00", To: "07:00"}
	weekend := &Quiet{Zone: "Europe/Berlin", Days: []string{"sat", "sun"}, From: "00:00", To: "00:00"}
	friday := &Quiet{Zone: "Europe/Berlin", Days: []string{"fri"}, From: "22:00", To: "07:00"}
	early := &Quiet{Zone: "Europe/Berlin", From: "01:00", To: "02:30"}
	utc := &Quiet{Zone: "UTC", From: "09:00", To: "17:00"}
	for _, q := range []*Quiet{night, weekend, friday, early, utc} {
		if err := q.init(); err != nil {
			t.Fatal(err)
		}
	}
	const berlin = "Europe/Berlin"
	for _, tc := range []struct {
		name     string
		all      []*Quiet
		now, end string
	}{
		{"before", []*Quiet{night}, "2026-06-10 21:59", "2026-06-10 21:59"},
		{"at its beginning", []*Quiet{night}, "2026-06-10 22:00", "2026-06-11 07:00"},
		{"behind midnight", []*Quiet{night}, "2026-06-11 03:00", "2026-06-11 07:00"},
		{"at its end", []*Quiet{night}, "2026-06-11 07:00", "2026-06-11 07:00"},
		{"weekend", []*Quiet{weekend}, "2026-06-13 12:00", "2026-06-15 00:00"},
		{"night and weekend", []*Quiet{night, weekend}, "2026-06-12 23:00", "2026-06-15 07:00"},
		{"begins on friday only", []*Quiet{friday}, "2026-06-13 06:00", "2026-06-13 07:00"},
		{"not on saturday", []*Quiet{friday}, "2026-06-13 23:00", "2026-06-13 23:00"},
		{"the night that is an hour shorter", []*Quiet{night}, "2026-03-28 23:00", "2026-03-29 07:00"},
		{"the night that is an hour longer", []*Quiet{night}, "2026-10-24 23:00", "2026-10-25 07:00"},
		{"its end is skipped: 03:00 follows 01:59", []*Quiet{early}, "2026-03-29 01:10", "2026-03-29 03:00"},
		{"other zone", []*Quiet{utc}, "2026-06-10 12:00", "2026-06-10 19:00"},
	} {
		got := quietUntil(tc.all, at(t, berlin, tc.now))
		if want := at(t, berlin, tc.end); !got.Equal(want) {
			t.Errorf("%s: from %s until %s, want %s", tc.name, tc.now, got.In(want.Location()), want)
		}
	}
	// 02:00 to 02:59 comes twice: both times it is quiet until 02:30.
	first := time.Date(2026, 10, 25, 0, 10, 0, 0, time.UTC) // 02:10 of summer
	second := first.Add(time.Hour)
	for _, now := range []time.Time{first, second} {
		if got, want := quietUntil([]*Quiet{early}, now), now.Add(20*time.Minute); !got.Equal(want) {
			t.Errorf("from %s until %s, want %s", now, got, want)
		}
	}
	always := []*Quiet{{Zone: "UTC", From: "00:00", To: "00:00"}}
	if err := always[0].init(); err != nil {
		t.Fatal(err)
	}
	if got := quietUntil(always, first).Sub(first); got != quietSearch {
		t.Errorf("without an end it holds back for %v, want %v", got, quietSearch)
	}
}

// The ladder is that of Standard Webhooks, each step up to a fifth longer.
func TestLadder(t *testing.T) {
	c := newClimb(nil)
	for n, step := range ladder {
		for _, r := range []float64{0, 0.5, 0.999} {
			c.jitter = func() float64 { return r }
			d, ok := c.after(n + 1)
			if !ok || d < step || d > step+step/5 {
				t.Errorf("behind attempt %d: %v, want %v and up to a fifth", n+1, d, step)
			}
		}
	}
	if _, ok := c.after(len(ladder) + 1); ok {
		t.Error("the ladder has no end")
	}
}

// Failures in a row open the breaker for a time that doubles; one success closes it.
func TestBreaker(t *testing.T) {
	now := time.Unix(1e9, 0)
	var b breaker
	for range breakerAfter - 1 {
		b.failed(now)
	}
	if b.state(now) != breakerClosed || b.wait(now) != 0 {
		t.Error("open too early")
	}
	want := breakerFirst
	for range 10 {
		b.failed(now)
		if b.state(now) != breakerOpen || b.wait(now) != want {
			t.Errorf("waits %v, want %v", b.wait(now), want)
		}
		now = now.Add(want)
		if b.state(now) != breakerHalfOpen || b.wait(now) != 0 {
			t.Error("does not let one through")
		}
		want = min(2*want, breakerMax)
	}
	b.ok()
	if b.state(now) != breakerClosed {
		t.Error("not closed by a success")
	}
}

// A bucket lets a burst through, then one each interval.
func TestBucket(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := bucket{every: time.Second, burst: 3}
	for range 3 {
		if w := b.wait(now); w != 0 {
			t.Fatalf("waits %v in the burst", w)
		}
		b.take(now)
	}
	for range 5 {
		if w := b.wait(now); w != time.Second {
			t.Fatalf("waits %v behind the burst, want 1s", w)
		}
		now = now.Add(time.Second)
		b.take(now)
	}
	now = now.Add(time.Hour)
	if b.wait(now) != 0 {
		t.Error("does not fill up again")
	}
}
