package notify

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// Schema is the JSON Schema of a rules file.
//
//go:embed schema.json
var Schema []byte

const schemaURL = "https://cbcast.dev/schema/notify-rules-1.json"

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
})

// maxRulesFile bounds a rules file in bytes.
const maxRulesFile = 1 << 20

// LoadFile reads and checks a rules file. What is wrong with it is a [*FileError]
// each, joined.
func LoadFile(path string) (*Rules, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	if info.Size() > maxRulesFile {
		return nil, fmt.Errorf("read rules %s: %d bytes are too many for a rules file", path, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return Load(data, path)
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
	var ve *jsonschema.ValidationError
	if err := s.Validate(doc.value); errors.As(err, &ve) {
		return nil, doc.explain(ve)
	} else if err != nil {
		return nil, []error{err}
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

// explain turns the validator's tree into one error for each thing to change.
func (d *document) explain(ve *jsonschema.ValidationError) (errs []error) {
	seen := map[string]bool{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				walk(c)
			}
			return
		}
		at := ""
		for _, part := range e.InstanceLocation {
			at += "/" + pointer(part)
		}
		for _, fe := range d.say(at, e) {
			if !seen[fe.Error()] {
				seen[fe.Error()] = true
				errs = append(errs, fe)
			}
		}
	}
	walk(ve)
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *FileError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return x.Line - y.Line
	})
	return errs
}

// where names a place for people: rules[2].match.kind.
func where(at string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	if b.Len() == 0 {
		return "the file"
	}
	return b.String()
}

func (d *document) say(at string, e *jsonschema.ValidationError) []*FileError {
	one := func(p Place, format string, args ...any) []*FileError {
		return []*FileError{{Place: p, What: fmt.Sprintf(format, args...)}}
	}
	p, name := d.places[at], where(at)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		var all []*FileError
		for _, prop := range k.Properties {
			all = append(all, one(d.places[at+"/"+pointer(prop)+"#"], "%q is no key of %s: remove it, or see cbcast notify --schema for those there are", prop, name)...)
		}
		return all
	case *kind.Required:
		return one(p, "%s lacks %s: add it", name, strings.Join(k.Missing, ", "))
	case *kind.Type:
		return one(p, "%s is a %s here: write a %s%s", name, k.Got, strings.Join(k.Want, " or a "), quoteHint(k))
	case *kind.Enum:
		return one(p, "%s is %v: write one of %s", name, k.Got, words(k.Want))
	case *kind.Const:
		return one(p, "%s is %v: write %v", name, k.Got, k.Want)
	case *kind.Pattern:
		return one(p, "%s is %q: %s", name, k.Got, patternHint(k.Want))
	case *kind.PropertyNames:
		return one(d.places[at+"/"+pointer(k.Property)+"#"], "%q cannot be a name in %s: use a-z, 0-9, - and _ (of users: ids like U012)", k.Property, name)
	case *kind.MinItems, *kind.MinProperties, *kind.MinLength:
		return one(p, "%s is empty: fill it in, or remove it", name)
	case *kind.MaxItems, *kind.MaxProperties, *kind.MaxLength:
		return one(p, "%s has too much in it: make it shorter", name)
	case *kind.Minimum:
		return one(p, "%s is too small: it must be at least %s", name, k.Want.RatString())
	case *kind.Maximum:
		return one(p, "%s is too large: it may be at most %s", name, k.Want.RatString())
	case *kind.UniqueItems:
		return one(p, "%s says the same twice: remove one", name)
	}
	return one(p, "%s cannot be used: see cbcast notify --schema", name)
}

func quoteHint(k *kind.Type) string {
	if k.Got == "number" && slices.Contains(k.Want, "string") {
		return " (a duration has a unit, like 30s; other texts stand in quotes)"
	}
	return ""
}

func patternHint(pattern string) string {
	switch {
	case strings.Contains(pattern, "ms|s|m|h"):
		return "write a duration like 30s, 15m, 2h or 1d"
	case strings.HasPrefix(pattern, "^https"):
		return "write a URL that begins with http:// or https://"
	case strings.Contains(pattern, "[0-5][0-9]"):
		return `write a time of day like "07:30"`
	}
	return "use a-z, 0-9, - and _, at most 63 of them"
}

func words(list []any) string {
	var all []string
	for _, v := range list {
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all, ", ")
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
