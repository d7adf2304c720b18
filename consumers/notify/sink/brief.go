package sink

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A brief is what a notice says, in words of ours and texts of the child, before a
// sink gives it its form. Texts of the child are visible, and not escaped.
type brief struct {
	mark     string // a pictograph
	headline string // ours
	name     string // of the run: the child's or the CI's
	facts    []fact
	text     string // what the run said at its end, or why it is told of
	textLeft bool   // it was longer than the state keeps
}

// A fact is one line: our label, a text of anybody.
type fact struct{ label, value string }

// maxFact bounds a fact's text, in characters.
const maxFact = 1000

var marks = map[Kind]string{
	Finished: "✅", Failed: "❌", Lost: "❔", Resumed: "↩️", Waiting: "⏳", Reminder: "⏳", Escalated: "🔔", Answered: "▶️", Stalled: "🐌",
	Interrupted: "✋", Digest: "🗂️", Disabled: "🚫", Test: "🧪",
}

func briefOf(n *Notice) brief {
	b := brief{mark: marks[n.Kind], headline: headline(n), name: nameOf(n)}
	if n.Kind == Finished && verdictOf(n) != string(run.Success) {
		b.mark = "⚠️"
	}
	b.facts = factsOf(n)
	b.text, b.textLeft = textOf(n)
	return b
}

// title is the headline and the name, in one line.
func (b *brief) title() string {
	t := b.headline
	if b.name != "" {
		t += ": " + b.name
	}
	return strings.TrimSpace(b.mark + " " + t)
}

func verdictOf(n *Notice) string {
	if n.View != nil && n.View.Verdict != nil {
		return string(n.View.Verdict.Verdict)
	}
	return n.Summary.Verdict
}

// headline says in our words what is told.
func headline(n *Notice) string {
	verdict := oneLine(verdictOf(n))
	switch n.Kind {
	case Finished:
		return "Finished, " + cmp.Or(verdict, "no verdict")
	case Failed:
		return "Failed"
	case Lost:
		return "Lost: no word from its edge"
	case Resumed:
		return "Heard from again"
	case Waiting:
		return waitsFor(n)
	case Reminder:
		return "Still " + lower(waitsFor(n))
	case Escalated:
		return "Nobody has answered: " + lower(waitsFor(n))
	case Answered:
		return "Goes on"
	case Stalled:
		return stalled(n)
	case Interrupted:
		return "Interrupted"
	case Digest:
		return cmp.Or(oneLine(n.Note), counted(len(n.Digest), "notice"))
	case Disabled:
		return "A destination is gone"
	case Test:
		return "A test of this destination"
	}
	return state(n)
}

// state is the headline of a run that has nothing new to tell.
func state(n *Notice) string {
	s := n.Summary.State
	if n.View != nil {
		s = n.View.State
	}
	switch s {
	case "waiting":
		return waitsFor(n)
	case "done":
		return "Ended, " + cmp.Or(oneLine(verdictOf(n)), "no verdict")
	case "lost":
		return "Lost: no word from its edge"
	}
	return upper(cmp.Or(oneLine(s), "working"))
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// waitsFor counts what is asked: "Waiting for 2 approvals and 1 question".
func waitsFor(n *Notice) string {
	approvals, questions := 0, 0
	for _, a := range n.Asks {
		if a.Class == run.Approval {
			approvals++
		} else {
			questions++
		}
	}
	var parts []string
	if approvals == 1 && questions == 0 {
		return "Waiting for an approval"
	}
	if questions == 1 && approvals == 0 {
		return "Waiting for an answer"
	}
	if approvals > 0 {
		parts = append(parts, counted(approvals, "approval"))
	}
	if questions > 0 {
		parts = append(parts, counted(questions, "answer"))
	}
	if len(parts) == 0 {
		if n.View != nil && n.View.WaitsForResume != nil {
			return "Ended on a question"
		}
		return "Waiting for a person"
	}
	return "Waiting for " + strings.Join(parts, " and ")
}

var stalls = map[string]string{
	"no_exit_after_end": "Does not exit after its end", "silent_turn": "Silent", "open_ask": "Nobody answers",
	"stream_closed": "Denied, because its stdin is closed", "timeout": "Out of time", "max_idle": "Idle for too long",
}

func stalled(n *Notice) string {
	var s event.Stalled
	if n.Event == nil || json.Unmarshal(n.Event.Data, &s) != nil {
		return "Stalled"
	}
	what := cmp.Or(stalls[s.What], "Stalled")
	if s.Seconds > 0 {
		what += " for " + lasted(time.Duration(s.Seconds)*time.Second)
	}
	return what
}

// nameOf is what people know the run by: its workflow, else the CI's job, else the
// beginning of its id.
func nameOf(n *Notice) string {
	if n.Kind == Digest || n.Kind == Test || n.Kind == Disabled {
		return ""
	}
	if n.View != nil {
		for _, t := range n.View.Tasks {
			if name := cmp.Or(t.Name, t.Label); t.Type == "local_workflow" && name != "" {
				return oneLine(name)
			}
		}
	}
	if repo := n.CI["cirepo"]; repo != "" {
		return oneLine(strings.TrimSpace(repo + " " + cmp.Or(n.CI["cijob"], n.CI["ciworkflow"])))
	}
	return oneLine(strings.TrimSpace(n.Summary.Dialect + " " + shortRun(n.Run)))
}

// shortRun is enough of a run's id to find it. The ids of runs of one minute begin
// alike, so it is their end.
func shortRun(id string) string {
	if len(id) > 12 {
		return ellipsis + id[len(id)-12:]
	}
	return id
}

func factsOf(n *Notice) []fact {
	var list []fact
	add := func(label, value string) {
		if value = short(value, maxFact); value != "" {
			list = append(list, fact{label, value})
		}
	}
	add("Note", n.Note)
	if n.Kind == Digest || n.Kind == Test || n.Kind == Disabled {
		return list
	}
	verdict := verdictOf(n)
	if verdict != "" && n.View != nil && n.View.Provisional {
		verdict += " (provisional)"
	}
	add("Verdict", verdict)
	if v := n.View; v != nil {
		add("Tasks", tasks(v))
		label := "Duration"
		if !n.Since.IsZero() {
			label = "Waits for"
		}
		add(label, duration(n))
		if v.Usage.CostUSD > 0 {
			add("Cost", fmt.Sprintf("$%.2f", v.Usage.CostUSD))
		}
		add("Model", v.Model)
	}
	add("Repository", strings.TrimSpace(n.CI["cirepo"]+" "+n.CI["ciref"]))
	add("Job", strings.TrimSpace(n.CI["ciworkflow"]+" "+n.CI["cijob"]))
	if n.Tenant != "default" {
		add("Tenant", n.Tenant)
	}
	return list
}

// tasks counts them by how they ended.
func tasks(v *run.View) string {
	if len(v.Tasks) == 0 {
		return ""
	}
	counts := countTasks(v)
	var parts []string
	for _, c := range []struct {
		n    int
		word string
	}{{counts.Completed, "completed"}, {counts.Failed, "failed"}, {counts.Stopped, "stopped"}, {counts.Open, "open"}, {counts.Unknown, "unknown"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	if v.Counts.AgentsFailed > 0 {
		parts = append(parts, counted(v.Counts.AgentsFailed, "agent")+" failed")
	}
	return strings.Join(parts, ", ")
}

// TaskCounts counts the tasks of a run by how they ended.
type TaskCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Stopped   int `json:"stopped"` // or killed
	Open      int `json:"open"`
	Unknown   int `json:"unknown"` // nobody said how
}

func countTasks(v *run.View) TaskCounts {
	c := TaskCounts{Total: len(v.Tasks)}
	for _, t := range v.Tasks {
		switch t.Status {
		case "completed":
			c.Completed++
		case "failed":
			c.Failed++
		case "killed", "stopped":
			c.Stopped++
		case "pending", "running", "paused":
			c.Open++
		default:
			c.Unknown++
		}
	}
	return c
}

// elapsed is how long the run took, or has taken when the notice was made.
func elapsed(n *Notice) time.Duration {
	if !n.Since.IsZero() {
		return max(0, n.At.Sub(n.Since))
	}
	if n.View == nil || n.View.StartedAt == nil {
		return 0
	}
	end := n.At
	if n.View.EndedAt != nil {
		end = *n.View.EndedAt
	}
	return max(0, end.Sub(*n.View.StartedAt))
}

func duration(n *Notice) string {
	d := elapsed(n)
	if d <= 0 {
		return ""
	}
	return lasted(d)
}

// lasted is a duration for people: 840ms, 12s, 3m4s, 2h5m.
func lasted(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// textOf is what the run itself said last, where that is worth telling.
func textOf(n *Notice) (text string, left bool) {
	v := n.View
	if v == nil {
		return "", false
	}
	goesOn := []Kind{Waiting, Reminder, Escalated, Answered, Resumed}
	if slices.Contains(goesOn, n.Kind) && v.WaitsForResume == nil {
		return "", false
	}
	r := v.Result
	if r == nil {
		return "", false
	}
	text = r.Text
	if text == "" {
		text = strings.Join(r.Errors, "\n")
	}
	return strings.TrimSpace(visible(text)), r.Truncated
}

// safeLink is a URL of ours that may stand in a message, "" where it is none.
func safeLink(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(s) > 2000 {
		return ""
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`<>|"\^{}`+"`", r) }) {
		return ""
	}
	return s
}
