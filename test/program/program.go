// Package program builds cbcast for the tests that run it as its users do.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Path is the binary, once [Main] has built it.
var Path string

// Main builds the program, runs the tests of a package that lies two folders
// below the top, and returns their exit code. setup, which may be nil, is run
// before the tests with a directory of theirs; what it returns is run at the end.
func Main(m *testing.M, setup func(dir string) (teardown func(), err error)) int {
	dir, err := os.MkdirTemp("", "cbcast-test")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	Path = filepath.Join(dir, "cbcast")
	build := exec.Command("go", "build", "-o", Path, "../../cmd/cbcast")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fail(err)
	}
	if setup != nil {
		teardown, err := setup(dir)
		if err != nil {
			return fail(err)
		}
		defer teardown()
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
