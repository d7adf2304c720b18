// Package script holds the end-to-end tests of the command line: the program as
// a user sees it, each test a script in testdata.
package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:             "testdata",
		ContinueOnError: true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			if err := os.MkdirAll(filepath.Join(home, ".config", "cbcast"), 0o755); err != nil {
				return err
			}
			e.Setenv("HOME", home)
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			// Tests run at once: every hub's relay takes a port of its own.
			e.Setenv("CBCAST_RELAY_ADDR", "127.0.0.1:0")
			// A run is on the bus when its command returns, however busy the machine is.
			e.Setenv("CBCAST_EXIT_FLUSH", "1m")
			e.Setenv("CBCAST", program.Path)
			e.Setenv("PATH", filepath.Dir(program.Path)+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  code,
			"natsd": startServer,
		},
	})
}

// code N CMD… runs a command and wants exit code N, or -N for a death by signal N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command…")
	}
	var want int
	if _, err := fmt.Sscan(args[0], &want); err != nil {
		ts.Fatalf("code %s: %v", args[0], err)
	}
	// The shell turns a death by signal N into 128 + N.
	script := `"$@"; c=$?; [ $c = ` + args[0] + ` ] || { echo "exit code $c, want ` + args[0] + `" >&2; exit 1; }`
	ts.Check(ts.Exec("sh", append([]string{"-c", script, "sh"}, args[1:]...)...))
}

// natsd starts a NATS server on a free port and puts its address into
// CBCAST_NATS_URL.
func startServer(ts *testscript.TestScript, _ bool, _ []string) {
	s, err := natsd.Start(natsd.Options{Dir: ts.MkAbs("natsd"), MaxStore: -1})
	ts.Check(err)
	ts.Defer(func() { _ = s.Shutdown(context.Background()) })
	ts.Setenv("CBCAST_NATS_URL", s.ClientURL())
}
