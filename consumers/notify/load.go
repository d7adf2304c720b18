package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/run"
)

// maxRulesFile bounds a rules file in bytes.
const maxRulesFile = 1 << 20

// LoadFile reads and checks a rules file. What is wrong with it is a [*FileError]
// each, joined.
func LoadFile(path string) (*Rules, error) {
	r, errs := readFile(path)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// readFile returns also of a file that is wrong what can be used of it, for more to be
// said about that. Such rules are not for use.
func readFile(path string) (*Rules, []error) {
	data, err := durable.ReadRegular(path, maxRulesFile)
	if err != nil {
		return nil, []error{fmt.Errorf("read rules: %w", err)}
	}
	return read(data, path)
}

// Load is [LoadFile] for bytes; name stands in errors.
func Load(data []byte, name string) (*Rules, error) {
	r, errs := read(data, name)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

func read(data []byte, name string) (*Rules, []error) {
	r, errs := load(data)
	if r != nil {
		r.name = name
	}
	for _, e := range errs {
		var fe *FileError
		if errors.As(e, &fe) {
			fe.Name = name
		}
	}
	return r, inOrder(errs)
}

// inOrder sorts errors by where they are in the file, and drops what is said twice.
func inOrder(errs []error) []error {
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *FileError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(x.Line-y.Line, x.Column-y.Column)
	})
	return slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })
}

// load reads all that it can. With errors the rules lack what these are about.
func load(data []byte) (*Rules, []error) {
	doc, errs := readYAML(data)
	if doc == nil {
		return nil, errs
	}
	s, err := compiled()
	if err != nil {
		return nil, []error{fmt.Errorf("schema of rules: %w", err)}
	}
	bad := s.check(doc.value, "")
	bad = append(bad, s.durations(doc.value, "")...)
	errs = append(errs, doc.explain(bad)...)
	top, ok := doc.value.(map[string]any)
	if !ok {
		return nil, errs
	}
	wrong := slices.Clone(doc.bad)
	for _, v := range bad {
		wrong = append(wrong, v.At)
	}
	rest, cut := whole(top, wrong)
	raw, err := json.Marshal(rest)
	if err != nil {
		return nil, append(errs, err)
	}
	r := &Rules{sum: sha256.Sum256(raw), doc: doc}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, append(errs, fmt.Errorf("read rules: %w", err))
	}
	var parts struct {
		Destinations map[string]json.RawMessage `json:"destinations"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, append(errs, err)
	}
	for name, d := range r.Destinations {
		d.settings, d.cut = parts.Destinations[name], cut[name]
	}
	c := &checker{doc: doc, r: r, destinations: keysOf(top["destinations"]), quiet: keysOf(top["quiet"])}
	c.check()
	return r, append(errs, c.errs...)
}

func keysOf(v any) map[string]bool {
	m, _ := v.(map[string]any)
	names := map[string]bool{}
	for name := range m {
		names[name] = true
	}
	return names
}

// whole is the document without what is wrong: of destinations, quiet hours and rules
// each alone. A rule that is wrong is null, so that the others keep their places. Of
// destinations that lack only what is wrong with some keys, cut lists these.
func whole(top map[string]any, wrong []string) (rest map[string]any, cut map[string][]string) {
	cut = map[string][]string{}
	broken := func(at string) bool {
		return slices.ContainsFunc(wrong, func(w string) bool { return w == at || strings.HasPrefix(w, at+"/") })
	}
	out := map[string]any{}
	for key, v := range top {
		at := "/" + pointer(key)
		switch v := v.(type) {
		case map[string]any:
			m := map[string]any{}
			for name, e := range v {
				entry, object := e.(map[string]any)
				at := at + "/" + pointer(name)
				switch {
				case !object || key != "destinations" && broken(at) || slices.Contains(wrong, at):
					continue
				case broken(at):
					entry = maps.Clone(entry)
					for k := range entry {
						if broken(at + "/" + pointer(k)) {
							cut[name] = append(cut[name], k)
							delete(entry, k)
						}
					}
				}
				if entry["type"] != nil || key != "destinations" {
					m[name] = entry
				}
			}
			out[key] = m
		case []any:
			list := slices.Clone(v)
			if key != "rules" && broken(at) {
				continue
			}
			for i := range list {
				if broken(fmt.Sprintf("%s/%d", at, i)) {
					list[i] = nil
				}
			}
			out[key] = list
		default:
			if !broken(at) {
				out[key] = v
			}
		}
	}
	return out, cut
}

// A checker looks at what a schema cannot say.
type checker struct {
	doc  *document
	r    *Rules
	errs []error

	destinations, quiet map[string]bool // all names, also of those that are wrong
}

func (c *checker) fail(at, format string, args ...any) {
	c.errs = append(c.errs, &FileError{Place: c.doc.places[at], What: fmt.Sprintf(format, args...)})
}

func (c *checker) check() {
	r := c.r
	if r.PublicURL != "" {
		u, err := url.Parse(r.PublicURL)
		switch {
		case err != nil || u.Host == "":
			c.fail("/public_url", "public_url is no URL with a host: write one like https://cbcast.example.com")
		case u.User != nil:
			c.fail("/public_url", "public_url has a user in it, whom everybody would see: remove user and password")
		}
	}
	for i, o := range r.Owner {
		c.destination(fmt.Sprintf("/owner/%d", i), "/owner", o)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Quiet)) {
		if err := r.Quiet[name].init(); err != nil {
			c.fail("/quiet/"+pointer(name)+"/zone", "quiet.%s: %v", name, err)
		}
	}
	names := map[string]bool{}
	for i, rule := range r.Rules {
		at := fmt.Sprintf("/rules/%d", i)
		if rule == nil {
			continue
		}
		if names[rule.Name] {
			c.fail(at+"/name", "there is a rule %q already: give this one another name", rule.Name)
		}
		names[rule.Name] = true
		c.rule(at, rule)
	}
}

func (c *checker) destination(at, or, name string) {
	if c.destinations[name] {
		return
	}
	if _, ok := c.doc.places[at]; !ok {
		at = or
	}
	c.fail(at, "there is no destination %q: it is one of %s", name, strings.Join(slices.Sorted(maps.Keys(c.destinations)), ", "))
}

func (c *checker) targets(at string, to []Target) {
	for i, t := range to {
		c.destination(fmt.Sprintf("%s/%d", at, i), at, t.Destination)
		if d := c.r.Destinations[t.Destination]; d != nil && d.Type == "email" && t.At != "" {
			if err := sink.CheckAddresses(t.At); err != nil {
				c.fail(fmt.Sprintf("%s/%d/at", at, i), "%s.at: %v", where(fmt.Sprintf("%s/%d", at, i)), err)
			}
		}
	}
}

// The words that rules may use.
var (
	ruleKinds = list{string(sink.Finished), string(sink.Failed), string(sink.Lost), string(sink.Waiting), string(sink.Stalled), string(sink.Interrupted), string(sink.Answered)}
	passKinds = append(slices.Clone(ruleKinds), string(sink.Reminder), string(sink.Escalated), string(sink.Resumed))
	dialects  = list{"claude", "cbc", "codex", "unknown"}
	groupBy   = list{"tenant", "kind", "dialect", "workflow", "verdict"}
	ciLabels  = list{"provider", "repo", "ref", "sha", "workflow", "job", "run", "attempt", "event", "actor", "url"}
)

func (c *checker) words(at string, got, known list) {
	for i, w := range got {
		if !known.has(w) {
			p := fmt.Sprintf("%s/%d", at, i)
			if _, ok := c.doc.places[p]; !ok {
				p = at
			}
			c.fail(p, "%q is not known here: it is one of %s", shown(w), strings.Join(known, ", "))
		}
	}
}

func (c *checker) rule(at string, r *Rule) {
	for _, name := range []string{"match", "except"} {
		m := r.Match
		if name == "except" {
			m = r.Except
		}
		if m == nil {
			continue
		}
		verdicts := list{}
		for _, v := range run.Verdicts {
			verdicts = append(verdicts, string(v))
		}
		c.words(at+"/"+name+"/kind", m.Kind, ruleKinds)
		c.words(at+"/"+name+"/dialect", m.Dialect, dialects)
		c.words(at+"/"+name+"/verdict", m.Verdict, verdicts)
		for _, label := range slices.Sorted(maps.Keys(m.CI)) {
			if !ciLabels.has(strings.TrimPrefix(label, "ci")) {
				c.fail(at+"/"+name+"/ci/"+pointer(label)+"#", "%q is no label of a CI job: it is one of %s", label, strings.Join(ciLabels, ", "))
			}
		}
	}
	c.targets(at+"/to", r.To)
	c.words(at+"/pass", r.Pass, passKinds)
	for i, name := range r.Quiet {
		q := c.r.Quiet[name]
		if q == nil && c.quiet[name] {
			continue
		}
		if q == nil {
			p := fmt.Sprintf("%s/quiet/%d", at, i)
			if _, ok := c.doc.places[p]; !ok {
				p = at + "/quiet"
			}
			c.fail(p, "there are no quiet hours %q: define them under quiet", name)
			continue
		}
		r.quiet = append(r.quiet, q)
	}
	if r.Digest > 0 {
		if r.Group != nil && (r.Group.Wait > 0 || r.Group.Interval > 0) {
			c.fail(at+"/digest", "a rule has a digest, or a wait and an interval in group: remove one of them")
		}
		if r.Group == nil {
			r.Group = &Group{}
		}
		r.Group.Wait, r.Group.Interval = r.Digest, r.Digest
	}
	if r.Group != nil {
		for i, by := range r.Group.By {
			if !groupBy.has(by) && !ciLabels.has(strings.TrimPrefix(by, "ci")) {
				c.fail(fmt.Sprintf("%s/group/by/%d", at, i), "%q is nothing to group by: use %s, or a label of the CI job", by, strings.Join(groupBy, ", "))
			}
		}
	}
	if w := r.Waiting; w != nil {
		for i := 1; i < len(w.Remind); i++ {
			if w.Remind[i] <= w.Remind[i-1] {
				c.fail(fmt.Sprintf("%s/waiting/remind/%d", at, i), "times of reminders count from the first notice and rise: put them in order")
			}
		}
		if w.Escalate != nil {
			c.targets(at+"/waiting/escalate/to", w.Escalate.To)
		}
	}
}
