package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// A Finding is what is known to go wrong before anything is sent.
type Finding struct {
	// Here says that it may be another thing where notify runs: a secret or a program is
	// not on this machine.
	Here bool
	Text string

	err error
}

// Inspect looks at a rules file and says everything that can be known to be wrong with it
// without sending. r is what can be used of it, nil where nothing can.
func Inspect(path string, o Options) (r *Rules, all []Finding) {
	r, errs := readFile(path)
	for _, e := range errs {
		all = append(all, Finding{Text: e.Error(), err: e})
	}
	for _, e := range o.Config.wrong() {
		all = append(all, Finding{Text: e.Error(), err: e})
	}
	if r == nil {
		return nil, all
	}
	all = append(all, r.Findings(o)...)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.line(), b.line()) })
	if len(errs) > 0 {
		return nil, all
	}
	return r, all
}

func (f *Finding) line() int {
	var fe *FileError
	if errors.As(f.err, &fe) {
		return fe.Line
	}
	return 0
}

// Findings looks at what can be known of rules without sending. Options.Env is asked for
// secrets, and for PATH.
func (r *Rules) Findings(o Options) (all []Finding) {
	add := func(here bool, e error) {
		if !slices.ContainsFunc(all, func(f Finding) bool { return f.Text == e.Error() }) {
			all = append(all, Finding{Here: here, Text: e.Error(), err: e})
		}
	}
	o.Actor = nil
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Destinations)) {
		r.look(name, o, add)
	}
	var end *Rule // takes everything
	for i, rule := range r.Rules {
		if rule == nil {
			continue
		}
		at := fmt.Sprintf("/rules/%d", i)
		wrong := func(key, format string, args ...any) {
			add(false, r.problem(at+key, "rule %s: %s", rule.Name, fmt.Sprintf(format, args...)))
		}
		if end != nil {
			wrong("", "is never reached: %s before it takes every notice, and does not say continue", end.Name)
			continue
		}
		for n, m := range []*Match{rule.Match, rule.Except} {
			if m == nil {
				continue
			}
			key := []string{"/match", "/except"}[n]
			if d := m.Duration; d.Max > 0 && d.Min > d.Max {
				wrong(key+"/duration", "duration: min is over max: nothing is matched")
			}
			if c := m.Cost; c.Max > 0 && c.Min > c.Max {
				wrong(key+"/cost", "cost: min is over max: nothing is matched")
			}
		}
		if g := rule.Group; g != nil && g.Interval > 0 && g.Interval < g.Wait {
			wrong("/group", "group: interval is less than wait: it does nothing")
		}
		if rule.Except == nil && rule.Match.everything() && !rule.Continue {
			end = rule
		}
	}
	return all
}

// everything reports whether a match holds for each notice.
func (m *Match) everything() bool {
	return m == nil || len(m.Tenant)+len(m.Kind)+len(m.Dialect)+len(m.Workflow)+len(m.Verdict)+len(m.CI) == 0 &&
		m.Duration.Min+m.Duration.Max == 0 && m.Cost.Min+m.Cost.Max == 0
}

// look says what is wrong with one destination.
func (r *Rules) look(name string, o Options, add func(here bool, e error)) {
	d := r.Destinations[name]
	say := func(here bool, hidden *sink.Hidden, err error) {
		for _, e := range r.about(name, hidden, err) {
			add(here, e)
		}
	}
	set, err := d.resolved(o.Env)
	if err != nil {
		say(false, nil, err)
		return
	}
	for _, e := range set.bad {
		say(true, set.hidden, e)
	}
	opened, err := set.open(name, o)
	if err != nil {
		for _, e := range each(err) {
			if !slices.ContainsFunc(set.bad, func(b *sink.SettingError) bool { return errors.Is(e, b) }) {
				say(false, set.hidden, e)
			}
		}
	} else if err := opened.Close(); err != nil {
		say(false, set.hidden, err)
	}
	var s settings
	if json.Unmarshal(set.raw, &s) != nil {
		return // said when it was opened
	}
	if guard, err := sink.NewGuard(s.Allow, ""); err == nil {
		for _, at := range [...][2]string{{"url", s.URL}, {"api", s.API}, {"host", s.Host}} {
			if key, v := at[0], at[1]; v != "" && !set.unknown(key) {
				if err := guard.Refuses(v); err != nil {
					say(false, set.hidden, &sink.SettingError{Key: key, Err: err})
				}
			}
		}
	}
	if s.Type == "command" && len(s.Argv) > 0 {
		if err := program(s.Argv[0], o.Env); err != nil {
			say(true, set.hidden, &sink.SettingError{Key: "argv", Err: err})
		}
	}
	for key, what := range d.idle(&s) {
		say(false, set.hidden, &sink.SettingError{Key: key, Err: errors.New(what)})
	}
}

// HasButtons reports whether people can click anything anywhere.
func (r *Rules) HasButtons() bool {
	for _, d := range r.Destinations {
		var s settings
		if json.Unmarshal(d.settings, &s) == nil && s.Type == "slack" && len(s.Users) > 0 && (s.AppToken != "" || s.SigningSecret != "") {
			return true
		}
	}
	return false
}

// idle lists settings that do nothing without others.
func (d *Destination) idle(s *settings) map[string]string {
	hears := s.AppToken != "" || s.SigningSecret != ""
	switch {
	case s.Type == "slack" && len(s.Users) > 0 && !hears:
		return map[string]string{"users": "users does nothing without app_token or signing_secret: clicks have no way here, so there are no buttons"}
	case s.Type == "slack" && len(s.Users) == 0 && s.AppToken != "":
		return map[string]string{"app_token": "app_token does nothing without users: nobody may click, so there are no buttons"}
	case s.Type == "slack" && len(s.Users) == 0 && s.SigningSecret != "":
		return map[string]string{"signing_secret": "signing_secret does nothing without users: nobody may click, so there are no buttons"}
	}
	return nil
}

// program says why a command's first word is no program here.
func program(name string, env Lookup) error {
	dirs := []string{""}
	if !strings.Contains(name, "/") {
		path := ""
		if env != nil {
			path, _ = env("PATH")
		}
		dirs = filepath.SplitList(path)
	}
	for _, dir := range dirs {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return nil
		}
	}
	if strings.Contains(name, "/") {
		return fmt.Errorf("argv: %s is no program", name)
	}
	return errors.New("argv: there is no program " + name + " in PATH")
}
