package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// resumeLine is the command that goes on with the session of a run that ended on a
// question, with the answer to it.
func resumeLine(v run.View, q run.ResumeAsk, a event.Answer, cwd string) string {
	prompt := q.Prompt(a)
	if strings.HasPrefix(prompt, "@") { // which names a file
		prompt = " " + prompt
	}
	line := "cbcast run --resume " + shellWord(v.Run) + " --prompt " + shellWord(prompt) + " -- " + shellWord(agentOf(v))
	if v.Cwd != "" && v.Cwd != cwd {
		// Claude Code finds its sessions by the directory.
		line = "cd " + shellWord(v.Cwd) + " && " + line
	}
	return line
}

// agentOf is the program that a run was of.
func agentOf(v run.View) string {
	if len(v.Argv) > 0 && dialect.FromArgv0(v.Argv[0]) == dialect.Name(v.Dialect) {
		return v.Argv[0]
	}
	return v.Dialect
}

// shellWord is s as one word of a POSIX shell.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// tellResume prints how an answer goes on in a new run: the one that asked has
// ended. Only the line goes to stdout.
func (a *app) tellResume(v run.View, q run.ResumeAsk, ans event.Answer) error {
	cwd, _ := os.Getwd()
	where := ""
	if v.Host != "" {
		where = " (it ran on " + v.Host + ")"
	}
	fmt.Fprintf(a.io.err, "cbcast: run %s has ended%s, and nothing was written; its session goes on with this:\n", printable(v.Run), printable(where))
	fmt.Fprintln(a.io.out, printableShell(resumeLine(v, q, ans, cwd)))
	return &exitError{code: exitFailed}
}

// printableShell keeps the line breaks of a quoted word, and nothing else that a
// terminal could act on.
func printableShell(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n")
}

// unresumed lists the questions that a run ended on, but those that are listed.
func unresumed(v run.View, listed []run.AskView) (more []run.AskView) {
	if v.WaitsForResume == nil {
		return nil
	}
	for _, q := range v.WaitsForResume.Asks {
		if !slices.ContainsFunc(listed, func(a run.AskView) bool { return a.ID == q.ID }) {
			more = append(more, *q.View())
		}
	}
	return more
}
