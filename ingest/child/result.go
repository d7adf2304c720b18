package child

import (
	"syscall"
	"time"
)

// Who a signal came from.
const (
	FromParent  = "parent"  // the wrapper got it
	FromEdge    = "edge"    // Process.Signal
	FromCommand = "command" // somebody asked for it, over the bus
)

// Forwarded is one signal that was sent to the child.
type Forwarded struct {
	Signal syscall.Signal
	From   string
	At     time.Time
}

// Stats counts one stream, from the child's or for stdin the parent's side.
type Stats struct {
	Bytes, Reads, Lines int64
	// EOF says that the end was seen. Output that another process kept open has none.
	EOF bool
	// Dropped and DroppedLines did not fit into the tap.
	Dropped, DroppedLines int64
}

// Result is how a run ended.
type Result struct {
	// Code is the child's exit code; it is 128 + Signal where a signal ended it.
	Code int
	// Signal ended the child; 0 if none did. See Reraise.
	Signal     syscall.Signal
	CoreDumped bool

	Started, Exited, Drained time.Time // start, the child's end, end of output
	CPU                      time.Duration

	Out, Err, In Stats
	Signals      []Forwarded
	Injected     int   // lines
	Hidden       int   // answers kept from the parent
	HiddenBytes  int64 // their size

	// PipeHeld says that another process kept stdout or stderr open; what it
	// wrote later is nobody's.
	PipeHeld bool
	// Leftovers is how many descendants were killed at the end, or by a Tree.
	Leftovers int

	// ReaderClosed says that the reader of our stdout went away. The child was
	// read on. So many bytes and lines had been passed on to it.
	ReaderClosed     bool
	ReaderClosedByte int64
	ReaderClosedLine int64
	// Abandoned is how many bytes of stdout and stderr the parent did not take
	// before it told us to end.
	Abandoned int64
}
