package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// Variables of the process that is killed.
const (
	envCrash = "ARCHIVE_TEST_CRASH" // where, and how often it is passed first: sealed 2
	envNATS  = "ARCHIVE_TEST_NATS"
	envDest  = "ARCHIVE_TEST_DEST"
	envDir   = "ARCHIVE_TEST_DIR"
)

// crashChild archives until it comes to the place where it kills itself.
func crashChild() int {
	var where string
	var after int
	if _, err := fmt.Sscanf(os.Getenv(envCrash), "%s %d", &where, &after); err != nil {
		return 3
	}
	b, err := bus.Connect(context.Background(), bus.Config{URL: os.Getenv(envNATS)}, nil)
	if err != nil {
		return 3
	}
	at := func(step string) {
		if step != where {
			return
		}
		if after--; after < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // never returns
		}
	}
	cfg := crashConfig(os.Getenv(envDest))
	s, err := New(Options{
		Config: cfg, Bus: b, Partitions: 1, Dir: os.Getenv(envDir), pause: time.Millisecond,
		before: func(*consume.Entry) error { at("append"); return nil }, step: at,
	})
	if err != nil {
		return 3
	}
	if err := s.Run(context.Background()); err != nil {
		return 4
	}
	return 0
}

func crashConfig(dest string) Config {
	return Config{
		Dest: dest, Heads: dest + ".heads", SealBytes: 1 << 20, SealAge: minSealAge, HeadsBehind: 100, OpenSegments: 64,
		Memory: 1 << 20, Window: 20_000,
	}
}

// The process is killed at each step of a message's way, several times over. Everything
// is archived, once and in order; the chain verifies; every head is in the second place.
// Cases 088 and 117.
func TestCrashTable(t *testing.T) {
	for _, where := range []string{
		"append 0", "append 300", "seal 0", "sealed 0", "listed 1", "copied 1", "known 0", "committed 0",
	} {
		t.Run(strings.ReplaceAll(where, " ", "-"), func(t *testing.T) {
			t.Parallel()
			server, err := natsd.Start(natsd.Options{Dir: filepath.Join(t.TempDir(), "js")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
			r := &rig{t: t, server: server, dir: filepath.Join(t.TempDir(), "state"), sent: map[string]*run{}}
			r.cfg = crashConfig(filepath.Join(t.TempDir(), "archive"))
			r.bus = r.connect()
			for i := range 2 {
				r.publish(tenant, fmt.Sprint("r", i), 400, started)
				r.publish("other", fmt.Sprint("o", i), 20)
				killed(t, r, where)
			}
			u := r.start()
			u.until("ready", func() bool { return u.Ready() == nil })
			u.until("all", r.has())
			u.until("copied", func() bool { return u.copies.state().Waiting == 0 })
			u.until("acked", func() bool { return u.Status().Lag == 0 })
			_ = u.close()
			r.check()
			copiesComplete(t, r)
			listed(t, r)
		})
	}
}

// started makes the first event of a run say whose it is.
func started(n uint64) *event.Event {
	if n > 1 {
		return nil
	}
	return &event.Event{
		Type: event.TypeStarted, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON,
		Data: []byte(`{"dialect":"claude","ci":{"cirepo":"acme/shop"}}`),
	}
}

// killed runs the process until it has killed itself.
func killed(t *testing.T, r *rig, where string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envCrash+"="+where, envNATS+"="+r.server.ClientURL(), envDest+"="+r.cfg.Dest, envDir+"="+r.dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("the process did not come to %q: %v\n%s", where, err, out)
	}
}

// copiesComplete compares the second place with the chains.
func copiesComplete(t *testing.T, r *rig) {
	t.Helper()
	all, err := r.cfg.LoadHeads(t.Context(), r.cfg.Heads)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, h := range all {
		have[h.Hash()] = true
	}
	for _, name := range []string{tenant, "other"} {
		for h, err := range r.place().Reader().Heads(t.Context(), name, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if !have[h.Hash()] {
				t.Errorf("head %d of tenant %s is not in the second place", h.Number, name)
			}
		}
	}
}

// listed has the catalogue name every run's repository.
func listed(t *testing.T, r *rig) {
	t.Helper()
	n := 0
	if err := List(t.Context(), r.place(), Filter{Repo: "acme/shop"}, func(Listed) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if n != 2 {
		t.Errorf("the catalogue has %d runs of the repository, want 2", n)
	}
}

// Case 117: a segment that was torn is cut at its last whole block, that is said, and the
// bus gives what was in it again.
func TestCase117TornTail(t *testing.T) {
	r := newRig(t)
	r.cfg.Memory, r.cfg.SealAge = 32<<10, maxSealAge // blocks are written, nothing is sealed
	r.publish(tenant, "r1", 1000)
	taken := make(chan struct{}, 1)
	u := r.start(func(o *Options) {
		o.before = func(e *consume.Entry) error {
			if e.Event != nil && e.Event.Seq == 1000 {
				select {
				case taken <- struct{}{}:
				default:
				}
				return errors.New("not further")
			}
			return nil
		}
	})
	<-taken
	u.stop() // as good as a kill for what is not sealed
	_ = u.close()
	torn := 0
	files, err := filepath.Glob(filepath.Join(r.dir, "open", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 100 {
			torn++
			if err := os.Truncate(f, int64(len(b)-7)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if torn == 0 {
		t.Skip("the last commit sealed everything")
	}
	r.cfg.SealAge = minSealAge
	u = r.start()
	u.until("all", r.has())
	_ = u.close()
	r.check()
}

// Two archives write at once, each what it was given: the chain does not fork, nothing is
// in it twice, and the one that comes second begins anew.
func TestBothWrite(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 100)
	r.publish("other", "o1", 50)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := NewKey(r.cfg.SigningFile(r.dir)); err != nil {
		t.Fatal(err)
	}
	entries := func() (all []*consume.Entry) {
		last, err := r.bus.HeadLog(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range r.bus.ReadLog(t.Context(), 0, bus.Place{}, bus.Place{Seq: last}, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, entryOf(e))
		}
		return all
	}
	a, b := r.keeper("a"), r.keeper("b")
	take := func(k *keeper, all []*consume.Entry) {
		t.Helper()
		for _, e := range all {
			if err := k.Handle(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit := func(k *keeper, want error) {
		t.Helper()
		if _, err := k.Commit(t.Context(), true); !errors.Is(err, want) {
			t.Fatalf("Commit = %v, want %v", err, want)
		}
	}
	first := entries()
	take(b, first)
	take(a, first[:60])
	commit(a, nil)
	commit(b, segment.ErrAnother) // it holds what the other has sealed
	if err := b.Handle(t.Context(), first[0]); !errors.Is(err, segment.ErrAnother) {
		t.Errorf("Handle after that = %v", err)
	}
	take(a, first[60:])
	commit(a, nil)
	b = r.keeper("b")
	take(b, first) // all of it again
	commit(b, nil)
	r.publish(tenant, "r1", 100)
	more := entries()[len(first):]
	take(a, more)
	take(b, more)
	commit(b, nil)
	commit(a, segment.ErrAnother)
	a = r.keeper("a")
	take(a, more)
	commit(a, nil)
	r.check()
}

// entryOf is what the consumer makes of a message.
func entryOf(e bus.Entry) *consume.Entry {
	c := &consume.Entry{At: e.At, Event: e.Event, Raw: bus.Raw{Data: e.Event.Data}}
	c.Raw.Subject = subject.Event{Tenant: e.Event.Tenant, Run: e.Event.Run, Kind: string(e.Event.Kind)}.String()
	e.Event.Attributes(func(name, value string) {
		c.Raw.Header = append(c.Raw.Header, [2]string{event.HeaderPrefix + name, event.EncodeValue(value)})
	})
	return c
}

// keeper opens the archive as a service of its own would, and is its handler.
func (r *rig) keeper(name string) *keeper { return r.keeperOf(r.t, name) }

func (r *rig) keeperOf(t testing.TB, name string) *keeper {
	t.Helper()
	dir := filepath.Join(r.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Config: r.cfg, Dir: dir}
	o.SigningKeyFile = r.cfg.SigningFile(r.dir)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ar, err := s.openArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ar.Close() })
	return newKeeper(t.Context(), s, ar, func(error) {})
}
