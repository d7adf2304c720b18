package archive

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// A looked store counts what a service asks of it beside keeping objects.
type looked struct {
	segment.Store
	unfit  error
	checks chan struct{}
	sweeps chan time.Time
}

func newLooked(st segment.Store) *looked {
	return &looked{Store: st, checks: make(chan struct{}, 100), sweeps: make(chan time.Time, 100)}
}

func (l *looked) Check(context.Context) error {
	l.checks <- struct{}{}
	return l.unfit
}

func (l *looked) Sweep(_ context.Context, before time.Time) error {
	l.sweeps <- before
	return errors.New("not allowed")
}

// A service asks its stores once whether they can hold an archive, says why one cannot, and gives up
// what unfinished writes left, at the beginning and each day.
func TestFit(t *testing.T) {
	r := newRig(t)
	s, err := New(Options{Config: r.cfg, Bus: r.bus, Partitions: 1, Dir: r.dir, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	st, keys := newLooked(s.place.Store), newLooked(s.place.Store)
	s.place.Store, s.place.Keys = st, keys
	keys.unfit = fmt.Errorf("s3://keys is %w: deaf", segment.ErrUnfit)
	ctx := t.Context()
	for range 2 {
		if _, err := s.openArchive(ctx); !errors.Is(err, segment.ErrUnfit) {
			t.Errorf("got %v", err)
		}
	}
	if len(st.checks) != 2 || len(keys.checks) != 2 || len(st.sweeps) > 0 {
		t.Errorf("%d and %d checks, %d sweeps", len(st.checks), len(keys.checks), len(st.sweeps))
	}
	s.fail(errors.New("archive"))
	keys.unfit = nil
	begin := time.Now()
	for range 2 {
		ar, err := s.openArchive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.tend(ctx, ar)
		if err := ar.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(st.checks) != 3 || len(keys.checks) != 3 || len(st.sweeps) != 1 || len(keys.sweeps) != 1 {
		t.Errorf("%d and %d checks, %d and %d sweeps", len(st.checks), len(keys.checks), len(st.sweeps), len(keys.sweeps))
	}
	if before := <-st.sweeps; begin.Sub(before) < sweepAge-time.Minute {
		t.Errorf("writes since %v are given up", before)
	}
	s.swept = time.Now().Add(-sweepEvery)
	ar, err := s.openArchive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.tend(ctx, ar)
	if err := ar.Close(); err != nil || len(st.sweeps) != 1 {
		t.Errorf("%d sweeps after a day, %v", len(st.sweeps), err)
	}
}

// The cause is in what the service says of itself.
func TestUnfitNotReady(t *testing.T) {
	r := newRig(t)
	o := Options{Config: r.cfg, Bus: r.bus, Partitions: 1, Dir: r.dir, Log: testLog(t), pause: time.Millisecond}
	ended := make(chan error, 100)
	o.ended = func(err error) { ended <- err }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	st := newLooked(s.place.Store)
	st.unfit = fmt.Errorf("s3://bucket is %w: deaf", segment.ErrUnfit)
	s.place.Store, s.place.Keys = st, st
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-ended
	<-ended // the first one is told now
	if err := s.Ready(); !errors.Is(err, segment.ErrUnfit) || !strings.Contains(err.Error(), "s3://bucket") {
		t.Errorf("Ready = %v", err)
	}
	stop()
	<-done
}

// A headless store takes no heads: what is sealed there is what a crash leaves.
type headless struct{ segment.Store }

func (h headless) Create(ctx context.Context, key string, body *io.SectionReader) error {
	if strings.Contains(key, "/heads/") {
		return errors.New("crash")
	}
	return h.Store.Create(ctx, key, body)
}

// What a crash left between its segment and its head is removed by the service that has archived
// the same; a tenant that is damaged keeps no other from that, and is named.
func TestTidy(t *testing.T) {
	r := newRig(t)
	u := r.start()
	r.publish("beta", "r2", 3)
	u.until("archived", r.has())
	_ = u.close()
	private, err := r.cfg.signingKey(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func(st segment.Store) *segment.Archive {
		ar, err := segment.Open(t.Context(), segment.Options{
			Store: st, Keys: st, Dir: t.TempDir(), Signer: func() (ed25519.PrivateKey, error) { return private, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		e := (&run{tenant: tenant, id: "r1"}).ev(1)
		rec := segment.NewRecord(0, e, subject.Event{Tenant: tenant, Run: "r1", Kind: "msg"}.String(), nil, e.Data, 100, r.now())
		if _, err := ar.Append(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		return ar
	}
	p := r.place()
	crashed := open(headless{p.Store})
	if _, err := crashed.Seal(t.Context(), 0); err == nil {
		t.Fatal("a head was made")
	}
	crashed.Close()
	ar := open(p.Store)
	defer ar.Close()
	for _, st := range []string{"before", "after"} {
		gone, err := Tidy(t.Context(), p, ar)
		if want := map[string]int{"before": 0, "after": 2}[st]; len(gone) != want {
			t.Errorf("%s: %v are gone", st, gone)
		}
		if damaged := st == "after"; damaged && (!segment.Damaged(err) || !strings.Contains(err.Error(), "beta")) || !damaged && err != nil {
			t.Errorf("%s: %v", st, err)
		}
		if _, err := ar.Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		heads, err := filepath.Glob(filepath.Join(r.cfg.Dest, "t/beta/heads/*1.json"))
		if err != nil || len(heads) != 1 {
			t.Fatal(heads, err)
		}
		if err := os.WriteFile(heads[0], []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A page of the catalogue goes after the segment whose deletion a crash has cut short.
func TestTidyCatalog(t *testing.T) {
	r := newRig(t)
	u := r.start()
	r.publish(tenant, "r1", 3)
	u.until("archived", r.has())
	_ = u.close()
	catalog := filepath.Join(r.cfg.Dest, catalogKey(tenant, 1))
	page, err := os.ReadFile(catalog)
	if err != nil {
		t.Fatal(err)
	}
	err = Write(t.Context(), &r.cfg, r.dir, func(p Place, ar *segment.Archive) error {
		if gone, err := Tidy(t.Context(), p, ar); err != nil || len(gone) > 0 {
			t.Errorf("%v are gone, %v", gone, err)
		}
		if _, err := ar.Retain(t.Context(), tenant, r.now().Add(time.Hour), "x", "y"); err != nil {
			return err
		}
		if err := os.WriteFile(catalog, page, 0o600); err != nil {
			return err
		}
		gone, err := Tidy(t.Context(), p, ar)
		if len(gone) != 1 || gone[0] != catalogKey(tenant, 1) {
			t.Errorf("%v are gone", gone)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Two who erase two runs of one page of the catalogue, and a page that is damaged: no erased run
// stays in it.
func TestForgetBeside(t *testing.T) {
	for _, damage := range []bool{false, true} {
		r := newRig(t)
		u := r.start()
		started := func(uint64) *event.Event {
			b, err := json.Marshal(event.Started{Dialect: "claude"})
			if err != nil {
				t.Fatal(err)
			}
			return &event.Event{Type: event.TypeStarted, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: b}
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			r.publish(tenant, id, 1, started)
		}
		u.until("archived", r.has())
		_ = u.close()
		err := Write(t.Context(), &r.cfg, r.dir, func(p Place, ar *segment.Archive) error {
			if damage {
				names, err := filepath.Glob(filepath.Join(r.cfg.Dest, "catalog/acme/*"))
				if err != nil || len(names) == 0 {
					t.Fatal(names, err)
				}
				for _, name := range names {
					if err := os.WriteFile(name, []byte("damaged"), 0o600); err != nil {
						return err
					}
				}
			}
			other := p
			done := false
			p.Keys = replacing{p.Keys, func(key string) {
				if !done && strings.HasPrefix(key, catalogPrefix) {
					done = true
					if _, err := Erase(t.Context(), other, ar, tenant, "r2", "dpo", "x"); err != nil {
						t.Error(err)
					}
				}
			}}
			_, err := Erase(t.Context(), p, ar, tenant, "r1", "dpo", "x")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		numbers, err := pages(t.Context(), r.place().Keys, tenant)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			pg, err := readPage(t.Context(), r.place().Keys, tenant, n)
			if err != nil {
				t.Fatal(err)
			}
			for _, note := range pg.Notes {
				got[note.Run] = true
			}
		}
		if diff := cmp.Diff(map[string]bool{"r3": true}, got); diff != "" {
			t.Errorf("damaged %v (-want +in the catalogue):\n%s", damage, diff)
		}
	}
}

// A replacing store says what is to be replaced.
type replacing struct {
	segment.Store
	before func(key string)
}

func (r replacing) Replace(ctx context.Context, key string, data []byte) error {
	r.before(key)
	return r.Store.Replace(ctx, key, data)
}

// One damaged page of the catalogue keeps nothing from being listed, and is named.
func TestListDamaged(t *testing.T) {
	r := newRig(t)
	u := r.start()
	for i := range 3 {
		r.publish(tenant, fmt.Sprint("r", i), 2)
		u.until("archived", r.has())
	}
	_ = u.close()
	if err := os.WriteFile(filepath.Join(r.cfg.Dest, catalogKey(tenant, 1)), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := List(t.Context(), r.place(), Filter{}, func(l Listed) error {
		got = append(got, l.Run)
		return nil
	})
	if !segment.Damaged(err) || !strings.Contains(err.Error(), "catalogue of head 1 of tenant") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"r0", "r1", "r2"}, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}
