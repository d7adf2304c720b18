package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/cbcast/cbcast/ingest/child"
)

// argv0 acts as `run -- CHILD args…` for a link named like an agent, or becomes
// the agent itself where there is nothing to publish.
func (a *app) argv0(ctx context.Context, name string, args []string) error {
	path, err := a.findChild(name)
	if err != nil {
		return &exitError{127, err}
	}
	argv := append([]string{path}, args[1:]...)
	if terminal(a.io.in) && terminal(a.io.out) || !speaksStdio(name, args[1:]) {
		return child.Exec(path, argv, childEnviron(a.environ))
	}
	return a.wrap(ctx, runOptions{argv: argv, exit: exitChild})
}

// findChild finds the agent behind a link: CBCAST_CHILD, else the next
// executable called name in PATH that is not this program.
func (a *app) findChild(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own path: %w", err)
	}
	if a.cfg.Child != "" {
		if sameFile(a.cfg.Child, self) {
			return "", fmt.Errorf("CBCAST_CHILD %s is cbcast itself; set it to the agent's own path", a.cfg.Child)
		}
		return a.cfg.Child, nil
	}
	for _, dir := range filepath.SplitList(environMap(a.environ)["PATH"]) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 && !sameFile(p, self) {
			return p, nil
		}
	}
	return "", fmt.Errorf("no other %s in PATH; set CBCAST_CHILD to the agent's path", name)
}

func sameFile(a, b string) bool {
	sa, err1 := os.Stat(a)
	sb, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(sa, sb)
}

func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// speaksStdio reports whether an invocation prints something worth publishing:
// print mode or a stream format for claude and cbc, app-server for codex. All
// else (-v, --help, mcp, ps, --bg, …) is the agent's own business.
func speaksStdio(name string, args []string) bool {
	found := false
	for i, arg := range args {
		if arg == "--" {
			break
		}
		flag, _, _ := strings.Cut(arg, "=")
		switch flag {
		case "-v", "--version", "-h", "--help", "--bg":
			if i == 0 || flag != "-v" && flag != "-h" {
				return false
			}
		case "-p", "--print", "--input-format", "--output-format":
			found = true
		case "app-server":
			found = found || name == "codex"
		}
	}
	return found
}
