package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Why a line was not injected.
var (
	// ErrNoStdin is returned when the child has no stdin of ours.
	ErrNoStdin = errors.New("child has no stdin")
	// ErrStdinClosed is returned when EOF was passed on, or the child closed its
	// end. One that ends does so a moment before its exit is known.
	ErrStdinClosed = errors.New("child's stdin is closed")
	// ErrExited is returned when the child has ended.
	ErrExited = errors.New("child has exited")
	// ErrGate is returned when ctx ended before OpenGate.
	ErrGate = errors.New("host is not initialized")
	// ErrMidLine is returned when ctx ended while the parent was inside a line.
	ErrMidLine = errors.New("parent is inside a line")
	// ErrNotRead is returned when ctx ended because the child does not read.
	ErrNotRead = errors.New("child does not read its stdin")
	// ErrPartial is returned when ctx ended inside the line's write.
	ErrPartial = errors.New("line written in part")
	// ErrLine is returned for bytes that are not one ASCII line.
	ErrLine = errors.New("not one ASCII line")
)

// inject is Process.Inject.
func (s *stdin) inject(ctx context.Context, line []byte) error {
	if err := checkLine(line); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		closed, open, mid, changed := s.closed, s.open, s.mid, s.changed
		s.mu.Unlock()
		why := ErrNotRead
		switch {
		case closed != nil:
			return closed
		case !open:
			why = ErrGate
		case mid:
			why = ErrMidLine
		}
		right := s.right
		if !errors.Is(why, ErrNotRead) {
			right = nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", why, context.Cause(ctx))
		case <-changed:
			continue
		case right <- struct{}{}:
		}
		if s.ready() {
			return s.writeLine(ctx, line) // gives the right back
		}
		<-s.right
	}
}

// ready reports whether a line may be written by the holder of the right.
func (s *stdin) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed == nil && s.open && !s.mid
}

// writeLine writes line and gives the right back. A pipe takes up to PIPE_BUF
// (4096) bytes whole or not at all; a longer line may be cut by ctx's end.
func (s *stdin) writeLine(ctx context.Context, line []byte) error {
	if ctx.Err() != nil {
		<-s.right
		return fmt.Errorf("%w: %w", ErrNotRead, context.Cause(ctx))
	}
	acted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.w.SetWriteDeadline(time.Unix(1, 0))
		close(acted)
	})
	n, err := s.begin(line)
	if err == nil && n < len(line) {
		var m int
		m, err = s.w.Write(line[n:])
		n += m
	}
	if !stop() {
		<-acted
		s.w.SetWriteDeadline(time.Time{})
	}
	switch {
	case n == len(line):
		<-s.right
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && n > 0:
		s.wg.Go(func() {
			_, _ = s.w.Write(line[n:]) // ends at the child's exit at the latest
			<-s.right
		})
		return fmt.Errorf("%w: %w", ErrPartial, context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		<-s.right
		return fmt.Errorf("%w: %w", ErrNotRead, context.Cause(ctx))
	}
	s.shut(ErrStdinClosed)
	<-s.right
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// begin waits until the pipe takes some of line. The tap has the line exactly
// if some of it was written, and before any answer to it.
func (s *stdin) begin(line []byte) (n int, err error) {
	c, err := s.w.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		var werr error
		s.tap.addIf(Chunk{Stream: In, Data: line, Injected: true}, func() bool {
			err = c.Write(func(fd uintptr) bool {
				n, werr = unix.Write(int(fd), line)
				return true
			})
			return n > 0
		})
		switch {
		case err != nil:
			return 0, err
		case n > 0:
			s.mu.Lock()
			s.injected++
			s.mu.Unlock()
			return n, nil
		case werr != unix.EAGAIN && werr != unix.EINTR:
			return 0, werr
		}
		n = 0
		waited := false
		err = c.Write(func(uintptr) bool { // waits for room, or the deadline
			was := waited
			waited = true
			return was
		})
		if err != nil {
			return 0, err
		}
	}
}

// checkLine accepts printable ASCII, ended by the only LF. A control character
// or a byte beyond ASCII could be taken for a line's end by some reader.
func checkLine(line []byte) error {
	if len(line) < 2 || line[len(line)-1] != '\n' {
		return ErrLine
	}
	for _, c := range line[:len(line)-1] {
		if c < ' ' || c > '~' {
			return ErrLine
		}
	}
	return nil
}
