package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/test/testbus"
)

// A machine east of UTC, where the day of a message is another for eight hours. It is set
// once, before a server runs that reads the zone, too.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("CST", 8*3600)
	if os.Getenv(envCrash) != "" {
		os.Exit(crashChild())
	}
	goleak.VerifyTestMain(m)
}

// long is a safety net: nothing here takes that long.
const long = 3 * time.Minute

const tenant = "acme"

// A rig is a bus with a real server, and a directory for an archive.
type rig struct {
	t      *testing.T
	server *natsd.Server
	bus    *bus.Bus
	cfg    Config
	dir    string // of state
	sent   map[string]*run
}

// A run is what was published of one.
type run struct {
	tenant, id string
	n          uint64
	data       func(n uint64) *event.Event
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, server: testbus.Serve(t, natsd.Options{DontListen: true}), dir: filepath.Join(t.TempDir(), "state"), sent: map[string]*run{}}
	r.cfg = Config{
		Dest: filepath.Join(t.TempDir(), "archive"), SealBytes: 64 << 20, SealAge: minSealAge, HeadsBehind: 100,
		OpenSegments: 64, Memory: 8 << 20, Window: 20_000,
	}
	r.bus = r.connect()
	return r
}

func (r *rig) connect() *bus.Bus {
	r.t.Helper()
	return testbus.Connect(r.t, bus.Config{InProcess: r.server}, testbus.Streams)
}

func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("ARCHIVE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ev is the n-th event of a run: a line of its agent, unless the run says otherwise.
func (u *run) ev(n uint64) *event.Event {
	if u.data != nil {
		if e := u.data(n); e != nil {
			e.Tenant, e.Run, e.Seq = u.tenant, u.id, n
			if e.Time.IsZero() {
				e.Time = time.Unix(1e9, int64(n)).UTC()
			}
			return e
		}
	}
	return &event.Event{
		Tenant: u.tenant, Run: u.id, Seq: n, Time: time.Unix(1e9, int64(n)).UTC(), Type: "dev.cbcast.claude.assistant",
		Kind: event.Msg, Stream: event.Out, ContentType: event.JSON, Data: fmt.Appendf(nil, `{"run":%q, "n":%d}`, u.id, n),
	}
}

// Event, Wait and Acked make a run a source of a publisher.
func (u *run) Event(n uint64) (*event.Event, bool, error) {
	if n > u.n {
		return nil, false, nil
	}
	return u.ev(n), true, nil
}

func (u *run) Wait(_ context.Context, n uint64) error {
	if n > u.n {
		return bus.ErrDone
	}
	return nil
}
func (u *run) Acked(uint64) {}

// publish adds n events to a run.
func (r *rig) publish(tenant, id string, n uint64, data ...func(uint64) *event.Event) *run {
	r.t.Helper()
	u := r.sent[id]
	if u == nil {
		u = &run{tenant: tenant, id: id}
		r.sent[id] = u
	}
	if len(data) > 0 {
		u.data = data[0]
	}
	u.n += n
	p := &bus.Publisher{Bus: r.bus, Ref: bus.Ref{Tenant: tenant, Run: id}, Source: u}
	ctx, cancel := context.WithTimeout(r.t.Context(), long)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		r.t.Fatal(err)
	}
	return u
}

// audit states who gave a command.
func (r *rig) audit(tenant, id, command string, a event.Audit) {
	r.t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		r.t.Fatal(err)
	}
	e := &event.Event{
		Tenant: tenant, Run: id, Ref: "audit-" + command, Time: time.Unix(2e9, 0).UTC(), Type: event.TypeAudit, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON, Data: b,
	}
	if _, err := r.bus.PutControl(r.t.Context(), e, e.Ref, 0); err != nil {
		r.t.Fatal(err)
	}
}

// A running is a service at work.
type running struct {
	*Service
	t      *testing.T
	stop   context.CancelFunc
	done   chan error
	mu     sync.Mutex
	news   chan struct{} // closed and replaced at each commit or end of a session
	ended  []error
	wanted bool
}

// start starts a service.
func (r *rig) start(change ...func(*Options)) *running {
	r.t.Helper()
	u := &running{t: r.t, done: make(chan error, 1), news: make(chan struct{})}
	o := Options{Config: r.cfg, Bus: r.bus, Partitions: 1, Dir: r.dir, Log: testLog(r.t)}
	o.committed, o.pause = u.tell, 20*time.Millisecond
	o.ended = func(err error) {
		u.mu.Lock()
		u.ended = append(u.ended, err)
		u.mu.Unlock()
		u.tell()
	}
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	u.Service = s
	ctx, cancel := context.WithCancel(context.Background())
	u.stop = cancel
	go func() { u.done <- s.Run(ctx) }()
	r.t.Cleanup(func() { u.close() })
	return u
}

func (u *running) tell() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.news)
	u.news = make(chan struct{})
}

// until waits until ok holds. It is asked at each commit, and now and then: an ack
// comes later than its commit.
func (u *running) until(what string, ok func() bool) {
	u.t.Helper()
	late := time.After(long)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		u.mu.Lock()
		news := u.news
		u.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-news:
		case <-again.C:
		case <-late:
			u.t.Fatalf("not in time: %s; ready: %v, lag %+v", what, u.Ready(), u.lagNow())
		}
	}
}

// close ends the service and returns what Run did.
func (u *running) close() error {
	if u.wanted {
		return nil
	}
	u.wanted = true
	u.stop()
	select {
	case err := <-u.done:
		return err
	case <-time.After(long):
		u.t.Fatal("the service does not end")
		return nil
	}
}

// has reports whether the archive has all that was published.
func (r *rig) has() func() bool {
	return func() bool {
		for _, u := range r.sent {
			i, err := r.place().Reader().Run(r.t.Context(), u.tenant, u.id)
			if err != nil || i.LastSeq < u.n {
				return false
			}
		}
		return true
	}
}

func (r *rig) place() Place {
	r.t.Helper()
	p, err := r.cfg.Open()
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// check compares the archive with what was published: every event once, in order, with
// its bytes; and has it verified.
func (r *rig) check() {
	r.t.Helper()
	for _, u := range r.sent {
		var want, got []string
		for n := uint64(1); n <= u.n; n++ {
			e := u.ev(n)
			want = append(want, fmt.Sprintf("%s %s %s %s", e.ID(), e.Type, e.Time.UTC().Format(time.RFC3339Nano), e.Data))
		}
		q := segment.Query{Tenant: u.tenant, Run: u.id, Logs: []segment.Log{0}}
		for rec, err := range r.place().Reader().Records(r.t.Context(), q) {
			if err != nil {
				r.t.Fatal(err)
			}
			e, err := rec.Event()
			if err != nil {
				r.t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", e.ID(), e.Type, e.Time.UTC().Format(time.RFC3339Nano), e.Data))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.t.Fatalf("run %s (-published +archived):\n%s", u.id, diff)
		}
	}
	r.verify()
}

// verify has the archive verified, by its public key alone.
func (r *rig) verify() *segment.Report {
	r.t.Helper()
	b, err := os.ReadFile(PublicFile(r.cfg.SigningFile(r.dir)))
	if err != nil {
		r.t.Fatal(err)
	}
	o := segment.VerifyOptions{Store: r.place().Store}
	k, err := segment.ParsePublicKey(b)
	if err != nil {
		r.t.Fatal(err)
	}
	o.Trust = append(o.Trust, k)
	rep, err := segment.Verify(r.t.Context(), o)
	if errors.Is(err, errors.ErrUnsupported) {
		return &segment.Report{}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range rep.Findings {
		if f.Bad {
			r.t.Errorf("verify: %s: %s", f.Code, f.Text)
		}
	}
	return rep
}

func (r *rig) now() time.Time { return time.Now().UTC() }
