//go:build unix && !linux

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Elsewhere than on Linux a child outlives a killed wrapper, and orphans that
// left the group are not found.

func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitExit waits for the child's end and leaves it a zombie.
func waitExit(pid int) {
	const pPid, wExited, wNoWait = 1, 0x4, 0x20
	for {
		_, _, e := unix.Syscall6(unix.SYS_WAITID, pPid, uintptr(pid), 0, wExited|wNoWait, 0, 0)
		if e != unix.EINTR {
			return
		}
	}
}

// pending is how many bytes a pipe holds.
func pending(f *os.File) int64 {
	const fionread = 0x4004667f
	fd, err := number(f)
	if err != nil {
		return 0
	}
	n, err := unix.IoctlGetInt(fd, fionread)
	if err != nil {
		return 0
	}
	return int64(n)
}

type kin struct{}

func enroll(bool) *kin                                                { return &kin{} }
func (*kin) start(f func() (*os.Process, error)) (*os.Process, error) { return f() }
func (*kin) leave(int)                                                {}
func (*kin) reap(int) (stop func())                                   { return func() {} }
func (*kin) sweep(pgid int) (n int) {
	syscall.Kill(-pgid, syscall.SIGKILL)
	return 0
}

func prepareDeath(sig syscall.Signal) {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	signal.Reset(sig)
}
