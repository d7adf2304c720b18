package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

// A Dialer connects to the bus. It returns when it is connected or ctx ends. The
// edge closes what it gets.
type Dialer func(ctx context.Context) (*bus.Bus, error)

// Options say what to wrap and how.
type Options struct {
	Config

	Argv    []string     // the command; Argv[0] is searched in PATH
	Env     []string     // the child's whole environment
	Dialect dialect.Name // "" guesses from Argv[0]
	// HoldStdin keeps the parent's EOF back until no turn, task or ask is open.
	HoldStdin bool
	// Drive is what is told to a child without a host; nil is that there is one.
	Drive *Drive
	// Progress is given the run as it stands, a few times a second while it changes
	// and once at its end; Say gets remarks for whoever started it. Both may be nil.
	Progress func(run.View)
	Say      func(string)
	Stdin    *os.File
	Stdout   *os.File
	Stderr   *os.File

	Terminal bool // signals come from a terminal; see child.Config

	// Unusable says why nothing may be kept on this machine; nil is that it may.
	Unusable   error
	SpoolRoot  string
	Key        []byte // of keyed hashes, the same for all runs of a host
	Partitions int
	Labels     map[string]string // CI identity
	// TraceParent is the CI's own span around the job, see [TraceParent]; it goes on
	// the run's first event.
	TraceParent string
	Version     string
	Dial        Dialer // nil leaves everything in the spool
	// SyncInterval of the store: acknowledged events stay in the spool for twice
	// this time after the run.
	SyncInterval time.Duration
	// OnStart is told the run's id as soon as the child runs.
	OnStart func(id string)
	Source  string // tap, import, demo; "" is a wrapped child
	Log     *slog.Logger
}

// ErrRunUsed is the cause when [Config].RunID is that of another run.
var ErrRunUsed = errors.New("the id is that of another run")

// An Outcome is how a run ended, as its edge saw it.
type Outcome struct {
	Run     string
	Result  child.Result // zero for a tap or an import
	State   *run.State
	Last    uint64 // number of the last event
	Shipped bool   // every event is on the bus
	Why     error  // not, as far as it is known; [ErrRunUsed] is a cause
	Lost    event.Gap
	Driven  // zero without [Options.Drive]
}

// edge is one run being recorded and shipped.
type edge struct {
	o     Options
	id    string
	log   *slog.Logger
	rec   *recorder
	spool *spool.Spool
	start time.Time
	ship  *shipper

	dialect dialect.Name // as guessed before the child has said anything

	alone bool // nothing passes through beside the recording
	pipe  bool // there is no child, only what one wrote
	holds bool // the parent's EOF is kept back
	claimed
	driver *driver // nil where there is a host

	abilities *abilities
}

// newEdge makes the run's id, its spool and all that records. It does not wait for
// anything but the local file system.
func newEdge(o Options) (*edge, error) {
	e, err := newRun(o)
	if err != nil {
		return nil, err
	}
	return e, e.keep()
}

// newRun makes what a run has before anything is kept of it.
func newRun(o Options) (*edge, error) {
	if err := errors.Join(o.Unusable, o.Validate()); err != nil {
		return nil, err
	}
	id, err := o.runID()
	if err != nil {
		return nil, err
	}
	e := &edge{o: o, id: id, start: time.Now(), dialect: o.Dialect}
	e.log = o.Log.With("run", e.id)
	if e.dialect == "" && len(o.Argv) > 0 {
		e.dialect = dialect.FromArgv0(o.Argv[0])
	}
	track := dialect.NewTracker(e.dialect)
	track.SetOutput(dialect.OutputOf(o.Argv))
	e.holds = o.holds(track.Dialect())
	e.rec = &recorder{
		log: e.log, tenant: o.Tenant, run: e.id, allStdin: o.CaptureStdin == "all",
		track: track, state: run.New(e.id), inEOF: o.Stdin == nil,
		changed: make(chan struct{}, 1), active: make(chan struct{}, 1), watched: make(chan struct{}, 1),
		named: make(chan struct{}, 1),
	}
	if o.Progress != nil {
		e.rec.shown = make(chan struct{}, 1)
	}
	e.abilities = newAbilities(e.rec, o.Argv, o.Stdin != nil || e.holds)
	return e, nil
}

// keep makes the spool and the rest of what records.
func (e *edge) keep() (err error) {
	o := &e.o
	part := subject.Partition(e.id, o.Partitions)
	meta := spool.Meta{Run: e.id, Tenant: o.Tenant, Partition: part, Created: e.start, Data: mustJSON(flushInfo{
		Dialect: string(e.dialect), Labels: o.Labels, Version: o.Version, Source: o.Source,
	})}
	e.spool, err = spool.Create(o.SpoolRoot, meta, spool.Options{
		RunCap: o.SpoolRunMax, TotalCap: o.SpoolMax, SegmentSize: segmentSize(o.SpoolRunMax),
		Retain: 2 * o.SyncInterval, SyncEvery: 5 * time.Second,
	})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open the spool: %w: %w", ErrRunUsed, err)
	}
	if err != nil {
		return fmt.Errorf("open the spool: %w", err)
	}
	e.rec.spool = e.spool
	e.rec.red, err = redact.New(redact.Config{
		Key: o.Key, Env: o.Env, EnvNames: o.RedactEnv, Patterns: o.RedactPatterns, CaptureStdin: o.CaptureStdin == "all",
	})
	if err != nil {
		return errors.Join(fmt.Errorf("set up redaction: %w", err), e.spool.Remove())
	}
	e.ship = newShipper(e, bus.Ref{Tenant: o.Tenant, Run: e.id, Partition: part})
	return nil
}

// segmentSize is that of a run's spool files: room comes back one file at a
// time, so a small bound needs small ones.
func segmentSize(limit int64) int64 { return min(max(limit/8, 64<<10), 16<<20) }

// channel reports whether the child takes control messages: it was told to read
// stream-json, or its host speaks it.
func (e *edge) channel() bool {
	if appServer(e.o.Argv) {
		return true
	}
	if in, ok := flagValue(e.o.Argv, "--input-format"); ok {
		return in == "stream-json"
	}
	return e.rec.controlled.Load()
}

// finish gives the bus its time, then leaves the rest to the spool.
func (e *edge) finish(ctx context.Context, late <-chan struct{}) Outcome {
	e.ship.drain(ctx, e.o.ExitFlush, late)
	out := Outcome{Run: e.id, State: e.rec.state, Last: e.spool.Last(), Shipped: e.spool.Shipped(), Why: e.ship.why, Lost: e.rec.gone}
	var err error
	if e.spool.Removable(time.Now()) {
		err = e.spool.Remove()
	} else {
		err = e.spool.Close()
	}
	if err != nil {
		e.log.Error("close the spool", "error", err)
	}
	return out
}
