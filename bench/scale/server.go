package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/natsd"
)

// serverRole is a server in a process of its own, until stdin ends.
func serverRole(args []string) error {
	port, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	s, err := natsd.Start(natsd.Options{Dir: args[0], Port: port, MaxStore: 64 << 30})
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Shutdown(context.Background())
}

// A server is one in another process, with its store.
type server struct {
	url, dir string
	keep     bool
	pid      int
	end      func()
}

func startServer(ctx context.Context, dir string) (*server, error) {
	s := &server{dir: dir, keep: dir != ""}
	if dir == "" {
		var err error
		if s.dir, err = os.MkdirTemp("", "cbcast-scale-"); err != nil {
			return nil, err
		}
	}
	return s, s.begin(ctx, "0")
}

func (s *server) begin(ctx context.Context, port string) error {
	cmd := exec.CommandContext(ctx, os.Args[0], "role-server", s.dir, port)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	s.end = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.end()
		return err
	}
	s.url = strings.TrimSpace(line)
	return nil
}

// restart ends the server and begins it again on the same address.
func (s *server) restart(ctx context.Context) error {
	s.end()
	return s.begin(ctx, s.url[strings.LastIndexByte(s.url, ':')+1:])
}

func (s *server) stop() {
	s.end()
	if !s.keep {
		_ = os.RemoveAll(s.dir)
	}
}

// rss is a process's resident memory in bytes, 0 where the system does not say.
func rss(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
