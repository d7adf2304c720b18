package child

// NoHandles lets Trees know processes by pid and start time alone.
func NoHandles() { maxHandles = 0 }

// Hold tries to hold pid as a child of parent.
func (t *Tree) Hold(pid, parent int) bool { return t.hold(pid, parent) }
