package notify

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// readRegular reads a file of at most limit bytes. Of a pipe and a device nobody knows
// when they end, and opening one may wait: they are refused.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes, too many for it", path, limit)
	}
	return data, err
}
