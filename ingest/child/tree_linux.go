package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxHandles bounds the process handles that a Tree keeps open. Past it, and
// where the system has none, a process is known by its pid and start time.
var maxHandles = 256 // lowered by tests

// A Tree is the child and its descendants, wherever they have gone: a process
// that left the group or the session (Claude Code starts its tools with setsid)
// is still a child of its parent, or of ours when that has ended.
//
// A process is signalled by a handle that was opened while it was seen in the
// tree, so that an id that the system gives out again is nobody's death. Only a
// descendant that had itself adopted by another process (a service manager) is
// out of reach. It is not safe for concurrent use.
type Tree struct {
	p     *Process
	held  map[int]*held
	ended int // descendants that ended by our signal
}

// held is one descendant.
type held struct {
	pid    int
	start  string // in clock ticks since boot, as the kernel writes it
	fd     int    // -1: none
	killed bool   // our signal was sent
}

// Tree takes hold of the child's descendants as they are now. The caller must
// Close it.
func (p *Process) Tree() *Tree {
	t := &Tree{p: p, held: map[int]*held{}}
	t.look()
	return t
}

// Close gives the handles back.
func (t *Tree) Close() {
	for _, h := range t.held {
		h.close()
	}
	t.held = map[int]*held{}
}

// Size is how many descendants are held that have not ended.
func (t *Tree) Size() (n int) {
	for _, h := range t.held {
		if h.alive() {
			n++
		}
	}
	return n
}

// Kill sends SIGKILL to the child, noted as from, and to every descendant, also
// to those that appear meanwhile. It returns how many descendants it ended once
// none is left, or those so far after half a second: only one that is stuck in
// the kernel takes longer. At the child's end the descendants are killed anyway,
// so a Tree that comes after that may find none.
func (t *Tree) Kill(from string) (killed int) {
	t.p.sweeping.Lock()
	defer t.p.sweeping.Unlock()
	_ = t.p.send(syscall.SIGKILL, from)
	none := false
	for end := time.Now().Add(killWait); ; {
		t.look()
		living := false
		for _, h := range t.held {
			if h.alive() {
				living = true
				h.kill()
				continue
			}
			t.drop(h)
		}
		// A list that is read while processes come and go may miss one.
		if !living && none || time.Now().After(end) {
			killed, t.ended = t.ended, 0
			t.p.noteKilled(killed)
			return killed
		}
		none = !living
		t.wait(end)
	}
}

// wait waits until one of the living has ended, for a moment at most: others may
// have appeared.
func (t *Tree) wait(end time.Time) {
	var fds []unix.PollFd
	for _, h := range t.held {
		if h.fd >= 0 && h.alive() {
			fds = append(fds, unix.PollFd{Fd: int32(h.fd), Events: unix.POLLIN})
		}
	}
	_, _ = unix.Poll(fds, int(min(2*time.Millisecond, max(0, time.Until(end))).Milliseconds()))
}

// look adds the descendants that are not held yet.
func (t *Tree) look() {
	all := processes()
	self := os.Getpid()
	parents := []int{}
	select {
	case <-t.p.exited: // its pid may be another's soon; its children are ours by now
	default:
		parents = append(parents, t.p.proc.Pid)
	}
	for _, pid := range t.p.kin.lost() {
		if t.hold(pid, self) {
			parents = append(parents, pid)
		}
	}
	for pid, h := range t.held {
		if h.alive() {
			parents = append(parents, pid)
		}
	}
	seen := map[int]bool{}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		if seen[parent] {
			continue
		}
		seen[parent] = true
		for _, pid := range all[parent] {
			if t.hold(pid, parent) {
				parents = append(parents, pid)
			}
		}
	}
}

// hold opens a handle to pid and then makes sure that it is a child of parent: a
// process that had the id before is none, and one that gets it later is not what
// the handle is for.
func (t *Tree) hold(pid, parent int) bool {
	if h := t.held[pid]; h != nil {
		if h.alive() {
			return true
		}
		t.drop(h)
	}
	h := &held{pid: pid, fd: -1}
	if len(t.held) < maxHandles {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			h.fd = fd
		}
	}
	st, ok := statOf(pid)
	if !ok || st.parent != parent || st.dead() {
		h.close()
		return false
	}
	h.start = st.start
	t.held[pid] = h
	return true
}

// drop forgets a descendant that has ended.
func (t *Tree) drop(h *held) {
	if h.killed {
		t.ended++
		t.p.kin.counted[h.pid] = true
	}
	h.close()
	delete(t.held, h.pid)
}

func (h *held) close() {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
		h.fd = -1
	}
}

// alive reports whether the process has not ended; a zombie has.
func (h *held) alive() bool {
	if h.fd >= 0 {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err != nil || n == 0
	}
	st, ok := statOf(h.pid)
	return ok && st.start == h.start && !st.dead()
}

func (h *held) kill() {
	h.killed = true
	if h.fd >= 0 {
		_ = unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0)
		return
	}
	if h.alive() {
		_ = syscall.Kill(h.pid, syscall.SIGKILL)
	}
}

// lost lists the adopted descendants where they can only be this child's.
func (k *kin) lost() []int {
	if !k.adopt {
		return nil
	}
	family.Lock()
	last := family.adopting == 1
	family.Unlock()
	if !last {
		return nil
	}
	return k.orphans()
}

// stat is what the kernel says of a process.
type stat struct {
	parent int
	state  byte
	start  string
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

func statOf(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(b)
}

// parseStat reads "pid (comm) state ppid pgrp … starttime …"; comm may hold
// anything.
func parseStat(b []byte) (stat, bool) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(string(f[1]))
	return stat{parent: parent, state: f[0][0], start: string(f[19])}, err == nil
}

// processes lists the pids of all processes by their parent's.
func processes() map[int][]int {
	all := map[int][]int{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if st, ok := statOf(pid); ok {
			all[st.parent] = append(all[st.parent], pid)
		}
	}
	return all
}
