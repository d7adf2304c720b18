package notify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cbcast/cbcast/internal/durable"
)

// maxLine bounds one line of a log, checksum included. Notices are cut to stay
// far below it; a longer line on the disk is damage.
const maxLine = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lineLog is an append-only file of lines: a checksum in hex, a space, JSON, LF.
// A line whose checksum is wrong is skipped and counted; bytes behind the last LF
// are the trace of a crash and are cut off. It is safe for concurrent use.
type lineLog struct {
	path string
	f    *os.File

	mu     sync.Mutex // guards size and the file's end
	size   int64
	syncMu sync.Mutex // held over fsync, so that many waiters share one
	synced int64      // guarded by syncMu
}

// damage is what opening a log found and left behind.
type damage struct {
	Lines int   // with a wrong checksum, or no JSON
	Tail  int64 // bytes cut off at the end
}

// openLineLog opens or creates the log at path and calls fn for each good line.
// An error of fn counts the line as damaged.
func openLineLog(path string, fn func(off int64, body []byte) error) (*lineLog, damage, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, damage{}, fmt.Errorf("open log: %w", err)
	}
	l := &lineLog{path: path, f: f}
	d, err := l.read(fn)
	if err == nil && d.Tail > 0 {
		err = f.Truncate(l.size)
	}
	if err == nil {
		err = errors.Join(f.Sync(), durable.SyncDir(filepath.Dir(path)))
	}
	if err != nil {
		f.Close()
		return nil, d, fmt.Errorf("read log %s: %w", path, err)
	}
	l.synced = l.size
	return l, d, nil
}

// read scans the file from its beginning and leaves size behind its last LF.
func (l *lineLog) read(fn func(int64, []byte) error) (d damage, err error) {
	info, err := l.f.Stat()
	if err != nil {
		return d, err
	}
	d, l.size, err = scanLines(io.NewSectionReader(l.f, 0, info.Size()), fn)
	return d, err
}

// scanLines reads lines until the end of r and returns how far whole lines went.
func scanLines(r io.Reader, fn func(int64, []byte) error) (d damage, end int64, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		line, err = readLine(br, line[:0])
		n := int64(len(line))
		switch {
		case errors.Is(err, io.EOF):
			d.Tail = n
			return d, end, nil
		case errors.Is(err, errLongLine):
			d.Lines++
			skipped, serr := skipLine(br)
			if errors.Is(serr, io.EOF) {
				d.Tail = n + skipped
				return d, end, nil
			}
			if serr != nil {
				return d, end, serr
			}
			n += skipped
		case err != nil:
			return d, end, err
		default:
			body, ok := checkLine(line)
			if !ok || fn(end, body) != nil {
				d.Lines++
			}
		}
		end += n
	}
}

var errLongLine = errors.New("line too long")

func readLine(br *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := br.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case err == nil:
			return buf, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return buf, err
		case len(buf) > maxLine:
			return buf, errLongLine
		}
	}
}

func skipLine(br *bufio.Reader) (n int64, err error) {
	for {
		part, err := br.ReadSlice('\n')
		n += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

// checkLine returns the body of a line with its LF, false where it is damaged.
func checkLine(line []byte) ([]byte, bool) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if len(line) < 10 || line[8] != ' ' {
		return nil, false
	}
	var want uint32
	for _, c := range line[:8] {
		v, ok := unhex(c)
		if !ok {
			return nil, false
		}
		want = want<<4 | v
	}
	body := line[9:]
	return body, crc32.Checksum(body, castagnoli) == want
}

func unhex(c byte) (uint32, bool) {
	switch {
	case c >= '0' && c <= '9':
		return uint32(c - '0'), true
	case c >= 'a' && c <= 'f':
		return uint32(c-'a') + 10, true
	}
	return 0, false
}

// appendLine appends body as a line. body holds no LF: it is JSON.
func appendLine(dst, body []byte) []byte {
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(body, castagnoli))
	dst = append(dst, body...)
	return append(dst, '\n')
}

// write appends whole lines and returns the log's new end. After an error nothing
// of them is kept. They are durable after sync of that end.
func (l *lineLog) write(lines []byte) (end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.f.WriteAt(lines, l.size); err != nil {
		return l.size, fmt.Errorf("write log: %w", errors.Join(err, l.f.Truncate(l.size)))
	}
	l.size += int64(len(lines))
	return l.size, nil
}

// sync returns when everything before end is on the disk. Callers share one fsync.
func (l *lineLog) sync(end int64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.synced >= end {
		return nil
	}
	l.mu.Lock()
	size := l.size
	l.mu.Unlock()
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	l.synced = size
	return nil
}

func (l *lineLog) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

func (l *lineLog) close() error { return l.f.Close() }
