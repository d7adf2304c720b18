package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/testbus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPartitions = 2

var streams = bus.Topology{MaxBytes: 256 << 20, Partitions: testPartitions}

type world struct {
	t   *testing.T
	srv *natsd.Server
	b   *bus.Bus
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	w.srv, w.b = testbus.Start(t, streams)
	return w
}

func (w *world) connect() *bus.Bus {
	w.t.Helper()
	return testbus.Connect(w.t, bus.Config{InProcess: w.srv}, streams)
}

func (w *world) publish(list testbus.Events) {
	w.t.Helper()
	testbus.Publish(w.t, w.b, testPartitions, list)
}

// fill publishes recordings, several at a time, and facts of a relay.
func (w *world) fill(from, step int) {
	w.t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i, name := range capture.List() {
		if i%step != from {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() { // ends with its run
			defer func() { <-slots }()
			run := fmt.Sprintf("r%03d", i)
			w.publish(captured(w.t, name, fmt.Sprint("t", i%3), run))
			if i%7 == 0 {
				w.control(fact(fmt.Sprint("t", i%3), run, event.TypeCommandFact, "cmd-c", event.CommandFact{Command: "c", Name: "interrupt", Fact: event.Expired}))
			}
		})
	}
	wg.Wait()
}

func (w *world) control(e *event.Event) {
	w.t.Helper()
	e.Time = capture.Start
	if _, err := w.b.PutControl(w.t.Context(), e, e.Ref, 0); err != nil {
		w.t.Error(err)
	}
}

func (w *world) options(dir string) Options {
	return Options{Dir: dir, Bus: w.b, Partitions: testPartitions, Version: "1", Revision: "r"}
}

// start runs the program until stop is called.
func (w *world) start(dir string) (m *Metrics, stop func()) {
	w.t.Helper()
	o := w.options(dir)
	o.Bus = w.connect()
	m, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				w.t.Errorf("Run: %v", err)
			}
			o.Bus.Close()
		})
	}
	w.t.Cleanup(stop)
	return m, stop
}

// heads are the ends of all logs.
func (w *world) heads() map[bus.Log]uint64 {
	w.t.Helper()
	m := map[bus.Log]uint64{}
	for _, log := range consume.Logs(testPartitions) {
		n, err := w.b.HeadLog(w.t.Context(), log)
		if err != nil {
			w.t.Fatal(err)
		}
		m[log] = n
	}
	return m
}

// caughtUp waits until everything that the bus has is counted.
func (w *world) caughtUp(m *Metrics) {
	w.t.Helper()
	heads := w.heads()
	for begin := time.Now(); ; <-time.After(5 * time.Millisecond) {
		m.c.mu.Lock()
		ok := true
		for log, n := range heads {
			ok = ok && m.c.places[log].Seq >= n && len(m.c.holes[log].all()) == 0
		}
		m.c.mu.Unlock()
		if ok {
			return
		}
		if time.Since(begin) > testbus.Long {
			w.t.Fatalf("not caught up: %+v", m.consumer.Status())
		}
	}
}

// recount is what the bus has, from the beginning.
func (w *world) recount() map[string]string {
	w.t.Helper()
	text, err := Once(w.t.Context(), w.options(""))
	if err != nil {
		w.t.Fatal(err)
	}
	return parse(string(text))
}

// parse reads the text form into a map, without what tells of the process or the clock.
func parse(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			m[line[:i]] = line[i+1:]
		}
	}
	for k := range m {
		name := strings.TrimPrefix(k, prefix)
		for _, d := range timed {
			if strings.HasPrefix(name, d.name) {
				delete(m, k)
			}
		}
	}
	return m
}

func (m *Metrics) shown() map[string]string {
	text, err := m.c.text()
	if err != nil {
		panic(err)
	}
	return parse(string(text))
}

func (w *world) same(name string, m *Metrics) {
	w.t.Helper()
	w.caughtUp(m)
	if d := cmp.Diff(w.recount(), m.shown()); d != "" {
		w.t.Errorf("%s: the counts are not those of the bus (-recount +counts):\n%s", name, d)
	}
}

// What is shown equals a recount: while it runs, after a restart, by another instance that
// takes over, with an old snapshot, with a damaged one and without any.
func TestServiceCountsTheBus(t *testing.T) {
	w := newWorld(t)
	w.fill(0, 30)
	dir := filepath.Join(t.TempDir(), "a")
	m, stop := w.start(dir)
	w.fill(1, 30)
	w.same("the first", m)
	stop()
	old, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	if err != nil {
		t.Fatal(err)
	}

	w.fill(2, 30)
	m, stop = w.start(dir)
	w.same("after a restart", m)
	if n := m.c.sum(mRebuilds); n != 1 {
		t.Errorf("counted anew %d times, want 1: at the very first start", n)
	}
	stop()

	w.fill(3, 30)
	m, stop = w.start(filepath.Join(t.TempDir(), "b"))
	w.same("another instance", m)
	stop()

	// The first one comes back: what the other one has read is between its snapshot and
	// the place from where reading goes on.
	w.fill(4, 30)
	m, stop = w.start(dir)
	w.same("the first again", m)
	stop()

	if err := os.WriteFile(filepath.Join(dir, snapshotFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	w.fill(5, 30)
	m, stop = w.start(dir)
	w.same("with an old snapshot", m)
	stop()

	now, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	if err != nil {
		t.Fatal(err)
	}
	now[len(now)/2] ^= 1
	if err := os.WriteFile(filepath.Join(dir, snapshotFile), now, 0o600); err != nil {
		t.Fatal(err)
	}
	m, stop = w.start(dir)
	w.same("with a damaged snapshot", m)
	if n := m.c.sum(mRebuilds, "why", whyDamaged); n != 1 {
		t.Errorf("damaged_snapshot is counted %d times, want 1", n)
	}
	if got, err := os.ReadFile(filepath.Join(dir, damagedFile)); err != nil || !slices.Equal(got, now) {
		t.Errorf("the damaged snapshot is not kept: %v", err)
	}
	stop()
}

// One process holds a directory.
func TestOneProcessADirectory(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	m, _ := w.start(dir)
	w.await("the first to hold it", func() bool { return m.consumer.Status().Ready })
	o := w.options(dir)
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, consume.ErrDirUsed) {
		t.Errorf("error %v, want %v", err, consume.ErrDirUsed)
	}
}

// A stand-by shows nothing of the runs: its counts are old, and would be added to those of
// the instance that counts.
func TestStandbyShowsNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(0, 40)
	a, stopA := w.start(t.TempDir())
	w.caughtUp(a)
	b, _ := w.start(t.TempDir())
	w.await("a stand-by", func() bool { return b.consumer.Status().Standby })
	if families(t, b)[prefix+mStarted.name] {
		t.Error("the stand-by shows counts")
	}
	w.await("the counts of the instance that counts", func() bool { return families(t, a)[prefix+mStarted.name] })
	w.fill(1, 40)
	w.caughtUp(a)
	stopA()
	w.await("the take-over", func() bool { return !b.consumer.Status().Standby && b.Ready() == nil })
	w.fill(2, 40)
	w.same("after the take-over", b)
	w.await("the counts of the new instance", func() bool { return families(t, b)[prefix+mStarted.name] })
}

func families(t *testing.T, m *Metrics) map[string]bool {
	t.Helper()
	list, err := m.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range list {
		names[f.GetName()] = true
	}
	return names
}

func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	for begin := time.Now(); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Since(begin) > testbus.Long {
			w.t.Fatalf("waited too long for %s", what)
		}
	}
}
