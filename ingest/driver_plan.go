package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// ErrDrive is wrapped by what is wrong with a command that is to be driven: its
// flags say something that a driver says otherwise.
var ErrDrive = errors.New("cannot drive this command")

func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDrive, fmt.Sprintf(format, args...))
}

// Plan completes a command that is to be driven with what its dialect needs, and
// takes from its flags what is said on stdin instead. It adds no flag that lets
// the agent do more than it may without. "" as the dialect is that of argv[0].
func (d *Drive) Plan(argv []string, name dialect.Name) ([]string, error) {
	if len(argv) == 0 {
		return nil, conflict("there is none")
	}
	if name == "" {
		name = dialect.FromArgv0(argv[0])
	}
	d.dialect = name
	for _, a := range argv[1:] {
		if a == "--" {
			return nil, conflict("prompts are given with --prompt, not behind --")
		}
	}
	switch name {
	case dialect.Claude:
		return d.planClaude(argv)
	case dialect.CBC:
		return d.planCBC(argv)
	case dialect.Codex:
		return d.planCodex(argv)
	case dialect.Unknown:
	}
	return nil, conflict("%s is no agent that is known by its name; say which one it is with --dialect claude, cbc or codex", argv[0])
}

// A need is a flag that a driven child must have, with its value, "" for none.
type need struct{ flag, alias, value string }

var streamNeeds = []need{
	{flag: "--input-format", value: "stream-json"},
	{flag: "--output-format", value: "stream-json"},
}

func (d *Drive) planClaude(argv []string) ([]string, error) {
	needs := slices.Concat([]need{{flag: "-p", alias: "--print"}}, streamNeeds,
		[]need{{flag: "--verbose"}, {flag: "--permission-prompt-tool", value: "stdio"}})
	return d.planStream(argv, needs)
}

func (d *Drive) planCBC(argv []string) ([]string, error) {
	if _, ok := flagValue(argv, "--permission-prompt-tool"); ok {
		return nil, conflict("cbc has no --permission-prompt-tool; it asks without it")
	}
	return d.planStream(argv, streamNeeds)
}

// planStream is for both that speak stream-json.
func (d *Drive) planStream(argv []string, needs []need) ([]string, error) {
	for i, a := range argv[1:] {
		flag, _, _ := strings.Cut(a, "=")
		switch flag {
		case "-h", "--help", "-v", "--version", "--bg", "--background":
			return nil, conflict("with %s there is nothing to drive", flag)
		}
		// What follows a flag may be its value; where it cannot be, it is a prompt
		// or a subcommand.
		if !strings.HasPrefix(a, "-") && (i == 0 || slices.Contains([]string{"-p", "--print", "--verbose"}, argv[i])) {
			return nil, conflict("%q is no flag; prompts are given with --prompt, and subcommands take none", a)
		}
	}
	out := []string{argv[0]}
	for _, n := range needs {
		if n.value == "" {
			if !slices.Contains(argv[1:], n.flag) && (n.alias == "" || !slices.Contains(argv[1:], n.alias)) {
				out = append(out, n.flag)
			}
			continue
		}
		switch v, ok := flagValue(argv, n.flag); {
		case !ok:
			out = append(out, n.flag, n.value)
		case v != n.value:
			return nil, conflict("%s %s: a driver needs %s %s", n.flag, v, n.flag, n.value)
		}
	}
	out = append(out, argv[1:]...)
	asked := resumeOf(argv)
	switch {
	case d.Resume.Session == "":
		if asked != nil {
			d.Resume = *asked
		}
	case asked != nil:
		return nil, conflict("--resume is given twice, to cbcast and to the agent")
	default:
		out = append(out, "--resume", d.Resume.Session)
		d.Resume.Fork = slices.Contains(argv, "--fork-session")
	}
	return out, nil
}

// resumeOf says which conversation a command of claude or cbc goes on with, nil
// for none.
func resumeOf(argv []string) *event.Resume {
	var r *event.Resume
	for i, a := range argv {
		if a == "--" {
			break
		}
		flag, value, eq := strings.Cut(a, "=")
		switch flag {
		case "--resume", "-r":
			if !eq && i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-") {
				value = argv[i+1]
			}
			r = &event.Resume{Session: bound(value, maxArgument)}
		case "--continue", "-c":
			r = &event.Resume{}
		}
	}
	if r != nil {
		r.Fork = slices.Contains(argv, "--fork-session")
	}
	return r
}

// codexFlags are those of codex that an app-server is told on stdin.
var codexFlags = map[string]string{
	"-m": "model", "--model": "model", "-s": "sandbox", "--sandbox": "sandbox",
	"-a": "approval", "--ask-for-approval": "approval", "-C": "cwd", "--cd": "cwd",
}

// codexValued are the flags of codex that it takes itself, with a value.
var codexValued = []string{"-c", "--config", "--enable", "--disable", "--profile"}

func (d *Drive) planCodex(argv []string) ([]string, error) {
	out, settings := []string{argv[0]}, map[string]string{}
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		flag, value, eq := strings.Cut(a, "=")
		takes := codexFlags[flag] != "" || slices.Contains(codexValued, flag)
		if takes && !eq {
			if i+1 == len(argv) {
				return nil, conflict("%s without a value", a)
			}
			i++
			value = argv[i]
		}
		switch {
		case codexFlags[flag] != "":
			settings[codexFlags[flag]] = value
		case takes && eq:
			out = append(out, a)
		case takes:
			out = append(out, a, value)
		case a == "app-server":
		case flag == "--listen":
			return nil, conflict("--listen: it is driven on stdin")
		case slices.Contains([]string{"--full-auto", "--yolo", "--dangerously-bypass-approvals-and-sandbox"}, flag):
			return nil, conflict("%s is not for app-server; say what is meant with --sandbox and --ask-for-approval", flag)
		case slices.Contains([]string{"-h", "--help", "-V", "--version"}, flag):
			return nil, conflict("with %s there is nothing to drive", flag)
		case !strings.HasPrefix(a, "-"):
			return nil, conflict("%q: codex is driven as app-server; prompts are given with --prompt", a)
		default:
			out = append(out, a)
		}
	}
	d.model, d.cwd = settings["model"], settings["cwd"]
	for name, p := range map[string]*string{"sandbox": &d.Sandbox, "approval": &d.Approval} {
		if v := settings[name]; v != "" {
			*p = v
		}
	}
	return append(out, "app-server"), nil
}

// appServer reports whether a command is a codex app-server: it is controlled on
// its stdin whoever its host is.
func appServer(argv []string) bool {
	for i, a := range argv {
		if a == "--" {
			return false
		}
		if i > 0 && a == "app-server" {
			return dialect.FromArgv0(argv[0]) == dialect.Codex || i == 1
		}
	}
	return false
}

// Lines are what a driver would write, with words where ids will stand. Plan goes
// before it.
func (d *Drive) Lines(version string) ([]string, error) {
	n := 0
	next := func() string { n++; return fmt.Sprintf("cbcast-REQUEST-%d", n) }
	var s speaker = &stream{d: d.dialect, newID: next}
	us := s.open()
	if d.dialect == dialect.Codex {
		c := &codexSpeaker{o: d, newID: next, version: version}
		s = c
		us = c.open()
		_, done := dialect.CodexInitialize("", "")
		us = append(us, utterance{line: done}, c.enter())
		c.thread = "THREAD"
	}
	for i, p := range d.Prompts {
		u, err := s.message(p, fmt.Sprintf("MESSAGE-%d", i+1))
		if err != nil {
			return nil, err
		}
		us = append(us, u)
	}
	var out []string
	for _, u := range us {
		out = append(out, string(u.line))
	}
	return out, nil
}
