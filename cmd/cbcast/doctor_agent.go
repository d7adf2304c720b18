package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// versionTime bounds a program's answer to --version.
const versionTime = 10 * time.Second

var versionForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\d+\.\d+\.\d+[0-9A-Za-z.+-]*`)
})

// command says what an agent with these arguments can do.
func (d *doctor) command(ctx context.Context, argv []string) {
	path, err := child.LookPath(argv[0])
	if err == nil {
		path, err = d.behind(path)
	}
	if err != nil {
		d.fail("agent", "correct the path, or PATH", "%v", err)
		return
	}
	name := dialect.Name(d.dialect)
	how := "as told"
	if name == "" {
		name, how = dialect.FromArgv0(argv[0]), "by its name"
	}
	d.agent = &agentDoc{Path: path, Dialect: string(name)}
	d.version(ctx, path, name)
	if name == dialect.Unknown {
		d.warn("dialect", "", "not known by the name %s; the first lines decide", filepath.Base(argv[0]))
	} else {
		d.ok("dialect", "%s, %s; the first lines confirm it", name, how)
	}
	c := dialect.NewProbe(name, argv, true).Capabilities()
	d.agent.Capabilities = &c
	d.level(name, argv, c)
	d.asRoot(name, argv)
}

// behind is the agent behind a link to this program.
func (d *doctor) behind(path string) (string, error) {
	self, err := os.Executable()
	if err != nil || !sameFile(path, self) {
		return path, nil
	}
	name, ok := argv0Name(path)
	if !ok {
		return "", errors.New("the command is cbcast itself; name the agent")
	}
	return d.a.findChild(name)
}

// version asks an agent that is known for its version. Another program may do
// anything when it is run.
func (d *doctor) version(ctx context.Context, path string, name dialect.Name) {
	if name == dialect.Unknown {
		d.warn("agent", "", "%s; its version was not asked for: nothing is known of this program", path)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	said, err := ingest.ProgramVersion(ctx, path, childEnviron(d.a.environ))
	if err != nil {
		d.fail("agent", "run it by hand", "%v", err)
		return
	}
	v := versionForm().FindString(said)
	d.agent.Version = v
	tested := dialect.Tested(name)
	switch {
	case v == "":
		d.warn("agent", "", "%s says no version: %q", path, said)
	case slices.Contains(tested, v):
		d.ok("agent", "%s, version %s", path, v)
	default:
		d.ok("agent", "%s, version %s (tested with %s)", path, v, strings.Join(tested, ", "))
	}
}

var levelText = map[string]string{
	dialect.LevelA: "events, commands, questions and approvals",
	dialect.LevelB: "events and commands; questions cannot be asked, or nobody is asked for approval",
	dialect.LevelC: "events one way; a question ends the run, and its answer goes on with the session",
	dialect.LevelD: "text only",
}

// level says what is in place, and what is not.
func (d *doctor) level(name dialect.Name, argv []string, c event.Capabilities) {
	var has, lacks []string
	for _, x := range []struct {
		name string
		has  bool
	}{
		{"structuredEvents", c.StructuredEvents},
		{"bidirectionalControl", c.BidirectionalControl},
		{"interactiveQuestions", c.InteractiveQuestions},
		{"humanApproval", c.HumanApproval},
		{"sessionResume", c.SessionResume},
		{"interrupt", c.Interrupt},
		{"sandbox", c.Sandbox},
	} {
		if x.has {
			has = append(has, x.name)
		} else {
			lacks = append(lacks, x.name)
		}
	}
	d.ok("capabilities", "with %s; without %s", list(has), list(lacks))
	state := d.ok
	if c.Level != dialect.LevelA {
		state = func(n, f string, args ...any) { d.warn(n, "", f, args...) }
	}
	state("level", "%s, as far as the arguments tell: %s", c.Level, levelText[c.Level])
	for _, adv := range dialect.Advise(name, argv, c) {
		what := "lacks " + adv.Lacks
		switch {
		case adv.Lacks == "":
			d.fail("arguments", adv.Do, "%s", adv.Why)
		case adv.Later:
			d.warn(what, adv.Do, "%s: it shows when the agent runs", adv.Why)
		default:
			d.warn(what, adv.Do, "%s", adv.Why)
		}
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// asRoot knows what Claude Code refuses.
func (d *doctor) asRoot(name dialect.Name, argv []string) {
	env := environMap(d.a.environ)
	bypass := slices.Contains(argv, "--dangerously-skip-permissions") || slices.Contains(argv, "bypassPermissions") ||
		slices.Contains(argv, "--permission-mode=bypassPermissions")
	if name == dialect.Claude && bypass && os.Geteuid() == 0 && env["IS_SANDBOX"] != "1" {
		d.fail("arguments", "use another user, or set IS_SANDBOX=1 where this is a sandbox", "claude refuses to bypass permissions as root")
	}
}
