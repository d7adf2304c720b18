package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cbcast/cbcast/internal/durable"
)

// Sentinel errors of the journal.
var (
	// ErrKnown is returned by Intent for a command that the journal has.
	ErrKnown = errors.New("command is in the journal already")
	// ErrNoIntent is returned by Done for a command without an open intent.
	ErrNoIntent = errors.New("command has no open intent")
)

// maxCommands bounds the commands of one run, and so the memory of the journal:
// people and programs give a few.
const maxCommands = 1 << 16

// journalMagic begins the commands file. Records follow as in a segment: their
// number counts entries, meta is the entry's kind and the command's id.
const journalMagic = "cbccmds1"

const (
	intentEntry = 'i'
	doneEntry   = 'd'
)

// A Journal says which commands may have had an effect: an intent is written
// before the child's stdin is, done afterwards. A crash between the two leaves
// the command pending, and nobody can know what became of it: it is unknown, and
// must not be given again. Its methods are safe for concurrent use.
type Journal struct {
	dir string

	mu      sync.Mutex // guards the fields below, over disk access
	f       file
	off     int64
	n       uint64 // entries
	torn    bool
	closed  bool
	synced  bool // the file's directory entry survives a power loss
	state   map[string]bool
	pending []Command
	cut     int64
	buf     []byte
	sync    func() error
}

// A Command is one entry of the journal.
type Command struct {
	ID   string
	Data []byte
}

// Journal opens the run's journal, the same for every call. The file is made by
// the first Intent. A torn or damaged end is cut, see Journal.Cut.
func (s *Spool) Journal() (*Journal, error) {
	s.jmu.Lock()
	defer s.jmu.Unlock()
	if s.journal != nil {
		return s.journal, nil
	}
	j := &Journal{dir: s.dir, state: map[string]bool{}}
	if err := j.load(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	s.journal = j
	return j, nil
}

func (j *Journal) path() string { return filepath.Join(j.dir, commandsName) }

func (j *Journal) load() error {
	f, err := os.Open(j.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	magic := make([]byte, len(journalMagic))
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == journalMagic {
		j.off = int64(len(magic))
		sc := scanner{r: f, size: info.Size(), off: j.off}
		for {
			rec, err := sc.next()
			if err != nil || !j.replay(rec) {
				break // what follows a bad entry cannot be trusted either
			}
			j.off = sc.off
		}
	}
	j.cut = info.Size() - j.off
	j.torn = true // truncated by the first entry written; reading changes nothing
	return nil
}

// replay takes one entry from disk; false when it is none.
func (j *Journal) replay(rec []byte) bool {
	seq, meta, data, err := splitRecord(rec)
	if err != nil || seq != j.n+1 || len(meta) == 0 {
		return false
	}
	id := string(meta[1:])
	switch meta[0] {
	case intentEntry:
		j.state[id] = false
		j.pending = append(j.pending, Command{id, append([]byte(nil), data...)})
	case doneEntry:
		j.settle(id)
	default:
		return false
	}
	j.n++
	return true
}

func (j *Journal) settle(id string) {
	j.state[id] = true
	for i := range j.pending {
		if j.pending[i].ID == id {
			j.pending = append(j.pending[:i], j.pending[i+1:]...)
			return
		}
	}
}

// Intent records that the command is about to be given. When it returns nil, the
// entry survives a power loss; only then may the effect be caused. After an
// error the command must not be given; an entry may exist all the same, and
// Intent for the id then says ErrKnown. ErrFull is returned past 65536 commands
// and when the disk is full.
func (j *Journal) Intent(id string, data []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.state[id]; ok {
		return ErrKnown
	}
	if len(j.state) >= maxCommands {
		return fmt.Errorf("%w: %d commands", ErrFull, len(j.state))
	}
	if err := j.append(intentEntry, id, data); err != nil {
		return err
	}
	j.state[id] = false
	j.pending = append(j.pending, Command{id, append([]byte(nil), data...)})
	return j.flush()
}

// Done records that the command was given. It survives the death of this
// process; a power loss may make the command pending again, that is: unknown.
func (j *Journal) Done(id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if done, ok := j.state[id]; !ok || done {
		return ErrNoIntent
	}
	if err := j.append(doneEntry, id, nil); err != nil {
		return err
	}
	j.settle(id)
	return nil
}

// Known tells whether the journal has an intent for the command, and whether it
// was done.
func (j *Journal) Known(id string) (known, done bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	done, known = j.state[id]
	return known, done
}

// Pending lists the commands with an intent that are not done, oldest first.
func (j *Journal) Pending() []Command {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Command(nil), j.pending...)
}

// Cut is how many bytes at the end of the file were no entries when it was
// opened. An entry among them was never reported as written, unless the disk
// lost or changed bytes.
func (j *Journal) Cut() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cut
}

func (j *Journal) append(kind byte, id string, data []byte) error {
	if 1+len(id)+len(data) > MaxRecord {
		return ErrTooLarge
	}
	if err := j.open(); err != nil {
		return full(err)
	}
	n := recordSize(1+len(id), len(data))
	if cap(j.buf) < n {
		j.buf = make([]byte, n)
	}
	j.buf = j.buf[:n]
	putRecord(j.buf, j.n+1, append([]byte{kind}, id...), data)
	m, err := j.f.Write(j.buf)
	if err == nil && m < n {
		err = io.ErrShortWrite
	}
	if err != nil {
		j.torn = true
		return full(err)
	}
	j.off += int64(n)
	j.n++
	return nil
}

// open makes the file ready for the next entry.
func (j *Journal) open() error {
	if j.closed {
		return ErrClosed
	}
	if j.f == nil {
		f, err := os.OpenFile(j.path(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		j.f, j.sync = f, f.Sync
	}
	if j.torn {
		if err := j.f.Truncate(j.off); err != nil {
			return err
		}
		j.torn = false
	}
	if j.off == 0 {
		n, err := j.f.Write([]byte(journalMagic))
		if err != nil || n < len(journalMagic) {
			j.torn = true
			return errors.Join(err, io.ErrShortWrite)
		}
		j.off = int64(n)
	}
	return nil
}

func (j *Journal) flush() error {
	if err := j.sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	if j.synced {
		return nil
	}
	// The file is of use only with the directories that lead to it.
	for _, d := range []string{j.dir, filepath.Dir(j.dir)} {
		if err := durable.SyncDir(d); err != nil {
			return err
		}
	}
	j.synced = true
	return nil
}

func (j *Journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
