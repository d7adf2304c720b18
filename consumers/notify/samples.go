package notify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// A Sample is a run made up, and what the rules do with it.
type Sample struct {
	What string
	Says string
}

// sampleRun is what a sample has where it says nothing else.
func sampleRun() facts {
	return facts{
		tenant: "default", workflow: []string{"review"}, duration: 10 * time.Minute, cost: 0.5,
		ci: map[string]string{"ciprovider": "github", "cirepo": "acme/web", "ciref": "main", "ciworkflow": "nightly", "cijob": "review"},
	}
}

// Assumed says what the samples have in common where they do not say another thing.
func Assumed() string {
	f := sampleRun()
	return fmt.Sprintf("tenant %s, workflow %s, %v, $%.2f, CI job: repo %s, ref %s, workflow %s, job %s", f.tenant, f.workflow[0], f.duration, f.cost,
		f.ci["cirepo"], f.ci["ciref"], f.ci["ciworkflow"], f.ci["cijob"])
}

// Samples says for runs made up which rule is theirs: one of each sort, and one for each
// rule that none of those is for.
func (r *Rules) Samples() (list []Sample) {
	met := map[*Rule]bool{}
	add := func(f *facts, more string) {
		what := fmt.Sprintf("%s, %s", f.kind, f.dialect)
		if f.verdict != "" {
			what += ", " + f.verdict
		}
		for _, rule := range r.reached(f) {
			met[rule] = true
		}
		if s := (Sample{what + more, r.says(f)}); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	for _, s := range []struct {
		kind    sink.Kind
		dialect string
		verdict run.Verdict
	}{
		{sink.Finished, "claude", run.Success},
		{sink.Finished, "cbc", run.Incomplete},
		{sink.Finished, "claude", run.Denied},
		{sink.Failed, "claude", run.Failed},
		{sink.Interrupted, "codex", run.Interrupted},
		{sink.Lost, "claude", run.Lost},
		{sink.Waiting, "claude", ""},
		{sink.Stalled, "claude", ""},
	} {
		f := sampleRun()
		f.kind, f.dialect, f.verdict = s.kind, s.dialect, string(s.verdict)
		add(&f, "")
	}
	for _, rule := range r.Rules {
		if rule.Match != nil && !met[rule] {
			f, more := rule.Match.sample()
			add(f, more)
		}
	}
	return list
}

// verdictsOf are those that notices of a kind have.
var verdictsOf = map[sink.Kind]run.Verdict{
	sink.Finished: run.Success, sink.Failed: run.Failed, sink.Interrupted: run.Interrupted, sink.Lost: run.Lost,
}

// sample is a run that a match holds for, and what is special about it.
func (m *Match) sample() (*facts, string) {
	f := sampleRun()
	f.kind, f.dialect = sink.Finished, "claude"
	var more []string
	if len(m.Verdict) > 0 {
		f.kind = endKind(run.Verdict(m.Verdict[0]))
	}
	if len(m.Kind) > 0 && !m.Kind.has(string(f.kind)) {
		f.kind = sink.Kind(m.Kind[0])
	}
	f.verdict = string(verdictsOf[f.kind])
	if len(m.Verdict) > 0 {
		f.verdict = m.Verdict[0]
	}
	if len(m.Dialect) > 0 {
		f.dialect = m.Dialect[0]
	}
	if len(m.Tenant) > 0 {
		f.tenant = example(m.Tenant[0])
		more = append(more, "tenant "+f.tenant)
	}
	if len(m.Workflow) > 0 {
		f.workflow = []string{example(m.Workflow[0])}
		more = append(more, "workflow "+f.workflow[0])
	}
	for _, label := range slices.Sorted(maps.Keys(m.CI)) {
		if name := "ci" + strings.TrimPrefix(label, "ci"); len(m.CI[label]) > 0 {
			f.ci[name] = example(m.CI[label][0])
			more = append(more, strings.TrimPrefix(label, "ci")+" "+f.ci[name])
		}
	}
	if d := m.Duration; d.Min > 0 || d.Max > 0 {
		if f.duration = time.Duration(d.Min); d.Min == 0 {
			f.duration = time.Duration(d.Max)
		}
		more = append(more, f.duration.String())
	}
	if c := m.Cost; c.Min > 0 || c.Max > 0 {
		if f.cost = c.Min; c.Min == 0 {
			f.cost = c.Max
		}
		more = append(more, fmt.Sprintf("$%.2f", f.cost))
	}
	if len(more) == 0 {
		return &f, ""
	}
	return &f, ", " + strings.Join(more, ", ")
}

// example is a text that a pattern matches.
func example(pattern string) string { return strings.NewReplacer("*", "x", "?", "x").Replace(pattern) }

// reached lists the rules that tell of a run.
func (r *Rules) reached(f *facts) (all []*Rule) {
	for _, rule := range r.Rules {
		if !rule.matches(f) {
			continue
		}
		all = append(all, rule)
		if !rule.Continue {
			break
		}
	}
	return all
}

// says names the rules that match and whom they tell.
func (r *Rules) says(f *facts) string {
	var all []string
	for _, rule := range r.reached(f) {
		var to []string
		for _, t := range rule.To {
			to = append(to, t.target().key())
		}
		all = append(all, rule.Name+" → "+strings.Join(to, ", "))
	}
	if len(all) == 0 {
		return "no rule"
	}
	return strings.Join(all, "; ")
}
