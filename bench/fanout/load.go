//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A loadSpec is what the load connects to.
type loadSpec struct {
	Addr, Path    string
	Clients, Runs int
}

// stats is what the load saw since the last reset. Times are milliseconds from
// when an event was made to when a client had read it.
type stats struct {
	Events                 int
	P50, P90, P99, P999    float64
	Max                    float64
	Holes, Doubles, Closed int
}

// A load is all clients in one thread.
type load struct {
	epoll   int
	clients []client
	silent  int // clients that have no answer yet
	buf     []byte
	took    []int64 // nanoseconds
	stats
}

type client struct {
	fd    int
	last  uint64 // number of the last event
	heard bool
	rest  []byte // of the last read: the beginning of a mark
}

// unanswered is how many connections may wait for their answer.
const unanswered = 100

const (
	markLen  = len(mark) + 19 + 1 + 8
	readSize = 64 << 10
)

// loadRole connects, says ready when every client has an answer, and then does
// what it is told: "reset" or "report".
func loadRole(arg string) error {
	var spec loadSpec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return err
	}
	runtime.LockOSThread()
	l := &load{buf: make([]byte, readSize+markLen), clients: make([]client, spec.Clients)}
	var err error
	if l.epoll, err = syscall.EpollCreate1(0); err != nil {
		return err
	}
	if err := l.connect(spec); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); l.silent > 0; {
		if err := l.poll(100); err != nil {
			return err
		}
		if l.Closed > 0 || time.Now().After(end) {
			return fmt.Errorf("%d clients have no answer, %d were closed", l.silent, l.Closed)
		}
	}
	fmt.Println("ready")
	orders := make(chan string, 1)
	go func() { // ends with the process
		lines(func(line string) bool { orders <- line; return true })
		close(orders)
	}()
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				return nil
			}
			if o == "report" {
				l.report()
			} else {
				fmt.Println("ok")
			}
			l.took, l.stats = l.took[:0], stats{}
		default:
		}
		if err := l.poll(20); err != nil {
			return err
		}
	}
}

func (l *load) connect(spec loadSpec) error {
	at, err := netip.ParseAddrPort(spec.Addr)
	if err != nil {
		return err
	}
	for i := range l.clients {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
			return os.NewSyscallError("connect", err)
		}
		req := "GET " + fmt.Sprintf(spec.Path, i%spec.Runs) + " HTTP/1.1\r\nHost: " + spec.Addr + "\r\nAccept: text/event-stream\r\n\r\n"
		if _, err := syscall.Write(fd, []byte(req)); err != nil {
			return os.NewSyscallError("write", err)
		}
		if err := syscall.SetNonblock(fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		ev := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)} //nolint:gosec // an index
		if err := syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
		l.clients[i].fd = fd
		l.silent++
		for wait := 0; ; wait = 10 {
			if err := l.poll(wait); err != nil {
				return err
			}
			if l.silent < unanswered || l.Closed > 0 {
				break
			}
		}
	}
	return nil
}

// poll reads what has come, after waiting for it.
func (l *load) poll(ms int) error {
	var events [512]syscall.EpollEvent
	n, err := syscall.EpollWait(l.epoll, events[:], ms)
	if err != nil && err != syscall.EINTR {
		return os.NewSyscallError("epoll_wait", err)
	}
	for i := range max(n, 0) {
		l.read(&l.clients[events[i].Fd])
	}
	return nil
}

func (l *load) read(c *client) {
	have := copy(l.buf, c.rest)
	n, err := syscall.Read(c.fd, l.buf[have:])
	now := time.Now().UnixNano()
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	if n <= 0 {
		l.Closed++
		_ = syscall.Close(c.fd)
		return
	}
	b := l.buf[:have+n]
	if !c.heard {
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
			fmt.Fprintf(os.Stderr, "answer: %.300s\n", b)
			l.Closed++
			return
		}
		c.heard = true
		l.silent--
	}
	for {
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			b = b[len(b)-min(len(b), len(mark)-1):]
			break
		}
		if b = b[i:]; len(b) < markLen {
			break
		}
		l.event(c, now, b[len(mark):markLen])
		b = b[markLen:]
	}
	c.rest = append(c.rest[:0], b...)
}

// event takes the time and the number in a mark.
func (l *load) event(c *client, now int64, m []byte) {
	at, err := strconv.ParseInt(string(m[:19]), 10, 64)
	n, err2 := strconv.ParseUint(string(m[20:]), 10, 64)
	switch {
	case err != nil || err2 != nil:
		l.Holes++
		return
	case c.last > 0 && n <= c.last:
		l.Doubles++
		return
	case c.last > 0 && n > c.last+1:
		l.Holes++
	}
	c.last = n
	l.took = append(l.took, now-at)
}

func (l *load) report() {
	slices.Sort(l.took)
	at := func(q float64) float64 {
		if len(l.took) == 0 {
			return 0
		}
		return float64(l.took[int(q*float64(len(l.took)-1))]) / 1e6
	}
	l.Events, l.P50, l.P90, l.P99, l.P999, l.Max = len(l.took), at(0.5), at(0.9), at(0.99), at(0.999), at(1)
	b, _ := json.Marshal(l.stats) // numbers
	fmt.Println(string(b))
}
