package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
)

// Name is that of the durable consumers on the server.
const Name = "cbcast-notify"

// Config is what the environment says. The tags name variables with the prefix
// CBCAST_NOTIFY_, which only cmd reads.
type Config struct {
	// Rules is the rules file.
	Rules string `env:"RULES"`
	// Addr is where health, metrics and the request URLs of Slack are served.
	Addr string `env:"ADDR" envDefault:"127.0.0.1:8422"`
	// ToldAge is how long it is remembered what was told of a run.
	ToldAge time.Duration `env:"TOLD_AGE" envDefault:"2160h"`
	// RelayURL and RelayToken (or the file) are how clicks reach the runs; empty is
	// this machine's relay and its token.
	RelayURL       string `env:"RELAY_URL"`
	RelayToken     string `env:"RELAY_TOKEN"`
	RelayTokenFile string `env:"RELAY_TOKEN_FILE"`
}

// Options are what a [Notifier] works with.
type Options struct {
	Config     Config
	Dir        string // of its state
	Bus        *bus.Bus
	Partitions int
	// PublicURL is where people find the relay, "" for no links; the rules file's own
	// wins.
	PublicURL string
	Env       Lookup     // for secrets by reference; nil finds none
	Actor     sink.Actor // nil: buttons do nothing and are not shown
	Exec      sink.Exec  // nil: no destination may be a command
	Log       *slog.Logger
	// Idle opens no destination: for Do alone, which needs none of their secrets. What it
	// queues is sent by the next one.
	Idle bool
}

// A Notifier tells people what happens to runs. See the package.
type Notifier struct {
	o        Options
	d        *desk
	folds    *consume.Folds
	consumer *consume.Consumer
	closing  sync.Once
	ctx      context.Context // of Run, under the desk's mu; nil before

	mu     sync.Mutex // guards rules' reading
	failed error      // why the rules file is not the one in use
}

// New opens the state in Options.Dir, which no other process may have, and reads the
// rules. Nothing is read from the bus or sent before Run.
func New(o Options) (*Notifier, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Config.ToldAge <= 0 {
		o.Config.ToldAge = 90 * 24 * time.Hour
	}
	rules, err := LoadFile(o.Config.Rules)
	if err != nil {
		return nil, err
	}
	n := &Notifier{o: o, folds: &consume.Folds{Bus: o.Bus, Partitions: o.Partitions, Controls: true}}
	if n.d, err = openDesk(o.Dir, o.Config.ToldAge, o.Log, newMetrics()); err != nil {
		return nil, err
	}
	n.d.idle = o.Idle
	n.d.m.reg.MustRegister(gauges{n.d})
	if err := n.use(rules); err != nil {
		return nil, errors.Join(err, n.d.close())
	}
	if o.Bus != nil {
		n.consumer, err = consume.New(consume.Config{
			Name: Name, Bus: o.Bus, Logs: consume.Logs(o.Partitions), Dir: o.Dir, Every: commitEvery, Events: 500, Log: o.Log,
		}, n)
		if err != nil {
			return nil, errors.Join(err, n.d.close())
		}
		n.d.m.reg.MustRegister(n.consumer)
	}
	return n, nil
}

// commitEvery bounds how long a decision waits for the disk.
const commitEvery = 100 * time.Millisecond

// use puts rules in the place of those before. A destination that has not changed
// goes on as it is. After an error everything is as before.
func (n *Notifier) use(r *Rules) error {
	d := n.d
	opened := map[string]*held{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.Destinations)) {
		if n.o.Idle {
			break
		}
		set, err := r.Destinations[name].resolved(n.o.Env)
		if err != nil {
			errs = append(errs, r.about(name, nil, err)...)
		} else if err := n.open(opened, name, set); err != nil {
			errs = append(errs, r.about(name, set.hidden, err)...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		for name, h := range opened {
			if d.sinks[name] != h {
				_ = h.shut()
			}
		}
		return err
	}
	d.mu.Lock()
	old := d.sinks
	d.rules, d.sinks = r, opened
	if n.ctx != nil {
		for name, h := range opened {
			if old[name] != h {
				h.listen(n.ctx, n.o.Log)
			}
		}
	}
	d.links = linker(n.o.PublicURL, r.PublicURL)
	for _, l := range d.lanes {
		d.limit(l)
		l.poke()
	}
	var unused []*held
	for name, h := range old {
		if opened[name] != h {
			h.retired = true
			unused = append(unused, h)
		}
		if r.Destinations[name] == nil {
			d.m.forget(name)
		}
	}
	d.next = time.Time{}
	d.poke(time.Now())
	d.mu.Unlock()
	for _, h := range unused {
		d.release(h)
	}
	return nil
}

// linker makes the address of a run's page.
func linker(env, file string) func(tenant, run string) string {
	base := strings.TrimRight(file, "/")
	if base == "" {
		base = strings.TrimRight(env, "/")
	}
	return func(_, run string) string {
		if base == "" || run == "" {
			return ""
		}
		return base + "/#/run/" + url.PathEscape(run)
	}
}

// Reload reads the rules file again. A bad one changes nothing but the readiness,
// the log and a metric.
func (n *Notifier) Reload() error {
	rules, err := LoadFile(n.o.Config.Rules)
	if err == nil {
		err = n.use(rules)
	}
	n.mu.Lock()
	n.failed = err
	n.mu.Unlock()
	if err != nil {
		n.d.m.reload.WithLabelValues("failed").Inc()
		n.d.m.reloadOK.Set(0)
		n.o.Log.Error("rules not read, the old ones stay in use", "error", err)
		return err
	}
	n.d.m.reload.WithLabelValues("ok").Inc()
	n.d.m.reloadOK.Set(1)
	n.o.Log.Info("rules read", "rules", len(rules.Rules), "destinations", len(rules.Destinations))
	return nil
}

// Handle implements [consume.Handler].
func (n *Notifier) Handle(ctx context.Context, e *consume.Entry) error {
	ev := e.Event
	if ev == nil || ev.Type == event.TypeAudit {
		return nil
	}
	if n.d.told.forgotten(ev.Tenant, ev.Run) {
		n.folds.Drop(ev.Run)
		return nil
	}
	if ev.Type == event.TypeLost || ev.Type == event.TypeResumed {
		over, err := n.d.over(ev.Tenant, ev.Run)
		if err != nil || over {
			return err
		}
	}
	st, err := n.folds.At(ctx, e)
	if err != nil {
		return err
	}
	n.folds.Apply(e)
	if err := n.d.decide(ev, st, e.At.Time); err != nil {
		return err
	}
	if ev.Type == event.TypeExited {
		n.folds.Drop(ev.Run)
	}
	return nil
}

// over reports whether a run's end was told.
func (d *desk) over(tenant, run string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.marksOf(tenant, run)
	return err == nil && m.End != "", err
}

// Commit implements [consume.Handler]: what was decided is on the disk when it
// returns, so all that was handled may be acked.
func (n *Notifier) Commit(context.Context, bool) (map[bus.Log]bus.Place, error) {
	return nil, n.d.commit()
}

// Run reads and delivers until ctx ends, and closes the notifier. What was decided
// and not delivered is delivered by the next one.
func (n *Notifier) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.Close()) }()
	n.o.Log.Info("notify runs", "rules", n.o.Config.Rules)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer n.deliver(ctx, &wg)()
	wg.Go(func() { n.requests(ctx) })
	if n.consumer != nil {
		return n.consumer.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// deliver starts the lanes and the clock, which end with ctx. No further lane is
// started after stop.
func (n *Notifier) deliver(ctx context.Context, wg *sync.WaitGroup) (stop func()) {
	d := n.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start = func(l *lane) { wg.Go(func() { d.work(ctx, l) }) }
	for _, l := range d.lanes {
		d.start(l)
	}
	n.ctx = ctx
	for _, h := range d.sinks {
		h.listen(ctx, n.o.Log)
	}
	wg.Go(func() { d.clock(ctx) })
	return func() {
		d.mu.Lock()
		d.start = nil
		d.mu.Unlock()
	}
}

// Close frees what New opened, where Run is not called.
func (n *Notifier) Close() (err error) {
	n.closing.Do(func() {
		err = n.d.commit()
		for _, h := range n.d.sinks {
			err = errors.Join(err, h.shut())
		}
		err = errors.Join(err, n.d.close())
	})
	return err
}

// Ready says why it is not ready, nil when it is.
func (n *Notifier) Ready() error {
	n.mu.Lock()
	failed := n.failed
	n.mu.Unlock()
	var fe *FileError
	switch {
	case errors.As(failed, &fe): // it may show what stands there: a secret, by mistake
		failed = fmt.Errorf("rules file not in use: it is wrong in line %d, column %d; the log says how", fe.Line, fe.Column)
	case failed != nil:
		failed = fmt.Errorf("rules file not in use: %w", failed)
	}
	if n.consumer == nil {
		return failed
	}
	return errors.Join(failed, n.consumer.Status().Err)
}

// Consumer is what reads the bus, nil without one.
func (n *Notifier) Consumer() *consume.Consumer { return n.consumer }

// Metrics are notify's own.
func (n *Notifier) Metrics() prometheus.Gatherer { return n.d.m.reg }
