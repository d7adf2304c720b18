//go:build !unix

package relay

import "errors"

// Streams keep their goroutines where a socket cannot be tried.
const canTryWrite = false

func tryWrite(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
