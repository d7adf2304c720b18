//go:build !linux

package child

import "syscall"

// A Tree is the child's process group: other systems do not tell what has left
// it.
type Tree struct{ p *Process }

// Tree is the child's group.
func (p *Process) Tree() *Tree { return &Tree{p} }

// Close does nothing.
func (*Tree) Close() {}

// Size is not known.
func (*Tree) Size() int { return 0 }

// Kill kills the group, noted as from. What has left the group lives on; the
// count is not known.
func (t *Tree) Kill(from string) int {
	if t.p.send(syscall.SIGKILL, from) == nil {
		syscall.Kill(-t.p.proc.Pid, syscall.SIGKILL)
	}
	return 0
}
