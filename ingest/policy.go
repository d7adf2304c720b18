package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A Policy decides asks without a person: by rules as soon as they come, and
// after a time when nobody has answered. The zero Policy decides nothing.
type Policy struct {
	// Timeouts are by class: approval, question.
	Timeouts map[string]Timeout `json:"timeouts"`
	// Rules are tried in order; the first that matches counts.
	Rules []Rule `json:"rules"`
}

// Timeout is what becomes of an ask that nobody answers.
type Timeout struct {
	After string `json:"after"` // 30m, 1h30m
	Then  string `json:"then"`  // deny or leave
	// Interrupt ends the turn with the denial. It does unless it is false: an
	// agent that is only told no asks the same again.
	Interrupt *bool  `json:"interrupt"`
	Message   string `json:"message"`

	after time.Duration
}

// Rule decides the asks that match all of what it names.
type Rule struct {
	Name    string `json:"name"`
	Tool    string `json:"tool"`    // pattern of path.Match
	Command string `json:"command"` // RE2, of the whole command
	Repo    string `json:"repo"`    // pattern of the CI's repository
	Tenant  string `json:"tenant"`  // pattern
	Then    string `json:"then"`    // allow, deny, or ask: a person decides
	Message string `json:"message"` // told to the agent with a denial

	re *regexp.Regexp
}

// Bounds of a policy.
const (
	maxRules  = 1000
	minAfter  = time.Second
	maxPolicy = 1 << 20
)

// LoadPolicy reads the policy that c names; it is nil where c names none.
func (c *Config) LoadPolicy() (*Policy, error) {
	if c.Policy == "" {
		return nil, nil
	}
	f, err := os.OpenFile(c.Policy, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that nobody writes to holds up nothing
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s: it is no regular file", c.Policy))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, err
	}
	p, err := ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy, err)
	}
	return p, nil
}

// ParsePolicy reads a policy from JSON. A key that it does not know is an error:
// half a rule would decide what it was not meant for.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPolicy)
	}
	if err := strict(text); err != nil {
		return nil, err
	}
	p := &Policy{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the object")
	}
	if len(p.Rules) > maxRules {
		return nil, fmt.Errorf("it has more than %d rules", maxRules)
	}
	for class, t := range p.Timeouts {
		if err := t.check(class); err != nil {
			return nil, fmt.Errorf("timeout %q: %w", class, err)
		}
		p.Timeouts[class] = t
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Name == "" {
			r.Name = strconv.Itoa(i + 1)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
	}
	return p, nil
}

func (t *Timeout) check(class string) (err error) {
	if class != run.Approval && class != run.Question {
		return errors.New("use approval or question")
	}
	if t.after, err = time.ParseDuration(t.After); err != nil || t.after < minAfter {
		return fmt.Errorf("after %q: use a time of %s or more, as 30m", t.After, minAfter)
	}
	if t.Then != event.Deny && t.Then != "leave" {
		return fmt.Errorf("then %q: use deny or leave", t.Then)
	}
	return nil
}

func (r *Rule) check() (err error) {
	for name, pattern := range map[string]string{"tool": r.Tool, "repo": r.Repo, "tenant": r.Tenant} {
		if _, err := path.Match(flat(pattern), ""); err != nil {
			return fmt.Errorf("%s %q: %w", name, pattern, err)
		}
	}
	if r.Then != event.Allow && r.Then != event.Deny && r.Then != "ask" {
		return fmt.Errorf("then %q: use allow, deny or ask", r.Then)
	}
	if r.Command == "" {
		return nil
	}
	// By itself: "a)|(b" would leave the group that makes it whole.
	if _, err := regexp.Compile(r.Command); err != nil {
		return fmt.Errorf("command: %w", err)
	}
	// A yes is for the whole of a command, in one line: "git status" is not for
	// "git status; rm -rf /". A no may match across lines.
	flags := "(?s)"
	if r.Then == event.Allow {
		flags = ""
	}
	if r.re, err = regexp.Compile(flags + `\A(?:` + r.Command + `)\z`); err != nil {
		return fmt.Errorf("command: %w", err)
	}
	return nil
}

// policy is a Policy as one run sees it.
type policy struct {
	*Policy
	repo, tenant string
}

// rule returns the rule that decides an ask at once, nil where a person does.
func (p *policy) rule(q *dialect.AskRequest) *Rule {
	tool, command := q.ToolName(), q.Command()
	for i := range p.Rules {
		r := &p.Rules[i]
		if !matches(r.Tool, tool) || !matches(r.Repo, p.repo) || !matches(r.Tenant, p.tenant) {
			continue
		}
		// A question is not answered by a yes: the next rule may deny it. A yes to a
		// command is none to what goes beyond it.
		if r.Then == event.Allow && (q.Class() == run.Question || r.re != nil && q.BeyondCommand()) {
			continue
		}
		switch {
		case r.re != nil && len(command) > maxCommand:
			return nil // who pads a command does not get past a rule
		case r.re != nil && (command == "" || !r.re.MatchString(command)):
			continue
		case r.Then == "ask":
			return nil
		}
		return r
	}
	return nil
}

// maxCommand bounds the commands that rules are tried on, in bytes: that is done
// while the run is held up. A longer one is for people.
const maxCommand = 64 << 10

func matches(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(flat(pattern), flat(s))
	return ok && err == nil
}

// flat makes a slash a character like any other: names of tools and repositories
// may have several, and a "*" means all of them.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
