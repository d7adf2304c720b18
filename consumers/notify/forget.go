package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/consume"
)

// Forget asks for a run to be erased from all that notify keeps.
type Forget struct {
	// Run is an id, the beginning or the end of one (4 characters or more), or "last".
	Run    string `json:"run"`
	Tenant string `json:"tenant,omitempty"` // "" where only one has such a run
}

// Forgotten says what was erased of a run, and what cannot be.
type Forgotten struct {
	Run     string    `json:"run"`
	Tenant  string    `json:"tenant,omitempty"`
	Last    time.Time `json:"last"`    // when something was told of it last
	Waiting int       `json:"waiting"` // notices that were not delivered yet
	Letters int       `json:"letters"` // that were given up
	Sent    int       `json:"sent"`    // copies of what was delivered
	Events  int       `json:"events"`  // that could not be handled
	// Sending are the notices that somebody is being told at this moment.
	Sending int `json:"sending,omitempty"`
	// Told are those who were told: destinations, and of Slack's messages where each is.
	Told []string `json:"told,omitempty"`
}

// forgottenMark stands for a run whose name is kept no more.
func forgottenMark(tenant, run string) string {
	sum := sha256.Sum256([]byte("cbcast notify forgot\x00" + tenant + "\x00" + run))
	return hex.EncodeToString(sum[:])
}

// forget erases a run. That it is forgotten stays, without its name, so that nothing is
// told of it when its events come again, or go on. It may be repeated after an error.
func (d *desk) forget(q Forget) (*Forgotten, error) {
	if err := d.commit(); err != nil {
		return nil, err
	}
	name, last, err := d.meant(q)
	if err != nil {
		return nil, err
	}
	f := &Forgotten{Run: name.run, Tenant: name.tenant, Last: last}
	told := map[string]bool{}
	marks, err := d.told.get(name.tenant, name.run)
	if err != nil && !errors.Is(err, errBadLine) {
		return nil, err
	}
	if err == nil {
		for at, ref := range marks.Refs {
			told[messageAt(at, ref)] = true
		}
	}
	// From here on nothing more is decided of it.
	if err := d.told.forget(name, time.Now()); err != nil {
		return nil, err
	}
	if f.Waiting, f.Sending, err = d.forgetWaiting(name); err != nil {
		return nil, err
	}
	if f.Letters, err = d.dead.forget(name); err != nil {
		return nil, err
	}
	if f.Sent, err = d.sent.forget(name, func(t target) {
		if marks == nil || marks.Refs[t.key()] == nil { // else its place is there already
			told[t.key()] = true
		}
	}); err != nil {
		return nil, err
	}
	if f.Events, err = forgetEvents(d.dir, name); err != nil {
		return nil, err
	}
	f.Told = slices.Sorted(maps.Keys(told))
	return f, d.forgetButtons(name)
}

// ForgetHere is a request to forget for a state directory that no process has; with
// [ErrBusy] one has it, and is to be asked.
func ForgetHere(dir string, toldAge time.Duration, q Forget) (f *Forgotten, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", q.Run, ErrNoRun)
	}
	d, err := openDesk(dir, toldAge, slog.New(slog.DiscardHandler), newMetrics())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.idle, d.rules = true, &Rules{}
	return d.forget(q)
}

// messageAt is where a message is, for people.
func messageAt(target string, ref *sink.Ref) string {
	if ref != nil && ref.Channel != "" && ref.TS != "" {
		return fmt.Sprintf("%s (channel %s, message %s)", target, ref.Channel, ref.TS)
	}
	if ref != nil && ref.Message != "" {
		return fmt.Sprintf("%s (Message-ID %s)", target, ref.Message)
	}
	return target
}

// defaultTenant is that of runs without one of their own.
const defaultTenant = "default"

// lastRun is the word for the run that was told of last.
const lastRun = "last"

// forgetWaiting takes a run out of what is on its way, and writes the journal anew: lines
// of the past stand in the old one.
func (d *desk) forgetWaiting(name runName) (waiting, sending int, err error) {
	d.commitMu.Lock()
	defer d.commitMu.Unlock()
	d.mu.Lock()
	inHand := map[string]bool{}
	for _, l := range d.lanes {
		if l.sending != nil {
			inHand[l.sending.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.st.items)) {
		it := d.st.items[id]
		if !name.of(it) {
			members, note, changed := name.without(it, d.st.notes[it.Note])
			if !changed {
				continue
			}
			if note != nil {
				it.Members, d.st.notes[it.Note] = members, note
				continue
			}
		}
		waiting++
		if inHand[id] {
			sending++
		}
		d.leave(it)
		d.st.endItem(id)
		d.m.ended(it, "forgotten")
	}
	for _, w := range slices.Clone(d.st.byRun[runKey(name.tenant, name.run)]) {
		d.st.endWatch(w.ID)
	}
	delete(d.st.marks, name.tenant+"/"+name.run)
	// What was staged meanwhile is in the state, and so in the new journal.
	staged := d.stage
	d.stage = nil
	lines, err := d.st.snapshot()
	d.mu.Unlock()
	if err == nil {
		err = d.renew(lines)
	}
	if err != nil {
		d.mu.Lock()
		d.stage = append(staged, d.stage...)
		d.mu.Unlock()
	}
	return waiting, sending, err
}

// forget takes a run out of the letters.
func (l *letters) forget(name runName) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n, l.rewrite(func(list []letter) []letter {
		return slices.DeleteFunc(list, func(v letter) bool {
			if name.of(v.Item) {
				n++
				return true
			}
			return false
		})
	}, func(v *letter) {
		members, note, changed := name.without(v.Item, v.Notice)
		if changed {
			n++
			it := *v.Item
			it.Members, v.Item, v.Notice = members, &it, note
		}
	})
}

// forget takes a run out of what was delivered. each is called with where it was.
func (s *sentLog) forget(name runName, each func(target)) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range sentNames(s.dir) {
		before := n
		var out []byte
		err := readLog(path, func(body []byte) error {
			var v sentNote
			if json.Unmarshal(body, &v) != nil || v.Item == nil || v.Notice == nil {
				return nil // what cannot be read is not kept, either
			}
			if name.of(v.Item) {
				n++
				each(v.Item.Target)
				return nil
			}
			members, note, changed := name.without(v.Item, v.Notice)
			if changed {
				n++
				each(v.Item.Target)
				if note == nil {
					return nil
				}
				v.Item.Members, v.Notice = members, note
				b, err := json.Marshal(v)
				if err != nil {
					return err
				}
				body = b
			}
			out = appendLine(out, body)
			return nil
		})
		if err != nil {
			return n, fmt.Errorf("read what was sent: %w", err)
		}
		if n == before {
			continue
		}
		if err := replaceLog(path, out, s.log, func(l *lineLog) { s.log = l }); err != nil {
			return n, err
		}
	}
	return n, nil
}

func eachEvent(dir string, fn func(id string, e *consume.Dead) error) error {
	letters := consume.OpenLetters(dir)
	ids, err := letters.IDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		e, err := letters.Read(id)
		if err != nil {
			continue // it is listed by cbcast notify dead
		}
		if err := fn(id, e); err != nil {
			return err
		}
	}
	return nil
}

func forgetEvents(dir string, name runName) (n int, err error) {
	letters := consume.OpenLetters(dir)
	err = eachEvent(dir, func(id string, e *consume.Dead) error {
		if e.Run != name.run || e.Tenant != name.tenant {
			return nil
		}
		n++
		return letters.Remove(id)
	})
	return n, err
}

// forgetButtons takes a run's buttons out of each Slack app's directory, in use or not.
func (d *desk) forgetButtons(name runName) error {
	dirs, err := filepath.Glob(filepath.Join(d.dir, slackDir("*")))
	if err != nil {
		return err
	}
	d.mu.Lock()
	open := map[string]*sink.Slack{}
	for dest, h := range d.sinks {
		if s, ok := h.Sink.(*sink.Slack); ok {
			open[filepath.Join(d.dir, slackDir(dest))] = s
		}
	}
	d.mu.Unlock()
	var errs []error
	for _, dir := range dirs {
		if s := open[dir]; s != nil {
			errs = append(errs, s.Forget(name.tenant, name.run))
			delete(open, dir)
			continue
		}
		errs = append(errs, sink.ForgetButtons(dir, name.tenant, name.run))
	}
	return errors.Join(errs...)
}

// slackDir is the directory of a Slack app's buttons.
func slackDir(dest string) string { return "slack-" + dest }
