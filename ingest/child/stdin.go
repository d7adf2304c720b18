package child

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stdin carries the parent's bytes and our lines to the child.
//
// right is the right to write: its holder alone touches w and mid. It is a
// channel, so that waiting for it can end with a context. The parent's pump
// holds it for one write, which lasts until the child has read; an injected line
// whose context ends half way hands it on to a goroutine that writes the rest.
type stdin struct {
	w     *os.File // nil: none
	cfg   Config
	tap   *Tap
	right chan struct{}
	wg    sync.WaitGroup // rests of lines

	stats        Stats         // of the pump until done is closed
	done         chan struct{} // the pump has ended
	wakeR, wakeW *os.File      // a pipe that is closed to wake the pump
	gone         chan struct{} // closed at the child's exit
	free         chan struct{} // closed by release
	once         sync.Once

	mu       sync.Mutex // guards what follows
	open     bool       // the gate
	mid      bool       // the parent is inside a line
	closed   error      // nil while lines can be written
	injected int
	changed  chan struct{} // closed and replaced when one of these changes
}

func newStdin(w *os.File, cfg Config, tap *Tap) *stdin {
	s := &stdin{
		w: w, cfg: cfg, tap: tap, open: !cfg.Gated,
		right: make(chan struct{}, 1), changed: make(chan struct{}),
		done: make(chan struct{}), gone: make(chan struct{}), free: make(chan struct{}),
	}
	if w == nil {
		s.closed = ErrNoStdin
	}
	return s
}

// set changes the state under mu and wakes those who wait for it.
func (s *stdin) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stdin) openGate() { s.set(func() { s.open = true }) }
func (s *stdin) release()  { s.once.Do(func() { close(s.free) }) }

// shut fails everything that waits or comes later. The first reason stays.
func (s *stdin) shut(why error) {
	s.set(func() {
		if s.closed == nil {
			s.closed = why
		}
	})
}

// exit is called at the child's end. It also ends writes that are under way.
func (s *stdin) exit() {
	s.set(func() {
		if !errors.Is(s.closed, ErrNoStdin) {
			s.closed = ErrExited
		}
	})
	close(s.gone)
	if s.w != nil {
		s.w.Close()
		s.wakeW.Close() // readable now, with EOF
	}
}

// stdinWait bounds the wait for the pump after the child's exit. It ends at once
// unless another process took the bytes it was about to read.
const stdinWait = 100 * time.Millisecond

// wait waits for the pump and for rests of lines; exit came before.
func (s *stdin) wait() {
	s.wg.Wait()
	select {
	case <-s.done:
		if s.wakeR != nil {
			s.wakeR.Close()
		}
	case <-time.After(stdinWait):
	}
}

// taken returns the pump's counts, if it has ended.
func (s *stdin) taken() Stats {
	select {
	case <-s.done:
		return s.stats
	default:
		return Stats{}
	}
}

func (s *stdin) lines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.injected
}

// acquire gets the right to write; false after the child's exit.
func (s *stdin) acquire() bool {
	select {
	case s.right <- struct{}{}:
		return true
	case <-s.gone:
		return false
	}
}

// pump carries the parent's bytes to the child as they come, and its EOF. It
// ends at the child's exit.
func (s *stdin) pump() {
	defer close(s.done)
	if s.w == nil {
		return
	}
	if s.cfg.Stdin != nil {
		s.stats.EOF = s.copy()
		s.tap.eof(In)
		if !s.stats.EOF {
			return
		}
	}
	if s.cfg.HoldStdin {
		select {
		case <-s.free:
		case <-s.gone:
			return
		}
	}
	if !s.acquire() {
		return
	}
	s.shut(ErrStdinClosed)
	s.w.Close()
	<-s.right
}

// copy copies until the parent's EOF; false if it ended otherwise.
func (s *stdin) copy() bool {
	buf := make([]byte, 64<<10)
	for {
		if err := await(s.cfg.Stdin, unix.POLLIN, s.wakeR); errors.Is(err, errWoken) {
			return false
		}
		n, err := s.cfg.Stdin.Read(buf)
		if n > 0 && !s.forward(buf[:n]) {
			return false
		}
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return s.endLine() // io.EOF; a stdin that cannot be read has ended too
		}
	}
}

// forward writes the parent's bytes; false if the child takes no more. They are
// in the tap before, so that no answer to them is.
func (s *stdin) forward(p []byte) bool {
	s.stats.Reads++
	s.stats.Bytes += int64(len(p))
	s.stats.Lines += int64(bytes.Count(p, lf))
	if !s.acquire() {
		return false
	}
	defer func() { <-s.right }()
	s.tap.add(Chunk{Stream: In, Data: p}, nil)
	if _, err := s.w.Write(p); err != nil {
		s.shut(ErrStdinClosed)
		if errors.Is(err, syscall.EPIPE) {
			// As without us, the parent's next write fails.
			detach(s.cfg.Stdin)
		}
		return false
	}
	if mid := p[len(p)-1] != '\n'; mid != s.mid {
		s.set(func() { s.mid = mid })
	}
	return true
}

// endLine ends a last line without LF where the EOF is held back.
func (s *stdin) endLine() bool {
	if !s.cfg.HoldStdin || !s.mid {
		return true
	}
	select {
	case <-s.free: // the EOF comes at once and ends the line
		return true
	default:
		return s.forward([]byte{'\n'})
	}
}
