package notify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/consume"
)

// runName is a run of a tenant.
type runName struct{ tenant, run string }

// meant finds the run that a request means among all that something is kept of.
func (d *desk) meant(q Forget) (runName, time.Time, error) {
	known, err := d.known()
	if err != nil {
		return runName{}, time.Time{}, err
	}
	var exact, part []runName
	var latest runName
	for n, at := range known {
		if q.Tenant != "" && q.Tenant != n.tenant {
			continue
		}
		if latest.run == "" || at.After(known[latest]) || at.Equal(known[latest]) && n.run > latest.run {
			latest = n
		}
		switch {
		case n.run == q.Run:
			exact = append(exact, n)
		case partOf(q.Run, n.run):
			part = append(part, n)
		}
	}
	found := exact
	if len(found) == 0 && q.Run == lastRun && latest.run != "" {
		found = []runName{latest}
	}
	if len(found) == 0 {
		found = part
	}
	if len(found) == 0 { // once more: an earlier request may not have come to its end
		for _, tenant := range []string{q.Tenant, defaultTenant} {
			if n := (runName{tenant, q.Run}); d.told.forgotten(n.tenant, n.run) && (q.Tenant == "" || q.Tenant == tenant) {
				return n, time.Time{}, nil
			}
		}
	}
	slices.SortFunc(found, func(a, b runName) int { return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.tenant, b.tenant)) })
	switch {
	case len(found) == 0:
		return runName{}, time.Time{}, fmt.Errorf("%s: %w", q.Run, ErrNoRun)
	case len(found) == 1:
		return found[0], known[found[0]], nil
	case len(exact) > 0:
		return runName{}, time.Time{}, fmt.Errorf("%s is a run of %d tenants, %s and %s among them: say which", q.Run, len(found), found[0].tenant, found[1].tenant)
	}
	return runName{}, time.Time{}, tooMany(q.Run, len(found), found[0].run, found[1].run)
}

// partOf reports whether a word is long enough to mean a run, and fits it.
func partOf(word, run string) bool {
	return len(word) >= 4 && (strings.HasPrefix(run, word) || strings.HasSuffix(run, word))
}

func tooMany(word string, n int, one, other string) error {
	return fmt.Errorf("%s fits %d runs, %s and %s among them: say more of it", word, n, one, other)
}

// known are all runs that something is kept of, and when something was told of each last.
func (d *desk) known() (map[runName]time.Time, error) {
	all := map[runName]time.Time{}
	see := func(tenant, run string, at time.Time) {
		n := runName{tenant, run}
		if run != "" && (all[n].IsZero() || at.After(all[n])) {
			all[n] = at
		}
	}
	notice := func(it *item, n *sink.Notice, at time.Time) {
		see(it.Tenant, it.Run, at)
		if n != nil {
			for _, l := range n.Digest {
				see(l.Tenant, l.Run, l.At)
			}
		}
	}
	if err := d.told.each(func(m *marks) { see(m.Tenant, m.Run, m.At) }); err != nil {
		return nil, err
	}
	list, err := d.dead.all()
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		notice(l.Item, l.Notice, l.At)
	}
	if err := readSent(d.sent.dir, func(s sentNote) error { notice(s.Item, s.Notice, s.At); return nil }); err != nil {
		return nil, err
	}
	err = eachEvent(d.dir, func(_ string, e *consume.Dead) error { see(e.Tenant, e.Run, e.Time); return nil })
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range d.st.items {
		notice(it, d.st.notes[it.Note], it.Made)
	}
	for _, w := range d.st.watches {
		see(w.Tenant, w.Run, w.Since)
	}
	return all, nil
}

// of reports whether an item tells of the run alone.
func (n runName) of(it *item) bool { return it.Run == n.run && it.Tenant == n.tenant }

// without is a digest without a run: nil where nothing of it is left. changed is false
// where the run is not in it.
func (n runName) without(it *item, note *sink.Notice) (members []string, left *sink.Notice, changed bool) {
	mine := func(l sink.Line) bool { return l.Run == n.run && l.Tenant == n.tenant }
	if note == nil || !slices.ContainsFunc(note.Digest, mine) {
		return it.Members, note, false
	}
	c := *note
	c.Digest = slices.DeleteFunc(slices.Clone(note.Digest), mine)
	members = slices.DeleteFunc(slices.Clone(it.Members), func(id string) bool { return strings.HasPrefix(id, cleanID(n.run)+"/") })
	if len(c.Digest) == 0 {
		return members, nil, true
	}
	return members, &c, true
}
