package dialect

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// An OutputFile is a file that a task wrote, as the child names it. Nothing about
// it is checked.
type OutputFile struct {
	Stream event.Stream // Out, or Err where a task keeps its stderr apart
	Path   string
}

// OutputFiles lists the files that the end of a task names, none for any other
// frame. A foreground command has none (an empty name).
func OutputFiles(f *Frame) []OutputFile {
	if f.Type != typeSystem || f.Subtype != "task_notification" {
		return nil
	}
	var list []OutputFile
	for _, o := range []struct {
		key    string
		stream event.Stream
	}{{"output_file", event.Out}, {"output_stderr_file", event.Err}} {
		if v := f.Get(o.key); len(v) > 2 && v.IsString() {
			list = append(list, OutputFile{o.stream, v.Text()})
		}
	}
	return list
}

// An OutputPlace is where a child keeps the outputs of its tasks.
type OutputPlace struct {
	Temp string // the directory for temporary files, as the child's environment has it
	Own  string // the directory of this dialect and user within
}

// OutputPlaceOf says where a child of dialect d with this environment keeps the
// outputs of its tasks (seen with Claude Code 2.1.220 and CodeBuddy 2.163.0);
// false where the dialect has no such place.
func OutputPlaceOf(d Name, getenv func(string) string, uid int) (OutputPlace, bool) {
	p := OutputPlace{Temp: "/tmp"}
	switch d {
	case Claude:
		if t := getenv("CLAUDE_CODE_TMPDIR"); t != "" {
			p.Temp = t
		}
		p.Own = "claude-" + strconv.Itoa(uid)
	case CBC:
		for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
			if t := getenv(name); t != "" {
				p.Temp = t
				break
			}
		}
		p.Own = "codebuddy-" + strconv.Itoa(uid)
	default:
		return OutputPlace{}, false
	}
	return p, filepath.IsAbs(p.Temp)
}

// An OutputOwner is whose output a file must be.
type OutputOwner struct {
	Cwds     []string // working directories that the child may be in
	Sessions []string
	Task     string
}

// OwnOutput reports whether parts, a file's path below [OutputPlace.Own], is that
// of the owner's task: the directory of its working directory, of its session
// where the dialect has one, and the task's id in the file's name.
//
//	claude  <cwd>/<session>/tasks/<task>.output
//	cbc     <cwd>/agent-tasks/<task>.output
//	        <cwd>/<session>/bg-tasks/<task>.stdout.log, .stderr.log
func OwnOutput(d Name, parts []string, o OutputOwner) bool {
	if o.Task == "" || strings.ContainsRune(o.Task, '/') || len(parts) < 3 || !ownDir(parts[0], o.Cwds) {
		return false
	}
	session, rest := "", parts[1:]
	if len(parts) == 4 {
		session, rest = parts[1], parts[2:]
	}
	if len(rest) != 2 {
		return false
	}
	known := false
	for _, s := range o.Sessions {
		known = known || s != "" && s == session
	}
	dir, name := rest[0], rest[1]
	switch {
	case d == Claude:
		return known && dir == "tasks" && name == o.Task+".output"
	case d == CBC && session == "":
		return dir == "agent-tasks" && name == o.Task+".output"
	case d == CBC:
		return known && dir == "bg-tasks" && (name == o.Task+".stdout.log" || name == o.Task+".stderr.log")
	}
	return false
}

// TaskOutputs lists where the outputs of the owner's task can be, for a task whose end
// was never told: paths below [OutputPlace.Own], whose directories are dirs.
func TaskOutputs(d Name, dirs []string, o OutputOwner) []OutputFile {
	var list []OutputFile
	add := func(stream event.Stream, parts ...string) {
		if OwnOutput(d, parts, o) {
			list = append(list, OutputFile{stream, strings.Join(parts, "/")})
		}
	}
	for _, dir := range dirs {
		add(event.Out, dir, "agent-tasks", o.Task+".output")
		for _, s := range o.Sessions {
			add(event.Out, dir, s, "tasks", o.Task+".output")
			add(event.Out, dir, s, "bg-tasks", o.Task+".stdout.log")
			add(event.Err, dir, s, "bg-tasks", o.Task+".stderr.log")
		}
	}
	return list
}

// longSlug is the length from which a child may shorten the name that it makes of
// a working directory; what is before that still counts.
const longSlug = 150

// ownDir reports whether a directory's name is that of one of the working
// directories: both CLIs put "-" for what may not stand in a name.
func ownDir(name string, cwds []string) bool {
	have := slug(name)
	for _, cwd := range cwds {
		want := slug(cwd)
		if want != "" && (have == want || len(want) > longSlug && strings.HasPrefix(have, want[:longSlug])) {
			return true
		}
	}
	return false
}

// slug is a path in a form that does not depend on how each CLI writes it: runs of
// all but letters and digits are one "-".
func slug(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			b = append(b, c)
		case len(b) > 0 && b[len(b)-1] != '-':
			b = append(b, '-')
		}
	}
	return strings.TrimSuffix(string(b), "-")
}
