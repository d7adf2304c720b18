package metrics

import (
	"slices"
	"strings"
)

// Words of labels.
const (
	other   = "other"   // a value outside of its set
	none    = "none"    // there is none
	unknown = "unknown" // nothing said it
)

// maxLabel bounds a label's value, in bytes.
const maxLabel = 80

// clean makes any text a label's value: printable ASCII of bounded length. What is
// none of that becomes "_"; nothing at all becomes unknown.
func clean(v string) string {
	if v == "" {
		return unknown
	}
	if len(v) <= maxLabel && !strings.ContainsFunc(v, odd) {
		return v
	}
	b := []byte(v[:min(len(v), maxLabel)])
	for i, c := range b {
		if odd(rune(c)) {
			b[i] = '_'
		}
	}
	return string(b)
}

func odd(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' || r == '`' }

// A set bounds the values of a label: the first max that come have their own series.
type set struct {
	max  int
	seen map[string]bool
	raw  map[string]string // what came, and what it is as a label; no more than max
}

func newSet(limit int, known ...string) *set {
	s := &set{max: limit, seen: map[string]bool{}, raw: map[string]string{}}
	for _, k := range known {
		s.seen[k] = true
	}
	return s
}

func (s *set) of(v string) string {
	if l, ok := s.raw[v]; ok {
		return l
	}
	l := clean(v)
	if !s.seen[l] {
		if len(s.seen) >= s.max {
			return other
		}
		s.seen[l] = true
	}
	if len(v) <= maxLabel && len(s.raw) < s.max {
		s.raw[strings.Clone(v)] = l
	}
	return l
}

// Closed sets. What is outside of them is other.
var (
	dialects    = []string{"claude", "cbc", "codex", unknown}
	providers   = []string{"github", "gitlab", "jenkins", "buildkite", none}
	states      = []string{"starting", "working", "waiting", "idle", "lost"}
	askKinds    = []string{"permission", "plan", "question", "elicitation", "command", "file_change", "permissions"}
	askOutcomes = []string{"answered", "answered_local", "policy", "expired", "withdrawn", "cleared", "run_ended", unknown}
	statuses    = []string{
		"completed", "failed", "error", "killed", "stopped", "cancelled", "canceled", "ended", "not_reported", unknown,
	}
	agentStates = []string{"start", "progress", "done", "error", "stopped", "cached", "not_reported"}
	rungs       = []string{"interrupt", "stop_task", "sigterm", "sigkill", none}
	outcomes    = []string{"settled", "no_effect", "refused", "expired", "unknown"}
	stalls      = []string{"no_exit_after_end", "silent_turn", "open_ask", "stream_closed", "timeout", "max_idle"}
	gapReasons  = []string{"spool_full", "disk", "tap_full", "damaged", "oversize"}
	cmdNames    = []string{
		"interrupt", "stop_task", "answer", "message", "steer", "set_permission_mode", "set_model", "rewind", "rewind_files",
	}
)

func among(list []string, v string) string {
	if slices.Contains(list, v) {
		return v
	}
	return other
}

// sets are the bounded labels of one process.
type sets struct {
	tenants, models, tasks, rules, types *set
	repos, workflows                     []string
}

func newSets(c Config) *sets {
	return &sets{
		tenants: newSet(c.MaxTenants), models: newSet(c.MaxModels, unknown),
		tasks: newSet(32), rules: newSet(64), types: newSet(600),
		repos: c.Repos, workflows: c.Workflows,
	}
}

// allowed is the value of a label with a list of those that may be shown.
func allowed(list []string, v string) string {
	switch {
	case v == "":
		return none
	case slices.Contains(list, v):
		return clean(v)
	}
	return other
}
