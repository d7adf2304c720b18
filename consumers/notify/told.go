package notify

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
)

// marks is what was told of one run, whoever was told. Asks are numbered and
// facts are in order, so that the latest of each says it for all before it.
type marks struct {
	Tenant  string    `json:"tenant,omitempty"`
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	Ask     int       `json:"ask,omitempty"`     // the highest number told
	Late    []string  `json:"late,omitempty"`    // asks told after one with a higher number
	Skipped []string  `json:"skipped,omitempty"` // asks that a rule of the edge's policy was to decide
	Stalled uint64    `json:"stalled,omitempty"` // seq of the latest such fact
	Stalls  int       `json:"stalls,omitempty"`
	Lost    string    `json:"lost,omitempty"` // the latest such fact's ref
	Losses  int       `json:"losses,omitempty"`
	Resumed string    `json:"resumed,omitempty"`
	End     sink.Kind `json:"end,omitempty"` // how its end was told
	// LostTo are those who were told of the loss and not yet that it holds no more.
	LostTo []target `json:"lost_to,omitempty"`
	// Refs are the run's messages by target.
	Refs map[string]*sink.Ref `json:"refs,omitempty"`
	// Gone stands for a run that is forgotten: nothing else is there then but At.
	Gone string `json:"gone,omitempty"`
}

func (m *marks) key() string { return m.Tenant + "/" + m.Run }

func (m *marks) clone() *marks {
	c := *m
	c.Late, c.Skipped, c.LostTo = slices.Clone(m.Late), slices.Clone(m.Skipped), slices.Clone(m.LostTo)
	c.Refs = make(map[string]*sink.Ref, len(m.Refs))
	for k, v := range m.Refs {
		c.Refs[k] = v
	}
	return &c
}

// toldSegment is the size from which a new file is begun.
const toldSegment = 4 << 20

// told is the log of what was told already, in files of its own with a retention
// of its own: restarts, a journal that was removed and a stream that is read again
// do not repeat a notice. The last line of a run says everything about it. In
// memory are 12 bytes for each run of a full file, and a map for the last file.
type told struct {
	dir string
	age time.Duration

	mu     sync.Mutex
	sealed []*toldFile // oldest first
	last   *toldFile
	gone   map[string]bool // runs that are forgotten, by their marks
	log    *lineLog        // of last
	bad    damage          // found when it was opened
}

type toldFile struct {
	n      int
	path   string
	newest time.Time
	hashes []uint64 // sorted; of a sealed file
	places []uint32
	open   map[uint64]uint32 // of the last one
}

func openTold(dir string, age time.Duration) (*told, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the told log: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "told-*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	t := &told{dir: dir, age: age, gone: map[string]bool{}}
	for i, name := range names {
		f := &toldFile{path: name, open: map[uint64]uint32{}}
		if _, err := fmt.Sscanf(filepath.Base(name), "told-%d.log", &f.n); err != nil {
			continue
		}
		if i < len(names)-1 {
			err = t.load(f)
		} else {
			err = t.openLast(f)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.last == nil {
		return t, t.openLast(t.file(1))
	}
	return t, nil
}

func (t *told) file(n int) *toldFile {
	return &toldFile{n: n, path: filepath.Join(t.dir, fmt.Sprintf("told-%08d.log", n)), open: map[uint64]uint32{}}
}

// note takes up a line of a file.
func (t *told) note(f *toldFile, off int64, body []byte) error {
	var m marks
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	if m.Gone != "" {
		t.gone[m.Gone] = true
	} else {
		f.open[hashRun(m.Tenant, m.Run)] = uint32(off)
	}
	if m.At.After(f.newest) {
		f.newest = m.At
	}
	return nil
}

func (t *told) load(f *toldFile) error {
	r, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("open told log: %w", err)
	}
	defer r.Close()
	d, _, err := scanLines(r, func(off int64, body []byte) error { return t.note(f, off, body) })
	if err != nil {
		return fmt.Errorf("read told log: %w", err)
	}
	t.bad.Lines += d.Lines
	t.bad.Tail += d.Tail
	f.seal()
	t.sealed = append(t.sealed, f)
	return nil
}

func (t *told) openLast(f *toldFile) (err error) {
	var d damage
	t.log, d, err = openLineLog(f.path, func(off int64, body []byte) error { return t.note(f, off, body) })
	t.bad.Lines += d.Lines
	t.bad.Tail += d.Tail
	t.last = f
	return err
}

// seal turns the map of a full file into sorted arrays.
func (f *toldFile) seal() {
	type pair struct {
		h uint64
		p uint32
	}
	all := make([]pair, 0, len(f.open))
	for h, p := range f.open {
		all = append(all, pair{h, p})
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Compare(a.h, b.h) })
	f.hashes, f.places = make([]uint64, len(all)), make([]uint32, len(all))
	for i, p := range all {
		f.hashes[i], f.places[i] = p.h, p.p
	}
	f.open = nil
}

func (f *toldFile) find(h uint64) (uint32, bool) {
	if f.open != nil {
		p, ok := f.open[h]
		return p, ok
	}
	i, ok := slices.BinarySearch(f.hashes, h)
	if !ok {
		return 0, false
	}
	return f.places[i], true
}

func hashRun(tenant, run string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, tenant+"\x00"+run)
	return h.Sum64()
}

// get returns what was told of a run; of one that nothing is known of, empty marks.
// The caller may change them.
func (t *told) get(tenant, run string) (*marks, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := hashRun(tenant, run)
	for i := len(t.sealed); i >= 0; i-- {
		f := t.last
		if i < len(t.sealed) {
			f = t.sealed[i]
		}
		off, ok := f.find(h)
		if !ok {
			continue
		}
		m, err := readMarks(f.path, int64(off))
		if err != nil {
			return nil, err
		}
		if m.Run == run && m.Tenant == tenant { // not another with the same hash
			return m, nil
		}
	}
	return &marks{Tenant: tenant, Run: run}, nil
}

func readMarks(path string, off int64) (*marks, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read told log: %w", err)
	}
	defer f.Close()
	line, err := readLine(bufio.NewReader(io.NewSectionReader(f, off, maxLine)), nil)
	body, ok := checkLine(line)
	if err != nil || !ok {
		return nil, fmt.Errorf("read told log at %d: %w", off, errors.Join(err, errBadLine))
	}
	m := &marks{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("read told log at %d: %w", off, err)
	}
	return m, nil
}

var errBadLine = errors.New("damaged line")

// put appends marks and returns when they are on the disk. Files that are older
// than the retention go when a new one is begun.
func (t *told) put(all []*marks, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = slices.DeleteFunc(slices.Clone(all), func(m *marks) bool { return m.Gone == "" && t.gone[forgottenMark(m.Tenant, m.Run)] })
	if len(all) == 0 {
		return nil
	}
	return t.append(all, now)
}

// append is put. The caller holds mu.
func (t *told) append(all []*marks, now time.Time) error {
	var lines []byte
	places := make([]int, len(all))
	for i, m := range all {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		places[i] = len(lines)
		lines = appendLine(lines, b)
	}
	start := t.log.length()
	end, err := t.log.write(lines)
	if err == nil {
		err = t.log.sync(end)
	}
	if err != nil {
		return err
	}
	for i, m := range all {
		if m.Gone != "" {
			t.gone[m.Gone] = true
		} else {
			t.last.open[hashRun(m.Tenant, m.Run)] = uint32(start + int64(places[i]))
		}
		if m.At.After(t.last.newest) {
			t.last.newest = m.At
		}
	}
	if end < toldSegment {
		return nil
	}
	return t.roll(now)
}

// roll begins a new file and removes those that are too old.
func (t *told) roll(now time.Time) error {
	old, oldLog := t.last, t.log
	if err := t.openLast(t.file(old.n + 1)); err != nil {
		t.last, t.log = old, oldLog
		return err
	}
	_ = oldLog.close()
	old.seal()
	t.sealed = append(t.sealed, old)
	for len(t.sealed) > 0 && now.Sub(t.sealed[0].newest) > t.age {
		if err := durable.Remove(t.sealed[0].path); err != nil {
			return err
		}
		t.sealed = t.sealed[1:]
	}
	return nil
}

// forgotten reports whether a run is one that nothing is told of any more.
func (t *told) forgotten(tenant, run string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.gone) > 0 && t.gone[forgottenMark(tenant, run)]
}

// files are all, the oldest first. The caller holds mu.
func (t *told) files() []*toldFile { return append(slices.Clone(t.sealed), t.last) }

// each reads what is kept of every run, of some several times, the latest last.
func (t *told) each(fn func(*marks)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files() {
		err := readLog(f.path, func(body []byte) error {
			var m marks
			if err := json.Unmarshal(body, &m); err != nil {
				return err
			}
			if m.Gone == "" {
				fn(&m)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read told log: %w", err)
		}
	}
	return nil
}

// forget notes that a run is forgotten and then takes it out of every file.
func (t *told) forget(name runName, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.append([]*marks{{At: now.UTC(), Gone: forgottenMark(name.tenant, name.run)}}, now); err != nil {
		return err
	}
	for i, f := range t.files() {
		var out []byte
		found := false
		err := readLog(f.path, func(body []byte) error {
			var m marks
			if json.Unmarshal(body, &m) != nil {
				return nil
			}
			if m.Gone == "" && m.Run == name.run && m.Tenant == name.tenant {
				found = true
				return nil
			}
			out = appendLine(out, body)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read told log: %w", err)
		}
		if !found {
			continue
		}
		if err := durable.WriteFile(f.path, out, 0o600); err != nil {
			return fmt.Errorf("write told log: %w", err)
		}
		if err := t.again(i, f); err != nil {
			return err
		}
	}
	return nil
}

// again takes up a file that was written anew: the places in it are others.
func (t *told) again(i int, old *toldFile) error {
	f := &toldFile{n: old.n, path: old.path, open: map[uint64]uint32{}}
	if old == t.last {
		log := t.log
		if err := t.openLast(f); err != nil {
			t.last, t.log = old, log
			return err
		}
		return log.close()
	}
	sealed := t.sealed
	t.sealed = nil
	err := t.load(f)
	if err == nil {
		sealed[i] = t.sealed[0]
	}
	t.sealed = sealed
	return err
}

// runs counts the runs that are known, files that repeat one several times.
func (t *told) runs() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.sealed {
		n += len(f.hashes)
	}
	return n + len(t.last.open)
}

func (t *told) close() error { return t.log.close() }

// askNumber is n of an ask "an", 0 where it has another form.
func askNumber(id string) (n int) {
	if _, err := fmt.Sscanf(strings.TrimPrefix(id, "a"), "%d", &n); err != nil {
		return 0
	}
	return n
}
