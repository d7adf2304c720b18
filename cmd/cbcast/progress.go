package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// maxProgress bounds the lines of one run's progress. A log is read by people.
const maxProgress = 10_000

// Logs that fold what stands between two marks.
const (
	ciGitHub = "github"
	ciGitLab = "gitlab"
)

// A progress prints a driven run to stderr, one line a change, and its end. What
// comes from the agent is made printable, and means nothing to a CI that reads
// commands from its log. Its methods may be called from any goroutine.
type progress struct {
	a       *app
	w       io.Writer
	ci      string // github, gitlab, another, "" for none
	raw     bool   // a person's terminal reads it
	quiet   bool
	output  string // stream, text or none
	summary string // file of the CI's step summary, "" for none
	now     func() time.Time

	mu      sync.Mutex // guards the rest, and w
	id      string
	lines   int
	group   string // that is open
	session string
	said    map[string]string // what a line says of each thing, by its name
	warned  int
}

func (a *app) newProgress(o runOptions) *progress {
	env := environMap(a.environ)
	p := &progress{
		a: a, w: a.io.err, ci: ingest.CILabels(env)["ciprovider"], raw: terminal(a.io.err), quiet: o.drive.quiet,
		output: o.drive.output, summary: env["GITHUB_STEP_SUMMARY"], now: time.Now, said: map[string]string{},
	}
	if p.output == outputAuto {
		// A log of a CI is read by people, and by the CI; a pipe or a file is
		// read by programs.
		p.output = outputStream
		if terminal(a.io.out) || p.ci != "" {
			p.output = outputText
		}
	}
	return p
}

// say prints a remark.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(short(text))
}

// line prints one line, unless there were too many. p.mu is held.
func (p *progress) line(text string) {
	if p.quiet || p.lines > maxProgress {
		return
	}
	if p.lines++; p.lines > maxProgress {
		text = "further lines are left out; cbcast tail has everything"
	}
	fmt.Fprintf(p.w, "cbcast: %s\n", p.safe(printable(text)))
}

// begin prints which run this is.
func (p *progress) begin(id string, name dialect.Name, announced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id = id
	if !announced {
		p.line(fmt.Sprintf("run %s (%s)", id, name))
	}
}

// show prints what is new.
func (p *progress) show(v run.View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.Session != "" && v.Session != p.session {
		p.session = v.Session
		p.line("session " + short(v.Session))
	}
	now := map[string]string{} // only what is still listed is remembered
	p.turns(v, now)
	for i := range v.Tasks {
		p.task(&v.Tasks[i], now)
	}
	for i := range v.Asks {
		p.ask(&v.Asks[i], now)
	}
	for ; p.warned < len(v.Warnings); p.warned++ {
		w := v.Warnings[p.warned]
		p.line(short("warning: " + w.What + " " + w.Text))
	}
	p.said = now
}

// changed notes what is to be said of a thing, and reports whether it is new.
func (p *progress) changed(now map[string]string, thing, text string) bool {
	old, known := p.said[thing]
	now[thing] = text
	return !known || old != text
}

func (p *progress) turns(v run.View, now map[string]string) {
	for i := range v.Turns {
		t := &v.Turns[i]
		name := fmt.Sprintf("turn %d", t.N)
		changed := p.changed(now, name, t.State)
		if _, known := p.said[name]; !known {
			p.open(name)
		}
		p.plan(name, t.Phases, now)
		if !changed || t.State != "done" {
			continue
		}
		if p.group == name {
			p.close()
		}
		text := name + ": done"
		if t.Verdict != nil {
			text = name + ": " + string(t.Verdict.Verdict)
		}
		if t.StartedAt != nil && t.EndedAt != nil {
			text += ", " + seconds(t.EndedAt.Sub(*t.StartedAt))
		}
		p.line(text)
	}
}

// plan says which steps of a turn's plan have begun and ended.
func (p *progress) plan(turn string, steps []run.PhaseView, now map[string]string) {
	for _, ph := range steps {
		if p.changed(now, fmt.Sprintf("%s phase %d", turn, ph.Index), ph.Title+" "+ph.Status) && ph.Status != "pending" {
			p.line("phase " + short(ph.Title) + ": " + short(ph.Status))
		}
	}
}

func (p *progress) task(t *run.TaskView, now map[string]string) {
	name := firstOf(t.Label, t.Name, t.Description, t.ID)
	if p.changed(now, "task "+t.ID, t.Status) {
		text := fmt.Sprintf("task %s: %s", short(name), t.Status)
		if t.Error != "" {
			text += ": " + short(t.Error)
		}
		p.line(text)
	}
	for _, ph := range t.Phases {
		if p.changed(now, fmt.Sprintf("phase %s %d", t.ID, ph.Index), ph.Title) {
			p.line("phase " + short(ph.Title))
		}
	}
	for i := range t.Agents {
		a := &t.Agents[i]
		if !p.changed(now, "agent "+t.ID+" "+a.Key, a.State) {
			continue
		}
		text := fmt.Sprintf("agent %s: %s", short(firstOf(a.Label, a.Key)), a.State)
		if a.Phase != "" {
			text = short(a.Phase) + ", " + text
		}
		switch {
		case a.Error != "":
			text += ": " + short(a.Error)
		case a.State == "done" && a.Cached:
			text += ", from the cache"
		case a.State == "done":
			text += fmt.Sprintf(", %s, %d tokens", seconds(time.Duration(a.DurationMS)*time.Millisecond), a.Tokens)
		}
		p.line(text)
	}
}

func (p *progress) ask(a *run.AskView, now map[string]string) {
	if !p.changed(now, "ask "+a.ID, a.State) {
		return
	}
	text := short(fmt.Sprintf("%s %s", a.Kind, firstOf(a.Title, a.Tool, a.Kind)))
	switch {
	case a.State == run.AskOpen:
		do := "cbcast allow " + p.id + " " + short(a.ID)
		if a.Class == run.Question {
			do = "cbcast answer " + p.id + " " + short(a.ID) + " ANSWER"
		}
		text = fmt.Sprintf("waits for a person: %s (%s)", text, do)
	case a.Closed != nil:
		text = fmt.Sprintf("ask %s: %s", short(a.ID), strings.Join(compact([]string{short(a.Closed.Reason), short(a.Outcome)}), ", "))
	case a.Decided != nil:
		text = fmt.Sprintf("ask %s: %s by %s", short(a.ID), short(a.Decided.Decision), short(a.Decided.By))
	default:
		text = fmt.Sprintf("ask %s: %s", short(a.ID), short(a.State))
	}
	p.line(text)
}

// open begins a part of the log that can be folded.
func (p *progress) open(name string) {
	p.close()
	if p.quiet {
		return
	}
	p.group = name
	switch p.ci {
	case ciGitHub:
		fmt.Fprintf(p.w, "::group::%s\n", commandData(name))
	case ciGitLab:
		fmt.Fprintf(p.w, "\x1b[0Ksection_start:%d:%s[collapsed=true]\r\x1b[0K%s\n", p.now().Unix(), p.section(name), name)
	default:
		p.line(name)
	}
}

func (p *progress) close() {
	if p.group == "" {
		return
	}
	switch p.ci {
	case ciGitHub:
		fmt.Fprintln(p.w, "::endgroup::")
	case ciGitLab:
		fmt.Fprintf(p.w, "\x1b[0Ksection_end:%d:%s\r\x1b[0K\n", p.now().Unix(), p.section(p.group))
	}
	p.group = ""
}

// end prints how the run ended, and its answer where the agent's own lines do not
// go to stdout.
func (p *progress) end(out ingest.Outcome, code int) {
	v := out.State.View()
	p.mu.Lock()
	p.close()
	text := "ended"
	if v.Verdict != nil {
		text = string(v.Verdict.Verdict)
		if len(v.Verdict.Evidence) > 0 && v.Verdict.Verdict != run.Success {
			e := v.Verdict.Evidence[0]
			text += " (" + short(e.What+" "+e.Text) + ")"
		}
	}
	text += ", " + seconds(took(v))
	if v.Usage.CostUSD > 0 {
		text += fmt.Sprintf(", $%.4f", v.Usage.CostUSD)
	}
	if out.Ended == ingest.EndedNoExit {
		p.line("the agent did not leave when its stdin was closed, and was ended")
	}
	p.line(fmt.Sprintf("%s, exit code %d", text, code))
	switch {
	case errors.Is(out.Why, ingest.ErrRunUsed):
		p.line(usedErr(p.id).Error())
	case !out.Shipped:
		p.line("not all events are on the bus; cbcast flush ships the rest")
	}
	p.mu.Unlock()
	if p.output == outputText && out.Answer != "" {
		p.answer(out.Answer)
	}
	if p.summary != "" {
		if err := writeSummary(p.summary, v, out, code); err != nil {
			p.say("step summary: " + err.Error())
		}
	}
}

// firstOf is the first text that is not empty.
func firstOf(list ...string) string {
	for _, s := range list {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return "?"
}

// seconds is a duration for people.
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func took(v run.View) time.Duration {
	if v.Exit != nil {
		return time.Duration(v.Exit.DurationMS) * time.Millisecond
	}
	return 0
}
