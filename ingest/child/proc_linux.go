package child

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killWait bounds the wait for killed descendants. Only one stuck in the kernel
// takes longer; it is init's when we end.
const killWait = 500 * time.Millisecond

func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitExit waits for the child's end and leaves it a zombie: its pid and its
// group's id stay taken until the descendants are dealt with.
func waitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// ended reports whether a child that nobody has waited for has ended.
func ended(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// pending is how many bytes a pipe holds.
func pending(f *os.File) int64 {
	fd, err := number(f)
	if err != nil {
		return 0
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return int64(n)
}

// family is what the process knows of its children over all Processes. Those of
// one can not be told from another's orphans, so only the last one sweeps.
var family = struct {
	sync.Mutex
	mine     map[int]bool // children of live Processes
	adopting int
}{mine: map[int]bool{}}

// kin tells a child's orphans from the other children of the wrapper.
type kin struct {
	adopt  bool
	before map[int]bool // children that we had before, e.g. of a shell that exec'd us
	// counted are descendants that a Tree has killed; guarded by Process.sweeping.
	counted map[int]bool
}

// enroll makes the process the reaper of its descendants. It is called before
// the child is started.
func enroll(adopt bool) *kin {
	k := &kin{adopt: adopt, before: map[int]bool{}, counted: map[int]bool{}}
	if !adopt {
		return k
	}
	family.Lock()
	defer family.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		k.adopt = false
		return k
	}
	family.adopting++
	for _, pid := range children() {
		if !family.mine[pid] {
			k.before[pid] = true
		}
	}
	return k
}

// start calls f and notes the child that it starts, at once: another Process
// must not take it for an orphan.
func (k *kin) start(f func() (*os.Process, error)) (*os.Process, error) {
	family.Lock()
	defer family.Unlock()
	proc, err := f()
	switch {
	case err == nil:
		family.mine[proc.Pid] = true
	case k.adopt:
		family.adopting--
	}
	return proc, err
}

func (k *kin) leave(pid int) {
	family.Lock()
	defer family.Unlock()
	delete(family.mine, pid)
	if k.adopt {
		family.adopting--
	}
}

// orphans lists the adopted descendants.
func (k *kin) orphans() []int {
	family.Lock()
	defer family.Unlock()
	var pids []int
	for _, pid := range children() {
		if !k.before[pid] && !family.mine[pid] {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reap takes the exit status of orphans that end while the child runs, so that
// they are no zombies; never that of the child, pid. The returned function ends it.
func (k *kin) reap(pid int) (stop func()) {
	if !k.adopt {
		return func() {}
	}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGCHLD)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-sig:
			}
			if ended(pid) {
				continue // the rest comes with the sweep, which must not wait for a list
			}
			for _, pid := range k.orphans() {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
	}()
	return func() {
		signal.Stop(sig)
		close(end)
		<-done
	}
}

// sweep kills what is left of the child's descendants and counts them. The
// child is a zombie yet, so its group is its own.
func (k *kin) sweep(pgid int) int {
	if !k.adopt {
		n := members(pgid)
		syscall.Kill(-pgid, syscall.SIGKILL)
		return n
	}
	family.Lock()
	last := family.adopting == 1
	family.Unlock()
	if !last {
		n := members(pgid)
		syscall.Kill(-pgid, syscall.SIGKILL)
		return n
	}
	// Each descendant is our child, or comes to us when its parent is dead.
	killed, none := 0, false
	for end := time.Now().Add(killWait); ; {
		pids := k.orphans()
		if len(pids) == 0 {
			// A list read while processes come and go may miss one.
			if none {
				return killed
			}
			none = true
			continue
		}
		none = false
		syscall.Kill(-pgid, syscall.SIGKILL)
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		reaped := false
		for _, pid := range pids {
			var ws syscall.WaitStatus
			if got, _ := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil); got == pid {
				reaped = true
				if ws.Signaled() && ws.Signal() == syscall.SIGKILL && !k.counted[pid] {
					killed++
				}
			}
		}
		if !reaped {
			if time.Now().After(end) {
				return killed
			}
			time.Sleep(100 * time.Microsecond) //nolint:forbidigo // until the kernel has killed them
		}
	}
}

// children lists our children, over all threads: an orphan comes to any of them.
func children() []int {
	if unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD {
		return nil
	}
	dir, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(dir) }()
	var pids []int
	for _, tid := range names(dir) {
		// A thread that has ended has no list.
		for f := range bytes.FieldsSeq(contents(dir, tid+"/children")) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// names lists a directory. It and contents are for /proc, where package os makes
// ten calls of the three that are needed: the parent waits for our exit.
func names(dir int) (list []string) {
	buf := make([]byte, 4<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		_, _, list = unix.ParseDirent(buf[:n], -1, list)
	}
}

// contents reads a file below dir; what cannot be read is empty.
func contents(dir int, name string) (b []byte) {
	f, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(f) }()
	buf := make([]byte, 4<<10)
	for {
		n, err := unix.Read(f, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return b
		}
		b = append(b, buf[:n]...)
	}
}

// members counts the living processes of a group.
func members(pgid int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	n := 0
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// pid (comm) state ppid pgrp …; comm may hold anything.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) > 2 && string(f[2]) == strconv.Itoa(pgid) && string(f[0]) != "Z" && string(f[0]) != "X" {
			n++
		}
	}
	return n
}

// prepareDeath makes sig end this process as it would a C program: the Go
// runtime's own handler would print a trace and exit with 2. No core is written;
// it would be the wrapper's.
func prepareDeath(sig syscall.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // a core pattern that is a pipe has no limit
	var dfl [32]byte                                 // struct sigaction: SIG_DFL, no flags
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0)
}
