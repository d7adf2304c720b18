package spool

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"sync"
	"time"
)

// The cursor file is 32 bytes, written in place: magic "cbccurs1", u64
// acknowledged number, i64 nanoseconds since 1970 of the acknowledgement, u32
// CRC-32C of the 24 bytes before it, 4 zero bytes. A cursor that does not read
// as one, or that is beyond the records, counts as 0.
const (
	cursorMagic = "cbccurs1"
	cursorSize  = 32
	// cursorEvery is how often the cursor is written at most.
	cursorEvery = 20 * time.Millisecond
)

type cursorFile struct {
	path string

	mu      sync.Mutex // guards the fields below, over disk access
	f       *os.File
	off     bool // nothing more is written
	written uint64
	at      time.Time
}

// write stores the cursor, unless it did so a moment ago and force is false.
// An error is dropped: the cursor is a hint.
func (c *cursorFile) write(n uint64, at time.Time, force bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !force && at.Sub(c.at) < cursorEvery {
		return
	}
	c.put(n, at)
}

func (c *cursorFile) put(n uint64, at time.Time) {
	if c.off || n <= c.written {
		return
	}
	if c.f == nil {
		f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return
		}
		c.f = f
	}
	if _, err := c.f.WriteAt(encodeCursor(n, at), 0); err == nil {
		c.written, c.at = n, at
	}
}

func (c *cursorFile) close(n uint64, at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(n, at)
	c.off = true
	if c.f == nil {
		return nil
	}
	return c.f.Close()
}

func (c *cursorFile) disable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
}

func encodeCursor(n uint64, at time.Time) []byte {
	b := make([]byte, 0, cursorSize)
	b = append(b, cursorMagic...)
	b = binary.LittleEndian.AppendUint64(b, n)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, 0, 0, 0, 0)
}

// readCursor returns 0 for a file that is missing or no cursor.
func readCursor(path string) (n uint64, at time.Time) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) != cursorSize || string(b[:8]) != cursorMagic ||
		crc32.Checksum(b[:24], castagnoli) != binary.LittleEndian.Uint32(b[24:]) {
		return 0, time.Time{}
	}
	return binary.LittleEndian.Uint64(b[8:]), time.Unix(0, int64(binary.LittleEndian.Uint64(b[16:])))
}
