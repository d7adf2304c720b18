package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// safe takes from a text what a CI would read as a command: GitHub those that
// begin with "::" or hold "##[", Azure and TeamCity others with "##".
func (p *progress) safe(s string) string {
	if p.raw {
		return s
	}
	return harmless.Replace(s)
}

// The zero-width space keeps the text readable.
var harmless = strings.NewReplacer("::", ":\u200b:", "##", "#\u200b#")

// commandData is a text as the data of a workflow command of GitHub.
func commandData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// section is a name as GitLab allows it for a section; a job may have several runs.
func (p *progress) section(name string) string {
	return "cbcast_" + p.id[max(0, len(p.id)-8):] + "_" + strings.ReplaceAll(name, " ", "_")
}

// answer prints the agent's last words. A terminal gets no control characters of
// them, and no line is a command of a CI.
func (p *progress) answer(text string) {
	onTerminal := terminal(p.a.io.out)
	if onTerminal || p.ci != "" {
		text = printableLines(text)
	}
	if p.ci != "" && !onTerminal {
		text = strings.ReplaceAll(text, "##", "#\u200b#")
		lines := strings.Split(text, "\n")
		for i, l := range lines {
			if strings.HasPrefix(strings.TrimSpace(l), "::") {
				lines[i] = strings.Replace(l, "::", ":\u200b:", 1)
			}
		}
		text = strings.Join(lines, "\n")
	}
	fmt.Fprintln(p.a.io.out, strings.TrimRight(text, "\n"))
}

// printableLines is a text of several lines without control characters.
func printableLines(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	for i, l := range lines {
		lines[i] = printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// guard takes the agent's stderr where GitHub would read commands from it, and
// passes it on line by line. wait comes when the agent has ended.
func (p *progress) guard(stderr *os.File) (f *os.File, wait func()) {
	if p.ci != ciGitHub || p.raw || stderr == nil {
		return stderr, func() {}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return stderr, func() {}
	}
	done := make(chan struct{})
	go func() { // ends with w
		defer close(done)
		defer r.Close()
		const longest = 64 << 10
		in := bufio.NewReaderSize(r, longest)
		for {
			line, err := in.ReadSlice('\n') // a longer line comes in parts
			if len(line) > 0 {
				p.mu.Lock()
				_, _ = io.WriteString(p.w, harmless.Replace(strings.ReplaceAll(string(line), "\r", " ")))
				p.mu.Unlock()
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
	return w, func() { w.Close(); <-done }
}
