package notify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
)

// A letter is a notice that was given up, whole, so that it can be sent again.
type letter struct {
	Item   *item        `json:"item"`
	Notice *sink.Notice `json:"notice"`
	Why    string       `json:"why"`
	How    string       `json:"how"`
	At     time.Time    `json:"at"`
	Taken  bool         `json:"taken,omitempty"` // replay took it up again
}

// maxLetters and maxLetterBytes bound the letters that are kept: past either the
// older half goes.
const (
	maxLetters     = 10_000
	maxLetterBytes = 64 << 20
)

// letters is the log of what was given up.
type letters struct {
	mu   sync.Mutex
	path string
	log  *lineLog
	n    int
}

func openLetters(dir string) (*letters, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the letters: %w", err)
	}
	l := &letters{path: filepath.Join(dir, "letters.log")}
	n := map[string]bool{}
	log, _, err := openLineLog(l.path, func(_ int64, body []byte) error {
		var v letter
		if err := json.Unmarshal(body, &v); err != nil || v.Item == nil {
			return errBadLine
		}
		n[v.Item.ID] = true
		if v.Taken {
			delete(n, v.Item.ID)
		}
		return nil
	})
	l.log, l.n = log, len(n)
	return l, err
}

// put adds a letter. It is durable after sync.
func (l *letters) put(v letter) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n >= maxLetters || l.log.length() > maxLetterBytes {
		if err := l.halve(); err != nil {
			return err
		}
	}
	if _, err := l.log.write(appendLine(nil, b)); err != nil {
		return err
	}
	if v.Taken {
		l.n--
	} else {
		l.n++
	}
	return nil
}

// sync holds mu: halve closes the log that it replaces.
func (l *letters) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.sync(l.log.length())
}

func (l *letters) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.n)
}

// all lists the letters that nobody has taken up, the oldest first.
func (l *letters) all() ([]letter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return readLetters(l.path)
}

func readLetters(path string) ([]letter, error) {
	var list []letter
	at := map[string]int{}
	err := readLog(path, func(body []byte) error {
		var v letter
		if err := json.Unmarshal(body, &v); err != nil || v.Item == nil {
			return errBadLine
		}
		if i, ok := at[v.Item.ID]; ok {
			list[i].Taken = true
		}
		if !v.Taken {
			at[v.Item.ID] = len(list)
			list = append(list, v)
		}
		return nil
	})
	return slices.DeleteFunc(list, func(v letter) bool { return v.Taken }), err
}

// readLog reads a log that another process may be writing to.
func readLog(path string, fn func(body []byte) error) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = scanLines(f, func(_ int64, body []byte) error { return fn(body) })
	return err
}

// halve forgets the older half. The caller holds mu.
func (l *letters) halve() error {
	return l.rewrite(func(list []letter) []letter { return list[len(list)/2:] }, func(*letter) {})
}

// rewrite keeps some of the letters, each changed. One without a notice goes. The caller
// holds mu.
func (l *letters) rewrite(keep func([]letter) []letter, change func(*letter)) error {
	list, err := readLetters(l.path)
	if err != nil {
		return err
	}
	var out []byte
	n := 0
	for _, v := range keep(list) {
		had := v.Notice != nil
		if change(&v); had && v.Notice == nil {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		out = appendLine(out, b)
		n++
	}
	if err := replaceLog(l.path, out, l.log, func(log *lineLog) { l.log = log }); err != nil {
		return err
	}
	l.n = n
	return nil
}

// replaceLog writes a log anew. Where it is the one in use, use gets the new one.
func replaceLog(path string, lines []byte, used *lineLog, use func(*lineLog)) error {
	if err := durable.WriteFile(path, lines, 0o600); err != nil {
		return err
	}
	if used == nil || used.path != path {
		return nil
	}
	log, _, err := openLineLog(path, func(int64, []byte) error { return nil })
	if err != nil {
		return err
	}
	_ = used.close()
	use(log)
	return nil
}

// A sentLog keeps what was delivered for a while, for replay. Its loss costs no
// notice, so it is not forced to the disk.
type sentLog struct {
	mu   sync.Mutex
	dir  string
	log  *lineLog
	n    int // number of the last file
	errs int
}

// sentFile and sentFiles bound the log: 8 files of 8 MiB.
const sentFile, sentFiles = 8 << 20, 8

type sentNote struct {
	Item   *item        `json:"item"`
	Notice *sink.Notice `json:"notice"`
	At     time.Time    `json:"at"`
}

func openSent(dir string) (*sentLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log of what was sent: %w", err)
	}
	s := &sentLog{dir: dir, n: 1}
	for _, name := range sentNames(dir) {
		_, _ = fmt.Sscanf(filepath.Base(name), "sent-%d.log", &s.n)
	}
	var err error
	s.log, _, err = openLineLog(s.file(s.n), func(int64, []byte) error { return nil })
	return s, err
}

func sentNames(dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "sent-*.log"))
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return names
}

func (s *sentLog) file(n int) string { return filepath.Join(s.dir, fmt.Sprintf("sent-%08d.log", n)) }

// add notes a delivery. What cannot be written is missing for replay, and nothing else.
func (s *sentLog) add(it *item, n *sink.Notice, at time.Time) {
	b, err := json.Marshal(sentNote{it, n, at.UTC()})
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.log.write(appendLine(nil, b)); err != nil {
		s.errs++
		return
	}
	if s.log.length() < sentFile {
		return
	}
	next, _, err := openLineLog(s.file(s.n+1), func(int64, []byte) error { return nil })
	if err != nil {
		s.errs++
		return
	}
	_ = s.log.close()
	s.log = next
	s.n++
	names := sentNames(s.dir)
	for _, old := range names[:max(0, len(names)-sentFiles)] {
		os.Remove(old)
	}
}

func (s *sentLog) close() error { return s.log.close() }

// readSent lists what was sent, the oldest first.
func readSent(dir string, fn func(sentNote) error) error {
	for _, name := range sentNames(dir) {
		err := readLog(name, func(body []byte) error {
			var v sentNote
			if err := json.Unmarshal(body, &v); err != nil || v.Item == nil || v.Notice == nil {
				return errBadLine
			}
			return fn(v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
