package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// Check says what keeps the rules of o.Config from ever being used here, all of it: the
// file, and what its destinations are set to. Nothing is connected to, opened or kept.
func Check(o Options) error {
	r, errs := readFile(o.Config.Rules)
	if r != nil {
		errs = append(errs, r.usable(o)...)
	}
	return errors.Join(append(o.Config.wrong(), inOrder(errs)...)...)
}

// wrong lists what the environment says and cannot be.
func (c *Config) wrong() (errs []error) {
	if c.ToldAge < 0 || c.ToldAge > maxDuration {
		errs = append(errs, fmt.Errorf("CBCAST_NOTIFY_TOLD_AGE is %v: write how long it is remembered what was told, like 2160h (at most %s)", c.ToldAge, inDays(maxDuration)))
	}
	if c.Addr != "" {
		_, port, err := net.SplitHostPort(c.Addr)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
			errs = append(errs, fmt.Errorf("CBCAST_NOTIFY_ADDR is %q: write an address and a port, like 127.0.0.1:8422", shown(c.Addr)))
		}
	}
	if c.RelayURL != "" {
		u, err := url.Parse(c.RelayURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, errors.New("CBCAST_NOTIFY_RELAY_URL must begin with http:// or https:// and name a host"))
		}
	}
	return errs
}

// usable says what keeps destinations from being opened, without their secrets.
func (r *Rules) usable(o Options) (errs []error) {
	o.Actor = nil // so nothing is written
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Destinations)) {
		s, err := r.Destinations[name].resolved(o.Env)
		if err != nil {
			errs = append(errs, r.about(name, nil, err)...)
			continue
		}
		opened, err := s.open(name, o)
		if err != nil {
			errs = append(errs, r.about(name, s.hidden, err)...)
			continue
		}
		if err := opened.Close(); err != nil {
			errs = append(errs, r.about(name, s.hidden, err)...)
		}
	}
	return errs
}

// about says of what is wrong with a destination where in the file that stands, without
// its secrets.
func (r *Rules) about(name string, hidden *sink.Hidden, err error) (errs []error) {
	for _, e := range each(err) {
		errs = append(errs, r.problem("/destinations/"+pointer(name)+keyOf(e), "destination %s: %s", name, hidden.Clean(e.Error())))
	}
	return errs
}

func keyOf(err error) string {
	var at *sink.SettingError
	if errors.As(err, &at) {
		return "/" + at.Key
	}
	return ""
}

// problem is something wrong at a place of the file, or at the nearest around it that the
// file has.
func (r *Rules) problem(at, format string, args ...any) *FileError {
	e := &FileError{Name: r.name, Place: Place{1, 1}, What: fmt.Sprintf(format, args...)}
	if r.doc == nil {
		return e
	}
	for ; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if p, ok := r.doc.places[at]; ok {
			e.Place = p
			break
		}
	}
	return e
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
	set, err := d.resolved(o.Env)
	if err != nil {
		return TestResult{}, errors.Join(r.about(dest, nil, err)...)
	}
	o.Actor = nil // a test has no buttons, whose keys would be kept
	s, err := set.open(dest, o)
	if err != nil {
		return TestResult{}, errors.Join(r.about(dest, set.hidden, err)...)
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
	out := set.hidden.Outcome(s.Send(ctx, n))
	took := time.Since(began).Round(time.Millisecond)
	text := fmt.Sprintf("%s: %s in %v", dest, out.Verdict, took)
	if out.Err != nil {
		text += ": " + out.Err.Error()
	}
	if out.Note != "" {
		text += " (" + out.Note + ")"
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
