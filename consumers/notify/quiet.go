package notify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Quiet is a daily stretch of local time in which nothing is told. It begins on
// each of its days; one whose end is not behind its beginning ends on the next day.
// The clock on the wall decides: an hour that a zone skips is in it or not by its
// neighbours, an hour that comes twice is in it both times.
type Quiet struct {
	Zone string   `json:"zone"`
	Days []string `json:"days,omitempty"` // mon … sun; none is every day
	From string   `json:"from"`           // "22:00"
	To   string   `json:"to"`             // "07:00"; equal to From is the whole day

	loc      *time.Location
	days     [7]bool
	from, to int // minutes of the day
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// init reads the texts.
func (q *Quiet) init() (err error) {
	if q.loc, err = time.LoadLocation(q.Zone); err != nil || q.Zone == "" {
		return fmt.Errorf("time zone %q is not known: write one like Europe/Berlin or UTC", q.Zone)
	}
	if q.from, err = minutes(q.From); err != nil {
		return err
	}
	if q.to, err = minutes(q.To); err != nil {
		return err
	}
	for _, d := range q.Days {
		i := slices.Index(weekdays, d)
		if i < 0 {
			return fmt.Errorf("day %q is none of %s", d, strings.Join(weekdays, ", "))
		}
		q.days[i] = true
	}
	if len(q.Days) == 0 {
		q.days = [7]bool{true, true, true, true, true, true, true}
	}
	return nil
}

func minutes(s string) (int, error) {
	h, m, ok := strings.Cut(s, ":")
	hh, err1 := strconv.Atoi(h)
	mm, err2 := strconv.Atoi(m)
	if !ok || err1 != nil || err2 != nil || hh < 0 || hh > 23 || mm < 0 || mm > 59 {
		return 0, fmt.Errorf("time %q is not like 07:30", s)
	}
	return 60*hh + mm, nil
}

// holds reports whether t is in the stretch.
func (q *Quiet) holds(t time.Time) bool {
	l := t.In(q.loc)
	now := 60*l.Hour() + l.Minute()
	today, before := q.days[l.Weekday()], q.days[(l.Weekday()+6)%7]
	if q.from < q.to {
		return today && now >= q.from && now < q.to
	}
	return today && now >= q.from || before && now < q.to
}

// quietSearch bounds how far ahead the end of quiet is looked for: stretches of all
// days that meet have none.
const quietSearch = 8 * 24 * time.Hour

// quietUntil is when none of the stretches holds any more, t itself where none does
// then. Where they never end it is t and a week.
func quietUntil(all []*Quiet, t time.Time) time.Time {
	in := func(t time.Time) bool {
		return slices.ContainsFunc(all, func(q *Quiet) bool { return q.holds(t) })
	}
	if !in(t) {
		return t
	}
	// Zones change at whole minutes, so minutes are looked at one by one.
	end := t.Add(quietSearch)
	for m := t.Truncate(time.Minute).Add(time.Minute); m.Before(end); m = m.Add(time.Minute) {
		if !in(m) {
			return m
		}
	}
	return end
}

// A Duration is a Go duration in a rules file, with d for days: "30m", "2d".
type Duration time.Duration

// UnmarshalJSON reads the text of a duration.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := parseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON writes the text of a duration.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func parseDuration(s string) (time.Duration, error) {
	days := 0
	if n, rest, ok := strings.Cut(s, "d"); ok {
		v, err := strconv.Atoi(n)
		if err != nil || v < 0 || v > 3650 {
			return 0, fmt.Errorf("duration %q is not like 30m or 2d", s)
		}
		days, s = v, rest
	}
	var v time.Duration
	if s != "" || days == 0 {
		var err error
		if v, err = time.ParseDuration(s); err != nil || v < 0 {
			return 0, fmt.Errorf("duration %q is not like 30s, 15m, 2h or 1d", s)
		}
	}
	return v + time.Duration(days)*24*time.Hour, nil
}
