package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/cbcast/cbcast/ingest/child"
)

// maxVersion bounds what is read of a program's version, in bytes.
const maxVersion = 4 << 10

// ProgramVersion runs path with --version and returns the first line that it
// writes. When ctx ends first the program is killed.
func ProgramVersion(ctx context.Context, path string, env []string) (string, error) {
	p, err := child.Start(child.Config{Path: path, Args: []string{path, "--version"}, Env: env})
	if err != nil {
		return "", err
	}
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(syscall.SIGKILL) })
	defer stop()
	var said []byte
	for {
		c, err := p.Tap().Next(context.WithoutCancel(ctx)) // it ends with the child
		if c.Stream == child.Out && len(said) < maxVersion {
			said = append(said, c.Data...)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read its version: %w", err)
		}
		if err != nil {
			break
		}
	}
	res := p.Wait()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s --version: %w", path, context.Cause(ctx))
	}
	if res.Code != 0 || res.Signal != 0 {
		return "", fmt.Errorf("%s --version: exit code %d%s", path, res.Code, signalText(res.Signal))
	}
	line, _, _ := bytes.Cut(said[:min(len(said), maxVersion)], []byte("\n"))
	return strings.TrimSpace(string(line)), nil
}

func signalText(s syscall.Signal) string {
	if s == 0 {
		return ""
	}
	return ", " + signalName(s)
}
