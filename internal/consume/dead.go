package consume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/durable"
)

// ErrDeadFull is returned when there are as many dead letters as there may be.
var ErrDeadFull = errors.New("too many dead letters")

// A Dead is an entry that could not be handled.
type Dead struct {
	ID       string    `json:"id"` // names the file
	Consumer string    `json:"consumer"`
	Log      string    `json:"log"` // name of the stream
	Seq      uint64    `json:"stream_seq"`
	Stored   time.Time `json:"stored"`
	Tenant   string    `json:"tenant,omitempty"`
	Run      string    `json:"run,omitempty"`
	Event    uint64    `json:"seq,omitempty"` // the event's number in its run
	Type     string    `json:"type,omitempty"`

	Reason string    `json:"reason"`
	Tries  int       `json:"tries"`
	Time   time.Time `json:"time"` // when it was given up

	Subject string      `json:"subject"`
	Header  [][2]string `json:"header,omitempty"`
	Data    []byte      `json:"data,omitempty"` // base64
}

// Raw is the message as it was stored.
func (d *Dead) Raw() bus.Raw { return bus.Raw{Subject: d.Subject, Header: d.Header, Data: d.Data} }

// Letters are the dead letters of one consumer, one file each. Methods are safe for
// concurrent use, also by another process that removes some.
type Letters struct {
	dir string
	max int

	mu sync.Mutex // guards n
	n  int        // -1: not counted
}

// OpenLetters returns the dead letters under dir, a consumer's own directory.
func OpenLetters(dir string) *Letters {
	return &Letters{dir: filepath.Join(dir, "dead"), max: 10_000, n: -1}
}

// Limit sets how many letters there may be, 10 000 else.
func (l *Letters) Limit(n int) *Letters {
	l.max = n
	return l
}

const letterSuffix = ".json"

// IDs lists the letters, the oldest place of each log first.
func (l *Letters) IDs() ([]string, error) {
	files, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	var all []string
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), letterSuffix); ok && !strings.HasPrefix(id, ".") {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Read returns a letter, or [fs.ErrNotExist].
func (l *Letters) Read(id string) (*Dead, error) {
	path, err := l.path(id)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read dead letter: %w", err)
	}
	d := &Dead{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", id, err)
	}
	d.ID = id
	return d, nil
}

// Remove forgets a letter.
func (l *Letters) Remove(id string) error {
	path, err := l.path(id)
	if err != nil {
		return err
	}
	if err := durable.Remove(path); err != nil {
		return fmt.Errorf("remove dead letter: %w", err)
	}
	l.mu.Lock()
	l.n = -1
	l.mu.Unlock()
	return nil
}

func (l *Letters) path(id string) (string, error) {
	if id == "" || id != filepath.Base(id) || strings.HasPrefix(id, ".") {
		return "", fmt.Errorf("dead letter %q: %w", id, fs.ErrNotExist)
	}
	return filepath.Join(l.dir, id+letterSuffix), nil
}

// Count is how many letters there are.
func (l *Letters) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, err := l.IDs()
	if err != nil {
		return max(l.n, 0)
	}
	l.n = len(ids)
	return l.n
}

// put writes a letter durably. The same entry again replaces its letter.
func (l *Letters) put(d *Dead) error {
	d.ID = fmt.Sprintf("%s-%012d-%d", d.Log, d.Seq, d.Stored.UnixNano())
	path, err := l.path(d.ID)
	if err != nil {
		return err
	}
	_, err = os.Stat(path)
	again := err == nil
	l.mu.Lock()
	look := !again && (l.n < 0 || l.n >= l.max) // somebody may have removed some
	l.mu.Unlock()
	if look && l.Count() >= l.max {
		return fmt.Errorf("%w: %d in %s, and no more than that are kept: read them with %s, remove those that are dealt with (--rm), and it goes on",
			ErrDeadFull, l.max, l.dir, strings.Replace(d.Consumer, "-", " ", 1)+" dead")
	}
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	l.mu.Lock()
	if !again {
		l.n++
	}
	l.mu.Unlock()
	return nil
}

func letterOf(consumer string, e *Entry, reason error, tries int, now time.Time) *Dead {
	tenant, run := e.Run()
	d := &Dead{
		Consumer: consumer, Log: e.Log.String(), Seq: e.At.Seq, Stored: e.At.Time, Tenant: tenant, Run: run,
		Reason: reason.Error(), Tries: tries, Time: now,
		Subject: e.Raw.Subject, Header: e.header(), Data: e.Raw.Data,
	}
	if e.Event != nil {
		d.Event, d.Type = e.Event.Seq, e.Event.Type
	}
	return d
}
