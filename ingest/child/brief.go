package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

const (
	// briefStderr bounds what is kept of a brief command's stderr; the rest is read
	// and forgotten.
	briefStderr = 16 << 10
	// briefWait is how long the pipes of one that was killed are waited for.
	briefWait = 2 * time.Second
)

// Brief runs a command that reads stdin and ends: in a process group of its own, with
// nothing in its environment but env, its stdout thrown away. When ctx ends the whole
// group is killed. code is its exit code, -1 where it did not start or a signal ended
// it; err says why.
func Brief(ctx context.Context, argv, env []string, stdin []byte) (code int, stderr []byte, err error) {
	if len(argv) == 0 {
		return -1, nil, errors.New("no command")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append([]string{}, env...) // not nil: that would be all of ours
	cmd.Stdin = bytes.NewReader(stdin)
	out := &head{max: briefStderr}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = briefWait
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, out.buf.Bytes(), nil
	case ctx.Err() != nil:
		return -1, out.buf.Bytes(), fmt.Errorf("command was killed: %w", context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), out.buf.Bytes(), nil
	case errors.As(err, &exit):
		return -1, out.buf.Bytes(), fmt.Errorf("command ended by %v", exit)
	case cmd.ProcessState != nil && cmd.ProcessState.Exited():
		return cmd.ProcessState.ExitCode(), out.buf.Bytes(), nil // it did not read all, or left a pipe open
	}
	return -1, out.buf.Bytes(), fmt.Errorf("start command: %w", err)
}

// head keeps the first bytes written to it.
type head struct {
	buf bytes.Buffer
	max int
}

func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), h.max-h.buf.Len())])
	return len(p), nil
}
