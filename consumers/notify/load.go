package notify

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// maxRulesFile bounds a rules file in bytes.
const maxRulesFile = 1 << 20

// LoadFile reads and checks a rules file. What is wrong with it is a [*FileError]
// each, joined.
func LoadFile(path string) (*Rules, error) {
	data, err := readRegular(path, maxRulesFile)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return Load(data, path)
}

// readRegular reads a file of at most limit bytes. Of a pipe and a device nobody knows
// when they end, and opening one may wait.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes, too many for it", path, limit)
	}
	return data, err
}

// Load is [LoadFile] for bytes; name stands in errors.
func Load(data []byte, name string) (*Rules, error) {
	r, errs := load(data)
	for _, e := range errs {
		var fe *FileError
		if errors.As(e, &fe) {
			fe.Name = name
		}
	}
	return r, errors.Join(errs...)
}

func load(data []byte) (*Rules, []error) {
	doc, err := readYAML(data)
	if err != nil {
		return nil, []error{err}
	}
	s, err := compiled()
	if err != nil {
		return nil, []error{fmt.Errorf("schema of rules: %w", err)}
	}
	if bad := s.check(doc.value, ""); len(bad) > 0 {
		return nil, doc.explain(bad)
	}
	raw, err := json.Marshal(doc.value)
	if err != nil {
		return nil, []error{err}
	}
	r := &Rules{sum: sha256.Sum256(raw)}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, []error{fmt.Errorf("read rules: %w", err)}
	}
	var parts struct {
		Destinations map[string]json.RawMessage `json:"destinations"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, []error{err}
	}
	for name, d := range r.Destinations {
		d.settings = parts.Destinations[name]
	}
	c := &checker{doc: doc, r: r}
	c.check()
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return r, nil
}

// A checker looks at what a schema cannot say.
type checker struct {
	doc  *document
	r    *Rules
	errs []error
}

func (c *checker) fail(at, format string, args ...any) {
	c.errs = append(c.errs, &FileError{Place: c.doc.places[at], What: fmt.Sprintf(format, args...)})
}

func (c *checker) check() {
	r := c.r
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
		if names[rule.Name] {
			c.fail(at+"/name", "there is a rule %q already: give this one another name", rule.Name)
		}
		names[rule.Name] = true
		c.rule(at, rule)
	}
}

func (c *checker) destination(at, or, name string) {
	if c.r.Destinations[name] != nil {
		return
	}
	if _, ok := c.doc.places[at]; !ok {
		at = or
	}
	c.fail(at, "there is no destination %q: it is one of %s", name, strings.Join(slices.Sorted(maps.Keys(c.r.Destinations)), ", "))
}

func (c *checker) targets(at string, to []Target) {
	for i, t := range to {
		c.destination(fmt.Sprintf("%s/%d", at, i), at, t.Destination)
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
			c.fail(p, "%q is not known here: it is one of %s", w, strings.Join(known, ", "))
		}
	}
}

func (c *checker) rule(at string, r *Rule) {
	for name, m := range map[string]*Match{"match": r.Match, "except": r.Except} {
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
		for label := range m.CI {
			if !ciLabels.has(strings.TrimPrefix(label, "ci")) {
				c.fail(at+"/"+name+"/ci/"+pointer(label)+"#", "%q is no label of a CI job: it is one of %s", label, strings.Join(ciLabels, ", "))
			}
		}
	}
	c.targets(at+"/to", r.To)
	c.words(at+"/pass", r.Pass, passKinds)
	for i, name := range r.Quiet {
		q := c.r.Quiet[name]
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
