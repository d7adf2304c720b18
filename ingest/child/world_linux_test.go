package child_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() { children["world"] = world }

// place is what a child can see of where it runs.
type place struct {
	Args, Env []string
	Dir       string
	Umask     int
	UID       int
	NoFile    unix.Rlimit
	Descs     map[string]string // descriptor → what it is
	NonBlock  []int             // those of 0, 1, 2 that are non-blocking
	Leads     bool              // its own process group
	Ignored   string            // signals
	Blocked   string
	Nice      int
}

// world prints the child's place.
func world([]string) int {
	p := place{Args: os.Args, Env: os.Environ(), UID: os.Getuid(), Descs: map[string]string{}}
	p.Dir, _ = os.Getwd()
	p.Umask = syscall.Umask(0)
	p.Leads = syscall.Getpgrp() == os.Getpid()
	p.Nice, _ = syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &p.NoFile)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			p.Ignored = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "SigBlk:"); ok {
			p.Blocked = strings.TrimSpace(v)
		}
	}
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range fds {
		to, err := os.Readlink(name)
		if err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "/sys/") {
			continue // the listing itself, and the runtime's own
		}
		if i := strings.IndexByte(to, '['); i > 0 {
			to = to[:i] // pipe:[…]
		}
		p.Descs[filepath.Base(name)] = to
	}
	for fd := range 3 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags&unix.O_NONBLOCK != 0 {
			p.NonBlock = append(p.NonBlock, fd)
		}
	}
	slices.Sort(p.Env)
	json.NewEncoder(os.Stdout).Encode(p)
	return 0
}
