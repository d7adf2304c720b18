package notify

import (
	"encoding/json"
	"errors"
	"fmt"
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
}

// Findings looks at what can be known of rules without sending. Options.Env is asked for
// secrets, and for PATH.
func (r *Rules) Findings(o Options) (all []Finding) {
	for _, name := range slices.Sorted(maps.Keys(r.Destinations)) {
		for _, f := range r.Destinations[name].findings(name, o) {
			f.Text = "destination " + name + ": " + f.Text
			all = append(all, f)
		}
	}
	wrong := func(r *Rule, format string, args ...any) {
		all = append(all, Finding{Text: "rule " + r.Name + ": " + fmt.Sprintf(format, args...)})
	}
	var end *Rule // takes everything
	for _, rule := range r.Rules {
		if end != nil {
			wrong(rule, "is never reached: %s before it takes every notice, and does not say continue", end.Name)
			continue
		}
		for _, m := range []*Match{rule.Match, rule.Except} {
			if m == nil {
				continue
			}
			if d := m.Duration; d.Max > 0 && d.Min > d.Max {
				wrong(rule, "duration: min is over max: nothing is matched")
			}
			if c := m.Cost; c.Max > 0 && c.Min > c.Max {
				wrong(rule, "cost: min is over max: nothing is matched")
			}
		}
		if g := rule.Group; g != nil && g.Interval > 0 && g.Interval < g.Wait {
			wrong(rule, "group: interval is less than wait: it does nothing")
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

func (d *Destination) findings(name string, o Options) (all []Finding) {
	var s settings
	if json.Unmarshal(d.settings, &s) != nil {
		return []Finding{{Text: "its settings cannot be read"}}
	}
	bad := func(err error) { all = append(all, Finding{Text: err.Error()}) }
	for _, err := range d.unresolved(o.Env) {
		all = append(all, Finding{Here: true, Text: err.Error()})
	}
	for n, secret := range s.Secrets {
		if v, err := resolve(secret, o.Env); err == nil {
			if err := sink.CheckSecret(v); err != nil {
				bad(fmt.Errorf("secret %d: %w", n+1, err))
			}
		}
	}
	if len(all) == 0 { // nothing is missing that it is opened with
		if err := d.usable(name, o); err != nil {
			bad(err)
		}
	}
	guard, err := sink.NewGuard(s.Allow, "")
	if err != nil {
		bad(err)
		return all
	}
	for _, at := range []string{s.URL, s.API, s.Host} {
		if v, err := resolve(at, o.Env); err == nil && v != "" {
			if err := guard.Refuses(v); err != nil {
				bad(err)
			}
		}
	}
	if s.Type == "command" && len(s.Argv) > 0 {
		if err := program(s.Argv[0], o.Env); err != nil {
			all = append(all, Finding{Here: true, Text: err.Error()})
		}
	}
	return all
}

// unresolved lists the references that stand for nothing here.
func (d *Destination) unresolved(env Lookup) []error {
	_, _, err := d.settled(env)
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err != nil {
		return []error{err}
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
