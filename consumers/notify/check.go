package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// Check says what keeps the rules of o.Config from ever being used here: the file, and
// what its destinations are set to. Nothing is connected to and nothing kept.
func Check(o Options) error {
	r, err := LoadFile(o.Config.Rules)
	if err != nil {
		return err
	}
	return r.usable(o)
}

// tempDir makes a directory for a moment: where such are, or, in an image that has no such
// place, beside what notify keeps.
func tempDir(beside, pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil || beside == "" {
		return dir, err
	}
	if err := os.MkdirAll(beside, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(beside, pattern)
}

// usable opens each destination once.
func (r *Rules) usable(o Options) error {
	dir, err := tempDir(o.Dir, "cbcast-notify-check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.Destinations)) {
		if err := r.Destinations[name].usable(name, o); err != nil {
			errs = append(errs, fmt.Errorf("destination %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// usable says why a destination cannot be opened, without its secrets.
func (d *Destination) usable(name string, o Options) error {
	settings, hidden, err := d.settled(o.Env)
	if err == nil {
		var s sink.Sink
		if s, err = openSink(name, settings, o); err == nil {
			return s.Close()
		}
	}
	clean := &scrubber{}
	clean.set(hidden)
	return errors.New(clean.clean(err.Error()))
}

// A TestResult says what became of a test.
type TestResult struct {
	Delivered bool
	Text      string
}

// testPatience bounds a test.
const testPatience = time.Minute

// Test sends one notice, marked as a test, to a destination: one attempt, nothing of
// it is kept.
func Test(ctx context.Context, r *Rules, dest string, o Options) (TestResult, error) {
	d := r.Destinations[dest]
	if d == nil {
		return TestResult{}, fmt.Errorf("%s: %w; they are %s", dest, ErrNoDestination, strings.Join(slices.Sorted(maps.Keys(r.Destinations)), ", "))
	}
	settings, hidden, err := d.settled(o.Env)
	if err != nil {
		return TestResult{}, fmt.Errorf("destination %s: %w", dest, err)
	}
	clean := &scrubber{}
	clean.set(hidden)
	dir, err := tempDir(o.Dir, "cbcast-notify-test")
	if err != nil {
		return TestResult{}, err
	}
	defer os.RemoveAll(dir)
	o.Dir = dir // what a sink keeps of a test is not what it keeps of runs
	s, err := openSink(dest, settings, o)
	if err != nil {
		return TestResult{}, fmt.Errorf("destination %s: %s", dest, clean.clean(err.Error()))
	}
	defer func() { _ = s.Close() }()
	now := time.Now().UTC()
	n := &sink.Notice{
		ID: fmt.Sprintf("test/%d", now.UnixNano()), Kind: sink.Test, Run: "test", Tenant: "test", At: now, Attempt: 1,
		Summary: run.Summary{State: "done"}, View: &run.View{Run: "test", State: "done"}, CI: map[string]string{},
		Note: "this is a test of cbcast notify",
	}
	n.Links.Run = linker(o.PublicURL, r.PublicURL)("", "test")
	ctx, cancel := context.WithTimeout(ctx, testPatience)
	defer cancel()
	began := time.Now()
	out := s.Send(ctx, n)
	took := time.Since(began).Round(time.Millisecond)
	text := fmt.Sprintf("%s: %s in %v", dest, out.Verdict, took)
	if out.Err != nil {
		text += ": " + clean.clean(out.Err.Error())
	}
	if out.Note != "" {
		text += " (" + clean.clean(out.Note) + ")"
	}
	if out.After > 0 {
		text += fmt.Sprintf("; it asks to be left alone for %v", out.After)
	}
	return TestResult{out.Verdict == sink.Delivered, text}, nil
}

// Pending is a notice that waits, or one that was given up, for people.
type Pending struct {
	ID          string    `json:"id"`
	Destination string    `json:"destination"`
	Kind        sink.Kind `json:"kind"`
	Tenant      string    `json:"tenant,omitempty"`
	Run         string    `json:"run,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Made        time.Time `json:"made"`
	Tries       int       `json:"tries"`
	Next        time.Time `json:"next,omitzero"`
	How         string    `json:"how,omitempty"`
	Why         string    `json:"why,omitempty"`
	At          time.Time `json:"at,omitzero"`
}

// A Picture is the state of a notify as its files say it.
type Picture struct {
	Items    []Pending `json:"items"`
	Watches  int       `json:"watches"`
	Letters  int       `json:"dead_letters"`
	Disabled []Off     `json:"disabled,omitempty"`
}

// Off is a destination that said it is gone.
type Off struct {
	Name string    `json:"name"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

// Look reads the state in dir, also while another process has it.
func Look(dir string) (*Picture, error) {
	st := newState()
	err := readLog(filepath.Join(dir, journalName), func(body []byte) error {
		var r record
		if err := json.Unmarshal(body, &r); err != nil {
			return err
		}
		st.apply(&r, len(body))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	p := &Picture{Items: []Pending{}, Watches: len(st.watches)}
	for _, it := range st.items {
		v := pendingOf(it)
		if it.Hold.After(v.Next) {
			v.Next = it.Hold
		}
		p.Items = append(p.Items, v)
	}
	slices.SortFunc(p.Items, func(a, b Pending) int { return a.Made.Compare(b.Made) })
	for _, d := range st.dests {
		p.Disabled = append(p.Disabled, Off{d.Name, d.Why, d.At})
	}
	list, err := Dead(dir)
	p.Letters = len(list)
	return p, err
}

// Dead lists the notices that were given up, the oldest first.
func Dead(dir string) ([]Pending, error) {
	list, err := readLetters(filepath.Join(dir, "undelivered", "letters.log"))
	if err != nil {
		return nil, fmt.Errorf("read what was given up: %w", err)
	}
	var all []Pending
	for _, l := range list {
		v := pendingOf(l.Item)
		v.How, v.Why, v.At = l.How, l.Why, l.At
		all = append(all, v)
	}
	return all, nil
}

func pendingOf(it *item) Pending {
	return Pending{
		ID: noticeID(it.ID), Destination: it.Target.key(), Kind: it.Kind, Tenant: it.Tenant, Run: it.Run, Rule: it.Rule, Made: it.Made,
		Tries: it.Tries, Next: it.Next,
	}
}
