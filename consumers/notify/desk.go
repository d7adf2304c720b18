package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
)

// A desk decides, keeps and hands out. What it decides is staged; commit makes it
// durable and only then gives it to the lanes that deliver. A crash between the two
// is a redelivery, and what was told says that there is nothing more to decide.
type desk struct {
	dir  string
	log  *slog.Logger
	m    *metrics
	lock *os.File
	told *told
	dead *letters
	sent *sentLog

	commitMu sync.Mutex // held while staged records are written, in their order
	journal  *lineLog   // guarded by commitMu
	base     int64      // its size after the last snapshot

	mu         sync.Mutex // guards the rest
	st         *state
	stage      [][]byte // records to be written
	fresh      []*item  // of staged records
	freshMarks []*marks
	rules      *Rules
	sinks      map[string]*held
	lanes      map[string]*lane
	next       time.Time     // when the clock looks next
	wake       chan struct{} // has one when the clock is to look
	idle       bool          // nothing is delivered by this process
	start      func(*lane)   // starts a lane's goroutine; nil before Run and after it
	links      func(tenant, run string) string
}

// minCompact is the size from which a journal is worth being written anew.
const minCompact = 1 << 20

// openDesk opens what an earlier one left in dir. Another process that has it is an error.
func openDesk(dir string, toldAge time.Duration, log *slog.Logger, m *metrics) (d *desk, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	d = &desk{
		dir: dir, log: log, m: m, st: newState(), sinks: map[string]*held{}, lanes: map[string]*lane{},
		wake: make(chan struct{}, 1),
	}
	if d.lock, err = lockFile(filepath.Join(dir, "outbox.lock")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.close()
		}
	}()
	if d.told, err = openTold(filepath.Join(dir, "told"), toldAge); err != nil {
		return d, err
	}
	if d.dead, err = openLetters(filepath.Join(dir, "undelivered")); err != nil {
		return d, err
	}
	if d.sent, err = openSent(filepath.Join(dir, "sent")); err != nil {
		return d, err
	}
	var bad damage
	d.journal, bad, err = openLineLog(filepath.Join(dir, journalName), func(_ int64, body []byte) error {
		var r record
		if err := json.Unmarshal(body, &r); err != nil {
			return err
		}
		d.st.apply(&r, len(body))
		return nil
	})
	if err != nil {
		return d, err
	}
	if bad.Lines+d.told.bad.Lines > 0 || bad.Tail+d.told.bad.Tail > 0 {
		log.Warn("notify journal was damaged, what could be read is used", "lines", bad.Lines+d.told.bad.Lines, "tail_bytes", bad.Tail+d.told.bad.Tail)
	}
	return d, d.recover()
}

const journalName = "outbox.log"

// recover brings the told log up to the journal: a crash may have come between.
func (d *desk) recover() error {
	var late []*marks
	for _, m := range d.st.marks {
		late = append(late, m)
	}
	slices.SortFunc(late, func(a, b *marks) int { return a.At.Compare(b.At) })
	if err := d.told.put(late, time.Now()); err != nil {
		return err
	}
	clear(d.st.marks)
	for _, it := range d.st.items {
		it.durable = true
	}
	if d.st.since.IsZero() {
		d.mu.Lock()
		d.put(&record{Since: time.Now().UTC()})
		d.mu.Unlock()
	}
	return d.commit()
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the outbox: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("lock the outbox: %w", ErrBusy)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the outbox: %w", err)
	}
	return f, nil
}

// ErrBusy is returned when another process has the state directory.
var ErrBusy = errors.New("another cbcast notify uses this directory")

// put stages a record and applies it. The caller holds mu.
func (d *desk) put(r *record) {
	b, err := json.Marshal(r)
	if err != nil { // records hold nothing that cannot be marshalled
		panic(err)
	}
	d.st.apply(r, len(b))
	d.stage = append(d.stage, b)
	d.fresh = append(d.fresh, r.Items...)
	d.freshMarks = append(d.freshMarks, r.Marks...)
}

// commit makes durable what is staged, and gives the new items out. Callers at the
// same time share one write. After an error nothing is lost: it is staged again.
func (d *desk) commit() error {
	d.commitMu.Lock()
	defer d.commitMu.Unlock()
	d.mu.Lock()
	lines, items, all := d.stage, d.fresh, d.freshMarks
	d.stage, d.fresh, d.freshMarks = nil, nil, nil
	d.mu.Unlock()
	if len(lines)+len(items)+len(all) == 0 {
		return nil
	}
	back := func(err error) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stage, d.fresh, d.freshMarks = append(lines, d.stage...), append(items, d.fresh...), append(all, d.freshMarks...)
		return err
	}
	if err := d.dead.sync(); err != nil { // before what says that a notice is given up
		return back(err)
	}
	if len(lines) > 0 {
		var buf bytes.Buffer
		for _, b := range lines {
			buf.Write(appendLine(nil, b))
		}
		end, err := d.journal.write(buf.Bytes())
		if err == nil {
			err = d.journal.sync(end)
		}
		if err != nil {
			return back(err)
		}
		lines = nil
	}
	now := time.Now()
	if err := d.told.put(all, now); err != nil {
		return back(err)
	}
	d.mu.Lock()
	for _, m := range all {
		if d.st.marks[m.key()] == m {
			delete(d.st.marks, m.key())
		}
	}
	for _, it := range items {
		it.durable = true
		d.dispatch(it, now)
	}
	d.mu.Unlock()
	return d.compact()
}

// compact writes the journal anew when most of it is past. What is staged meanwhile is
// in it, whole: with its marks, and after the letters of what it gives up. That it is
// written again by its own commit changes nothing. The caller holds commitMu.
func (d *desk) compact() error {
	if n := d.journal.length(); n < minCompact || n < 4*d.base {
		return nil
	}
	d.mu.Lock()
	lines, err := d.st.snapshot()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if len(lines) > int(d.journal.length())*3/4 {
		d.base = d.journal.length() // all of it is alive
		return nil
	}
	return d.renew(lines)
}

// renew puts the lines of a snapshot in the place of the journal. The caller holds
// commitMu.
func (d *desk) renew(lines []byte) error {
	if err := d.dead.sync(); err != nil {
		return err
	}
	path := filepath.Join(d.dir, journalName)
	if err := durable.WriteFile(path, lines, 0o600); err != nil {
		return fmt.Errorf("compact the outbox: %w", err)
	}
	l, _, err := openLineLog(path, func(int64, []byte) error { return nil })
	if err != nil {
		return fmt.Errorf("compact the outbox: %w", err)
	}
	_ = d.journal.close()
	d.journal, d.base = l, l.length()
	return nil
}

// marksOf returns what was told of a run, to be changed and staged. The caller holds mu.
func (d *desk) marksOf(tenant, run string) (*marks, error) {
	if m := d.st.marks[tenant+"/"+run]; m != nil {
		return m.clone(), nil
	}
	m, err := d.told.get(tenant, run)
	if errors.Is(err, errBadLine) { // better told twice than never
		d.log.Warn("what was told of a run cannot be read", "run", run, "error", err)
		return &marks{Tenant: tenant, Run: run}, nil
	}
	return m, err
}

// dispatch gives a durable item to its lane, or leaves it to the clock. The caller
// holds mu.
func (d *desk) dispatch(it *item, now time.Time) {
	if d.st.items[it.ID] != it { // replaced or ended meanwhile
		return
	}
	if until := d.quietFor(it, now); until.After(now) && !it.Hold.After(now) {
		d.holdBack(it, until)
		d.poke(now)
		return
	}
	if it.Hold.After(now) {
		d.poke(it.Hold)
		return
	}
	d.admit(it, now)
}

// poke has the clock look at t, or before. The caller holds mu.
func (d *desk) poke(t time.Time) {
	if t.IsZero() || !d.next.IsZero() && !t.Before(d.next) {
		return
	}
	d.next = t
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *desk) rule(name string) *Rule {
	for _, r := range d.rules.Rules {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// drop stages the end of items that are not to be told. The caller holds mu.
func (d *desk) drop(how string, items ...*item) {
	r := &record{}
	for _, it := range items {
		d.leave(it)
		r.Gone = append(r.Gone, gone{it.ID, how})
		d.m.suppressed.WithLabelValues(how).Inc()
	}
	if len(r.Gone) > 0 {
		d.put(r)
	}
}

// noteOf is the notice of an item as its destination gets it.
func (d *desk) noteOf(it *item) *sink.Notice {
	stored := d.st.notes[it.Note]
	if stored == nil {
		return nil
	}
	n := *stored
	n.Kind, n.To, n.Mention, n.Attempt, n.Unsure = it.Kind, it.Target.At, it.Mention, it.Tries, it.Unsure
	if it.Text != "" {
		n.Note = it.Text
	}
	n.ID = noticeID(it.ID)
	if again := it.Kind == sink.Reminder || it.Kind == sink.Escalated; again && n.Since.IsZero() {
		n.Since, n.At = n.At, it.Made // the stored notice is that of the ask
	}
	return &n
}

func (d *desk) close() error {
	var errs []error
	for _, c := range []func() error{
		func() error { return closeLog(d.journal) },
		func() error {
			if d.told == nil {
				return nil
			}
			return d.told.close()
		},
		func() error {
			if d.sent == nil {
				return nil
			}
			return d.sent.close()
		},
		d.lock.Close,
	} {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func closeLog(l *lineLog) error {
	if l == nil {
		return nil
	}
	return l.close()
}
