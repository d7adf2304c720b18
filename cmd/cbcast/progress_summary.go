package main

import (
	"fmt"
	"html"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/run"
)

const (
	// maxSummary is what GitHub takes of one step's summary, in bytes. A larger
	// file is refused as a whole.
	maxSummary = 1 << 20
	// maxSummaryRows bounds the tables of a summary.
	maxSummaryRows = 200
)

// writeSummary appends the run to a step summary, as far as there is room.
func writeSummary(name string, v run.View, out ingest.Outcome, code int) error {
	st, err := os.Stat(name)
	if err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", name)
	}
	room := int64(maxSummary)
	if err == nil {
		room -= st.Size()
	}
	text := cutSummary(summaryOf(v, out, code), room)
	if text == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

const summaryCut = "\n\n_The rest was left out: a summary holds 1 MiB._\n"

// cutSummary is text in at most room bytes; what is left out is said. The cut lies
// within a block of code or between rows, which ends it.
func cutSummary(text string, room int64) string {
	if int64(len(text)) <= room {
		return text
	}
	room -= int64(len(summaryCut) + len(answerEnd))
	if room <= 0 {
		return ""
	}
	text = text[:room]
	for len(text) > 0 && !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) {
		text = text[:len(text)-1]
	}
	if i := strings.LastIndexByte(text, '\n'); i >= 0 && !strings.Contains(text, answerBegin) {
		text = text[:i+1] // whole rows
	}
	if strings.Contains(text, answerBegin) {
		text += answerEnd
	}
	return text + summaryCut
}

// The answer stands as it is: in pre, where no Markdown is read, with its HTML escaped.
const (
	answerBegin = "\n<pre>\n"
	answerEnd   = "\n</pre>\n"
)

func summaryOf(v run.View, out ingest.Outcome, code int) string {
	var b strings.Builder
	verdict := "ended"
	if v.Verdict != nil {
		verdict = string(v.Verdict.Verdict)
	}
	fmt.Fprintf(&b, "### cbcast: %s\n\n| | |\n|---|---|\n", verdict)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", name, value)
		}
	}
	row("run", "<code>"+cell(v.Run)+"</code>")
	row("agent", cell(strings.TrimSpace(v.Dialect+" "+v.Versions["child"])))
	row("session", cell(v.Session))
	row("model", cell(v.Model))
	row("time", seconds(took(v)))
	row("exit code", fmt.Sprint(code))
	row("turns", fmt.Sprint(len(v.Turns)))
	row("tokens", fmt.Sprintf("%d in, %d out, %d from the cache", v.Usage.Tokens.Input, v.Usage.Tokens.Output, v.Usage.Tokens.CacheRead))
	if v.Usage.CostUSD > 0 {
		row("cost", fmt.Sprintf("$%.4f", v.Usage.CostUSD))
	}
	if out.Problem != "" {
		row("problem", cell(out.Problem))
	}
	if !out.Shipped {
		row("events", "not all are on the bus; <code>cbcast flush</code> ships what is in the spool")
	}
	summaryEvidence(&b, v)
	summaryTasks(&b, v)
	if out.Answer != "" {
		b.WriteString(answerBegin + html.EscapeString(strings.ToValidUTF8(out.Answer, "\ufffd")) + answerEnd)
	}
	b.WriteString("\n")
	return b.String()
}

func summaryEvidence(b *strings.Builder, v run.View) {
	if v.Verdict == nil || v.Verdict.Verdict == run.Success {
		return
	}
	b.WriteString("\n| event | evidence | |\n|---|---|---|\n")
	for _, e := range v.Verdict.Evidence {
		fmt.Fprintf(b, "| %d | %s | %s |\n", e.Seq, cell(e.What), cell(e.Text))
	}
}

func summaryTasks(b *strings.Builder, v run.View) {
	rows := 0
	row := func(a, c, d string) {
		if rows == 0 {
			b.WriteString("\n| work | state | |\n|---|---|---|\n")
		}
		if rows++; rows <= maxSummaryRows {
			fmt.Fprintf(b, "| %s | %s | %s |\n", a, c, d)
		}
	}
	for i := range v.Tasks {
		t := &v.Tasks[i]
		row(cell(firstOf(t.Label, t.Name, t.Description, t.ID)), cell(t.Status), cell(t.Error))
		for j := range t.Agents {
			a := &t.Agents[j]
			row("&nbsp;&nbsp;"+cell(strings.TrimPrefix(a.Phase+": ", ": ")+firstOf(a.Label, a.Key)), cell(a.State), cell(a.Error))
		}
	}
	if rows > maxSummaryRows {
		fmt.Fprintf(b, "\n_and %d more._\n", rows-maxSummaryRows)
	}
}

// cell is a text of the agent in a table: one line, no HTML, no Markdown.
func cell(s string) string {
	s = short(s)
	var b strings.Builder
	for _, r := range s {
		switch {
		case strings.ContainsRune("\\`*_{}[]()#+!|<>&~$@:/", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
