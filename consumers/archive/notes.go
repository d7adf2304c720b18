package archive

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

// A Note is what the catalogue says of a run, as far as one segment tells. It is
// found from the records, is no part of the proof, and goes when the run is erased.
type Note struct {
	Run      string `json:"run"`
	Repo     string `json:"repo,omitempty"`     // of the CI job
	Workflow string `json:"workflow,omitempty"` // of the CI job
	Dialect  string `json:"dialect,omitempty"`

	// Decisions are the commands given to the run, answers among them, and what its
	// policy decided. MoreDecisions counts those that found no room.
	Decisions     []Decision `json:"decisions,omitempty"`
	MoreDecisions int        `json:"more_decisions,omitempty"`

	// Masked counts what redaction masked, by rule.
	Masked map[string]int64 `json:"masked,omitempty"`
}

// A Decision is one command, or what a policy decided.
type Decision struct {
	Time     time.Time `json:"time"`
	Command  string    `json:"command,omitempty"`
	Name     string    `json:"name"` // answer, interrupt …; policy
	Ask      string    `json:"ask,omitempty"`
	Decision string    `json:"decision,omitempty"` // of an answer: allow, deny, answer, vendor
	Actor    string    `json:"actor"`              // token name, "local", or "policy"
	For      string    `json:"for,omitempty"`      // on whose behalf
	From     string    `json:"from,omitempty"`     // address, or the rule of the policy
	Refused  string    `json:"refused,omitempty"`  // why it did not count
}

// Bounds of a note.
const (
	maxDecisions = 200
	maxRules     = 64
)

// empty reports whether a note says nothing.
func (n *Note) empty() bool {
	return n.Repo == "" && n.Workflow == "" && n.Dialect == "" && len(n.Decisions) == 0 && len(n.Masked) == 0
}

// add takes what an event says.
func (n *Note) add(e *event.Event) {
	for _, s := range e.Redacted {
		if n.Masked == nil {
			n.Masked = map[string]int64{}
		}
		if _, known := n.Masked[s.Rule]; known || len(n.Masked) < maxRules {
			n.Masked[s.Rule]++
		}
	}
	switch e.Type {
	case event.TypeStarted:
		var s event.Started
		if json.Unmarshal(e.Data, &s) == nil {
			n.Repo, n.Workflow, n.Dialect = s.CI["cirepo"], s.CI["ciworkflow"], s.Dialect
		}
	case event.TypeAudit:
		if d, ok := auditOf(e); ok {
			n.decide(d)
		}
	case event.TypeDecision:
		var a event.AutoDecided
		if json.Unmarshal(e.Data, &a) == nil {
			n.decide(Decision{
				Time: e.Time, Name: "policy", Ask: a.Ask, Decision: a.Decision, Actor: "policy",
				From: a.Cause + " " + a.Rule, Refused: a.Error,
			})
		}
	}
}

func (n *Note) decide(d Decision) {
	if len(n.Decisions) < maxDecisions {
		n.Decisions = append(n.Decisions, d)
	} else {
		n.MoreDecisions++
	}
}

func auditOf(e *event.Event) (d Decision, ok bool) {
	var a event.Audit
	if json.Unmarshal(e.Data, &a) != nil {
		return d, false
	}
	d = Decision{
		Time: e.Time, Command: a.Command, Name: a.Name, Actor: a.Actor, For: a.For, From: a.From, Refused: a.Refused,
	}
	if a.Args != nil && a.Args.Answer != nil {
		d.Ask, d.Decision = a.Args.Ask, a.Args.Decision
	}
	return d, true
}

// merge adds what another segment says of the run.
func (n *Note) merge(o *Note) {
	first := func(a *string, b string) {
		if *a == "" {
			*a = b
		}
	}
	first(&n.Repo, o.Repo)
	first(&n.Workflow, o.Workflow)
	first(&n.Dialect, o.Dialect)
	for _, d := range o.Decisions {
		if !slices.Contains(n.Decisions, d) {
			n.decide(d)
		}
	}
	n.MoreDecisions += o.MoreDecisions
	for rule, c := range o.Masked {
		if n.Masked == nil {
			n.Masked = map[string]int64{}
		}
		n.Masked[rule] += c
	}
}

// by reports whether somebody decided something for the run.
func (n *Note) by(actor string) bool {
	return slices.ContainsFunc(n.Decisions, func(d Decision) bool { return d.Actor == actor || d.For == actor })
}
