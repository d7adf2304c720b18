package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/health"
)

// Name is that of the consumers on the server.
const Name = "cbcast-metrics"

// Why all counts are made anew.
const (
	whyMissing = "no_snapshot"
	whyDamaged = "damaged_snapshot"
)

// Commits: a snapshot is a file of some hundred kilobytes and two fsyncs.
const (
	commitEvents = 20_000
	commitBytes  = 64 << 20
	commitShare  = 10 // a commit may take a tenth of the time
	tickEvery    = 10 * time.Second
	startEvery   = time.Second // until all logs are read
)

// Metrics counts what the bus has. Its methods may be called at any time.
type Metrics struct {
	o   Options
	reg *prometheus.Registry

	serial sync.Mutex // what is counted: Handle, Commit and the tick
	c      *tally
	fill   map[bus.Log]bus.Place // to be read before more is counted: up to here
	kick   chan struct{}         // has one when there is something to fill
	fresh  bool                  // there was no snapshot, and not all logs are read yet
	last   time.Time             // end of the last commit
	took   time.Duration         // of the last commit

	behind atomic.Bool // the counts are not loaded, or lack what fill says

	consumer *consume.Consumer
}

// New prepares the program. Nothing is read, from the disk or the bus, before Run.
func New(o Options) (*Metrics, error) {
	o = o.defaults()
	if o.Dir == "" {
		return nil, errors.New("metrics: no directory")
	}
	m := &Metrics{o: o, reg: prometheus.NewRegistry(), c: newTally(o), fill: map[bus.Log]bus.Place{}, kick: make(chan struct{}, 1)}
	m.behind.Store(true)
	var err error
	m.consumer, err = consume.New(consume.Config{
		Name: Name, Bus: o.Bus, Logs: consume.Logs(o.Partitions), Dir: o.Dir, Events: commitEvents, Bytes: commitBytes, Log: o.Log,
	}, handler{m})
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	for _, c := range []prometheus.Collector{m, m.consumer} {
		if err := m.reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// Describe and Collect are for [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { m.c.Describe(ch) }

// Collect gives all series as of one moment. While another instance counts, and while what
// that one counted is not counted here, there are none: their sudden rise would look like
// as many new runs.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	if m.behind.Load() || m.consumer.Status().Standby {
		return
	}
	m.c.Collect(ch)
}

// Metrics are the counts of the runs, and how the counting does.
func (m *Metrics) Metrics() health.Gatherer { return m.reg }

// Consumer reads the logs.
func (m *Metrics) Consumer() *consume.Consumer { return m.consumer }

// Ready says why the counts are not those of the bus, nil when they are, or while another
// instance counts.
func (m *Metrics) Ready() error { return m.consumer.Status().Err }

// Run counts until ctx ends. What was counted is on the disk then.
func (m *Metrics) Run(ctx context.Context) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.load(); err != nil {
		return err
	}
	tctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { m.tick(tctx) }) // ends with tctx
	defer wg.Wait()
	defer stop()
	return m.consumer.Run(ctx)
}

// lock holds the snapshot's directory. The consumer has a lock of its own, and takes it
// after the snapshot was read.
func (m *Metrics) lock() (unlock func(), err error) {
	if err := os.MkdirAll(m.o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("metrics' directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(m.o.Dir, "counts.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("metrics' directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s: %w", consume.ErrDirUsed, m.o.Dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// load reads the snapshot. Where there is none to use, all that the bus has is counted.
func (m *Metrics) load() error {
	m.serial.Lock()
	defer m.serial.Unlock()
	err := m.c.load(m.o.Dir)
	if err == nil {
		m.o.Log.Info("counts loaded", "saved", m.c.saved, "live_runs", len(m.c.live))
		m.reveal()
		return nil
	}
	why := whyMissing
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged):
		why = whyDamaged
		m.o.Log.Error("the counts' snapshot is damaged; all is counted again from the streams", "kept_as", damagedFile, "error", err)
		if err := setAside(m.o.Dir); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	default:
		return fmt.Errorf("metrics: %w", err)
	}
	// Reading begins where the server says; what was acked before that is read by catchUp.
	m.take(newTally(m.o))
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.inc(mRebuilds, why)
	m.fresh = true
	return nil
}

// take replaces the counts. The tally itself stays: scrapes hold on to it.
func (m *Metrics) take(from *tally) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	c := m.c
	c.book, c.sets, c.live, c.folds = from.book, from.sets, from.live, from.folds
	c.ended, c.lost, c.sessions = from.ended, from.lost, from.sessions
	c.places, c.holes, c.newest = from.places, from.holes, from.newest
}

// tick settles what only time settles, and what no entry brings.
func (m *Metrics) tick(ctx context.Context) {
	t := time.NewTimer(startEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-m.kick:
		case <-ctx.Done():
			return
		}
		every, err := m.settle(ctx)
		if err != nil && ctx.Err() == nil {
			m.o.Log.Warn("what was read before is not counted yet", "error", err)
		}
		t.Reset(every)
	}
}

// settle says when to call it again.
func (m *Metrics) settle(ctx context.Context) (time.Duration, error) {
	m.serial.Lock()
	defer m.serial.Unlock()
	st := m.consumer.Status()
	reading := len(st.Logs) > 0
	for _, l := range st.Logs {
		if reading = reading && l.Reading; l.Reading && l.At.Seq > m.c.places[l.Log].Seq && l.At.Seq > m.fill[l.Log].Seq {
			m.fill[l.Log] = l.At // acked, and not by this instance
		}
	}
	if err := m.catchUp(ctx); err != nil {
		return startEvery, err
	}
	if !reading {
		return startEvery, nil
	}
	m.fresh = false
	m.reveal()
	if st.Ready && st.Lag == 0 {
		m.c.expire(m.o.now().Add(-lostSlack))
	}
	return tickEvery, nil
}

// reveal shows the counts if they are whole.
func (m *Metrics) reveal() { m.behind.Store(m.fresh || len(m.fill) > 0) }

// catchUp counts what lies between the counts and the place from where a log is given:
// another instance read it, or there was no snapshot of this one.
func (m *Metrics) catchUp(ctx context.Context) error {
	if len(m.fill) == 0 {
		return nil
	}
	if err := m.c.replay(ctx, m.o.Bus, m.fill); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	for log, to := range m.fill {
		m.c.begun(log, to)
	}
	clear(m.fill)
	m.reveal()
	return nil
}

// handler is what [consume] calls.
type handler struct{ m *Metrics }

func (h handler) Handle(ctx context.Context, e *consume.Entry) error {
	m := h.m
	m.serial.Lock()
	defer m.serial.Unlock()
	if err := m.catchUp(ctx); err != nil {
		return errors.Join(consume.ErrAgain, err)
	}
	return m.c.apply(ctx, e.Log, e.At, e.Event, e.Bad)
}

// Commit writes the snapshot. Where that takes long, for there are very many live runs, it
// is done less often: nothing is acked meanwhile.
func (h handler) Commit(_ context.Context, pressed bool) (map[bus.Log]bus.Place, error) {
	m := h.m
	m.serial.Lock()
	defer m.serial.Unlock()
	if begin := time.Now(); !pressed && begin.Sub(m.last) < commitShare*m.took {
		return map[bus.Log]bus.Place{}, nil
	}
	begin := time.Now()
	if err := m.c.save(m.o.Dir); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m.last = time.Now()
	m.took = m.last.Sub(begin)
	return nil, nil
}

func (h handler) Begun(log bus.Log, after bus.Place) {
	h.m.serial.Lock()
	defer h.m.serial.Unlock()
	if after.Seq > h.m.c.places[log].Seq {
		h.m.fill[log] = after
		h.m.reveal()
		select {
		case h.m.kick <- struct{}{}:
		default:
		}
	} else {
		h.m.c.begun(log, after)
	}
}

func (h handler) Rebuilt(log bus.Log, after bus.Place) {
	h.m.serial.Lock()
	defer h.m.serial.Unlock()
	delete(h.m.fill, log)
	h.m.reveal()
	h.m.c.rebuilt(log, after)
}
