package durable

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// ReadRegular reads a file that somebody named in a setting: a regular one of at most most
// bytes. Another kind is an error: to open a pipe waits for its writer, for ever where there
// is none, and a device may have no end.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if s, err := f.Stat(); err != nil {
		return nil, err
	} else if !s.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes, too many for it", path, most)
	}
	return data, nil
}

// MaxPEM bounds a file of keys or certificates, in bytes.
const MaxPEM = 1 << 20
