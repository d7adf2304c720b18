package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Exit codes of a command that cannot be run, as shells give them.
const (
	CodeNotFound      = 127
	CodeNotExecutable = 126
)

// ExecError says that a command cannot be run.
type ExecError struct {
	Path string
	Code int // CodeNotFound or CodeNotExecutable
	Err  error
}

func (e *ExecError) Error() string { return fmt.Sprintf("run %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *ExecError) Unwrap() error { return e.Err }

func execError(path string, err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	code := CodeNotExecutable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = CodeNotFound
	}
	return &ExecError{Path: path, Code: code, Err: err}
}

// LookPath finds an executable as a shell does: name itself if it holds a
// slash, else in PATH, the working directory included where PATH says so. The
// error is an [*ExecError].
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", execError(name, err)
	}
	return path, nil
}

// Exec replaces this process by path. It returns only if that fails.
func Exec(path string, argv, env []string) error {
	if err := syscall.Exec(path, argv, env); err != nil {
		return execError(path, err)
	}
	return nil
}

// Reraise ends this process by sig, as the child was ended, without a core file.
// Where the signal does not end it (the first process of a container) Reraise
// returns the code to exit with.
func Reraise(sig syscall.Signal) int {
	prepareDeath(sig)
	syscall.Kill(os.Getpid(), sig)
	time.Sleep(reraiseWait) //nolint:forbidigo // nothing follows the signal
	return 128 + int(sig)
}

// reraiseWait is how long a signal to ourselves may take to act.
const reraiseWait = 200 * time.Millisecond
