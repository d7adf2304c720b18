//go:build unix

package relay

import (
	"errors"
	"syscall"
)

const canTryWrite = true

// tryWrite writes what fd, which does not block, has room for.
func tryWrite(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), b)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
