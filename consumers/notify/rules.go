package notify

import (
	"encoding/json"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// Rules is a rules file, read and checked.
type Rules struct {
	Version   int    `json:"version"`
	PublicURL string `json:"public_url,omitempty"`
	// Owner are the destinations that are told when another one is gone.
	Owner list `json:"owner,omitempty"`
	// MaxAge is how old the cause of a notice may be when it is decided on.
	MaxAge       Duration                `json:"max_age,omitempty"`
	Destinations map[string]*Destination `json:"destinations"`
	Quiet        map[string]*Quiet       `json:"quiet,omitempty"`
	Rules        []*Rule                 `json:"rules"`

	sum  [32]byte // of the file
	name string   // of the file
	doc  *document
}

// A Destination is where notices go: how it is reached, and how hard it is tried.
type Destination struct {
	Type  string `json:"type"`
	Retry struct {
		Ladder []Duration `json:"ladder,omitempty"`
		MaxAge Duration   `json:"max_age,omitempty"`
	} `json:"retry,omitzero"`
	Rate struct {
		Every Duration `json:"every,omitempty"`
		Burst int      `json:"burst,omitempty"`
	} `json:"rate,omitzero"`
	Queue int `json:"queue,omitempty"`
	// Merge is from how many waiting notices on one is sent for all, 0 for never; nil is
	// the type's own.
	Merge *int `json:"merge,omitempty"`

	// settings is the whole entry as JSON: what its type needs beside the above.
	settings json.RawMessage
	// cut are keys of it that are wrong, where the file is only looked at.
	cut []string
}

// A Rule says which notices go where. Rules are tried from the first on; one that
// matches is the last, unless it says continue.
type Rule struct {
	Name     string   `json:"name"`
	Match    *Match   `json:"match,omitempty"`
	Except   *Match   `json:"except,omitempty"`
	To       []Target `json:"to"`
	Mention  string   `json:"mention,omitempty"`
	Continue bool     `json:"continue,omitempty"`
	Group    *Group   `json:"group,omitempty"`
	Digest   Duration `json:"digest,omitempty"`
	Quiet    list     `json:"quiet,omitempty"`
	Pass     list     `json:"pass,omitempty"` // kinds that quiet does not hold back
	Waiting  *Waiting `json:"waiting,omitempty"`

	quiet []*Quiet
}

// A Target is a destination, or a place within one.
type Target struct {
	Destination string `json:"destination"`
	At          string `json:"at,omitempty"`
}

// UnmarshalJSON takes a name alone, too.
func (t *Target) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.Destination)
	}
	type plain Target
	return json.Unmarshal(b, (*plain)(t))
}

func (t Target) target() target { return target{t.Destination, t.At} }

// A Match holds for a notice of which everything named is true. Lists hold where
// one of their entries does; * and ? stand for text as in file names.
type Match struct {
	Tenant   list            `json:"tenant,omitempty"`
	Kind     list            `json:"kind,omitempty"`
	Dialect  list            `json:"dialect,omitempty"`
	Workflow list            `json:"workflow,omitempty"`
	Verdict  list            `json:"verdict,omitempty"`
	CI       map[string]list `json:"ci,omitempty"`
	Duration struct {
		Min Duration `json:"min,omitempty"`
		Max Duration `json:"max,omitempty"`
	} `json:"duration,omitzero"`
	Cost struct {
		Min float64 `json:"min,omitempty"`
		Max float64 `json:"max,omitempty"`
	} `json:"cost,omitzero"`
}

// A Group collects notices that have the values of By in common: the first is told
// after Wait with all that came meanwhile, the next not before Interval. What still
// holds is told again after each Repeat.
type Group struct {
	By       list     `json:"by,omitempty"`
	Wait     Duration `json:"wait,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	Repeat   Duration `json:"repeat,omitempty"`
}

// Waiting says when an ask that nobody answers is told again, and when to others.
type Waiting struct {
	Remind   []Duration `json:"remind,omitempty"` // behind the notice, each
	Escalate *Escalate  `json:"escalate,omitempty"`
}

// Escalate names others who are told, and when.
type Escalate struct {
	After   Duration `json:"after"`
	To      []Target `json:"to,omitempty"`
	Mention string   `json:"mention,omitempty"`
}

// list is one text or several.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*l = make(list, 1)
		return json.Unmarshal(b, &(*l)[0])
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// facts is what a rule can look at.
type facts struct {
	kind     sink.Kind
	tenant   string
	dialect  string
	workflow []string
	verdict  string
	ci       map[string]string
	duration time.Duration
	cost     float64
}

// matches reports whether the rule is for a notice.
func (r *Rule) matches(f *facts) bool {
	return (r.Match == nil || r.Match.holds(f)) && (r.Except == nil || !r.Except.holds(f))
}

func (m *Match) holds(f *facts) bool {
	switch {
	case len(m.Kind) > 0 && !m.Kind.has(string(f.kind)),
		len(m.Tenant) > 0 && !m.Tenant.matches(f.tenant),
		len(m.Dialect) > 0 && !m.Dialect.has(f.dialect),
		len(m.Verdict) > 0 && !m.Verdict.has(f.verdict),
		len(m.Workflow) > 0 && !m.Workflow.matches(f.workflow...),
		m.Duration.Min > 0 && f.duration < time.Duration(m.Duration.Min),
		m.Duration.Max > 0 && f.duration > time.Duration(m.Duration.Max),
		m.Cost.Min > 0 && f.cost < m.Cost.Min,
		m.Cost.Max > 0 && f.cost > m.Cost.Max:
		return false
	}
	for label, want := range m.CI {
		if !want.matches(ciLabel(f.ci, label)) {
			return false
		}
	}
	return true
}

// ciLabel is a label by its name, with or without the "ci" that all begin with.
func ciLabel(ci map[string]string, name string) string {
	if v, ok := ci[name]; ok {
		return v
	}
	return ci["ci"+name]
}

func (l list) has(v string) bool {
	for _, w := range l {
		if w == v {
			return true
		}
	}
	return false
}

func (l list) matches(values ...string) bool {
	for _, p := range l {
		for _, v := range values {
			if glob(p, v) {
				return true
			}
		}
	}
	return false
}

// glob matches * and ? in p against all of s.
func glob(p, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// groupKey is what notices that are told together have in common.
func (r *Rule) groupKey(f *facts, t target) string {
	if r.Group == nil {
		return ""
	}
	key := r.Name + "\x00" + t.key()
	for _, by := range r.Group.By {
		v := ""
		switch by {
		case "tenant":
			v = f.tenant
		case "kind":
			v = string(f.kind)
		case "dialect":
			v = f.dialect
		case "verdict":
			v = f.verdict
		case "workflow":
			if len(f.workflow) > 0 {
				v = f.workflow[0]
			}
		default:
			v = ciLabel(f.ci, by)
		}
		key += "\x00" + v
	}
	return key
}
