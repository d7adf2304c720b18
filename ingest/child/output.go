package child

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// output pumps one of the child's outputs to the parent and the tap. Its fields
// belong to the goroutine of pump until done is closed, but for those of mu.
type output struct {
	stream Stream
	r      *os.File // child's
	w      *os.File // parent's; nil once its reader is gone
	tap    *Tap
	hide   hider
	done   chan struct{}

	stats           Stats
	passed, passedL int64 // bytes and lines that the parent took
	closed          bool  // the parent's reader is gone
	held            bool  // given up before EOF
	failed          error // why reading or writing ended, if not by EOF or EPIPE

	mu        sync.Mutex
	inflight  []byte // what is being written to the parent
	abandoned bool   // the owner has taken over
	dropped   int64  // bytes the parent did not take, counted by the owner
}

func newOutput(s Stream, r, w *os.File, tap *Tap) *output {
	return &output{stream: s, r: r, w: w, tap: tap, hide: hider{start: true}, done: make(chan struct{})}
}

// pump copies until EOF, or until the read deadline that drain sets. Each read
// goes to the tap and is passed on in one write at once. The tap is first: what a
// host writes in answer to a line is never in the tap before that line.
func (o *output) pump() {
	defer close(o.done)
	buf := o.tap.buffer()
	limit := int64(-1) // bytes still to be read; -1 is no limit
	var failed error
	for limit != 0 {
		b := buf
		if limit > 0 {
			b = buf[:min(int64(len(buf)), limit)]
		}
		n, err := o.r.Read(b)
		if n > 0 {
			if limit > 0 {
				limit -= int64(n)
			}
			next := o.tap.pass(o.stream, buf, n)
			if !o.deliver(buf[:n]) {
				return
			}
			o.tap.written(o.stream)
			buf = next
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && limit < 0:
			// What stands in the pipe now may be the child's; what comes later is
			// not. Where only the parent was slow, EOF stands behind it.
			limit = pending(o.r)
			o.r.SetReadDeadline(time.Time{})
		case errors.Is(err, syscall.EAGAIN): // of a Pipe: not our descriptor
			_ = await(o.r, unix.POLLIN, nil)
		case err == io.EOF:
			o.stats.EOF, limit = true, 0
		default:
			failed, limit = err, 0
		}
	}
	switch {
	case failed != nil:
		o.failed = failed
	case !o.stats.EOF:
		o.stats.EOF = hungUp(o.r)
		o.held = !o.stats.EOF
	}
	o.finish()
}

// finish passes on what was held back, and ends the parent's and the tap's stream.
func (o *output) finish() {
	if rest := o.hide.flush(); len(rest) > 0 {
		o.write(rest)
	}
	o.tap.eof(o.stream)
	detach(o.r)
	if o.stream == Out && o.w != nil {
		// A host that waits for EOF gets it now, not when we have flushed.
		detach(o.w)
	}
}

// deliver passes p on to the parent. It returns false when the owner has taken
// over; o and p are not the pump's any more then.
func (o *output) deliver(p []byte) bool {
	o.stats.Reads++
	o.stats.Bytes += int64(len(p))
	lines := int64(bytes.Count(p, lf))
	o.stats.Lines += lines
	out := p
	if o.stream == Out {
		out = o.hide.filter(p)
	}
	if o.w != nil && len(out) > 0 {
		if !o.begin(p) {
			return false
		}
		n, err := writeAll(o.w, out)
		if !o.end() {
			return false
		}
		if n < len(p) || len(out) != len(p) {
			lines = int64(bytes.Count(out[:n], lf))
		}
		o.wrote(n, lines, err)
	}
	return true
}

func (o *output) begin(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight = p
	return !o.abandoned
}

func (o *output) end() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight = nil
	return !o.abandoned
}

func (o *output) write(p []byte) {
	if o.w == nil {
		return
	}
	n, err := writeAll(o.w, p)
	o.wrote(n, int64(bytes.Count(p[:n], lf)), err)
}

// wrote notes what the parent took. Once it takes no more, because its reader
// is gone or its file is full, the child is read on for the tap alone.
func (o *output) wrote(n int, lines int64, err error) {
	o.passed += int64(n)
	o.passedL += lines
	if err == nil {
		return
	}
	o.w, o.closed = nil, true
	if !errors.Is(err, syscall.EPIPE) {
		o.failed = err
	}
}

// abandon takes over from a pump that is stuck writing to a parent that reads no
// more: what it was writing is in the tap already, and what stands in the pipe
// goes to the tap alone. The
// stuck goroutine ends with its write, at the latest with the process. abandon
// reports false if the pump ended by itself.
func (o *output) abandon() bool {
	o.r.SetReadDeadline(time.Unix(1, 0))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !o.take() {
		select {
		case <-o.done:
			return false
		case <-tick.C:
		}
	}
	o.dropped += int64(len(o.inflight))
	o.r.SetReadDeadline(time.Time{})
	buf := make([]byte, readSize)
	for left := pending(o.r); left > 0; {
		n, err := o.r.Read(buf[:min(left, readSize)])
		o.rescue(buf[:n])
		if left -= int64(n); err != nil {
			break
		}
	}
	o.held = !hungUp(o.r)
	o.tap.eof(o.stream)
	o.r.Close()
	return true
}

func (o *output) take() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = o.inflight != nil
	return o.abandoned
}

func (o *output) rescue(p []byte) {
	o.dropped += int64(len(p))
	o.tap.add(Chunk{Stream: o.stream, Data: p}, nil)
}

// writeAll writes p in one write(2) where the system takes it so. A descriptor
// that someone else made non-blocking is waited for.
func writeAll(f *os.File, p []byte) (n int, err error) {
	for {
		m, err := f.Write(p[n:])
		n += m
		if err == nil || n == len(p) {
			return n, nil
		}
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			return n, err
		}
		if err := await(f, unix.POLLOUT, nil); err != nil {
			return n, err
		}
	}
}

// await waits until f is ready for events. wake, if there is one, ends the wait
// with errWoken.
func await(f *os.File, events int16, wake *os.File) (err error) {
	fd, err := number(f)
	if err != nil {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if wake != nil {
		w, err := number(wake)
		if err != nil {
			return err
		}
		fds = append(fds, unix.PollFd{Fd: int32(w), Events: unix.POLLIN})
	}
	for {
		if _, err = unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && wake != nil && fds[1].Revents != 0 {
		return errWoken
	}
	return err
}

// errWoken is returned by await when wake was readable.
var errWoken = errors.New("woken")

// hungUp reports whether a read of f would give EOF.
func hungUp(f *os.File) bool {
	fd, err := number(f)
	if err != nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLHUP != 0 && fds[0].Revents&unix.POLLIN == 0
}

// number returns f's descriptor without changing its mode, as f.Fd would.
func number(f *os.File) (fd int, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err2 := c.Control(func(n uintptr) { fd = int(n) })
	return fd, err2
}

// detach gives up our copy of a parent's end, so that the other side sees it
// closed. A standard descriptor keeps its number, on /dev/null: the next file
// opened must not become our stdout.
func detach(f *os.File) {
	fd, err := number(f)
	if err != nil {
		return
	}
	if fd > 2 {
		f.Close()
		return
	}
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		_ = unix.Dup2(int(null.Fd()), fd)
		null.Close()
	}
}
