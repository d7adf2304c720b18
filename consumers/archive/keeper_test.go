package archive

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
)

// bare is a rig without a server: entries are made by hand.
func bare(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), sent: map[string]*run{}}
	r.cfg = Config{
		Dest: t.TempDir() + "/archive", SealBytes: 1 << 20, SealAge: minSealAge, HeadsBehind: 100, OpenSegments: 4,
		Memory: 1 << 20, Window: 1000,
	}
	if err := NewKey(r.cfg.SigningFile(r.dir)); err != nil {
		t.Fatal(err)
	}
	return r
}

// entry is the n-th event of a run at a place of its log.
func (r *rig) entry(tenant, id string, n uint64, at bus.Place) *consume.Entry {
	u := r.sent[id]
	if u == nil {
		u = &run{tenant: tenant, id: id}
		r.sent[id] = u
	}
	u.n = max(u.n, n)
	return entryOf(bus.Entry{Event: u.ev(n), At: at})
}

func (k *keeper) take(t *testing.T, all ...*consume.Entry) {
	t.Helper()
	for _, e := range all {
		if err := k.Handle(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func (k *keeper) commit(t *testing.T) map[bus.Log]bus.Place {
	t.Helper()
	upTo, err := k.Commit(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	return upTo
}

// Case 119: a segment has messages of one UTC day, by when the bus stored them, in
// whatever zone this machine is (here that of TestMain); its name says so.
func TestCase119UTCDays(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	for i, at := range []string{"2026-03-01T15:59:59Z", "2026-03-01T16:00:00Z", "2026-03-01T23:59:59.999999999Z", "2026-03-02T00:00:00Z"} {
		stored, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		k.take(t, r.entry(tenant, "r1", uint64(i+1), bus.Place{Seq: uint64(i + 1), Time: stored.Local()}))
	}
	k.commit(t)
	r.check()
	got := map[string]int64{}
	for h, err := range r.place().Reader().Heads(t.Context(), tenant, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got[h.Segment.Day] += h.Segment.Records
		if _, err := os.Stat(r.cfg.Dest + "/" + h.Segment.Name); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(map[string]int64{"2026-03-01Z": 3, "2026-03-02Z": 1}, got); diff != "" {
		t.Errorf("records by day (-want +got):\n%s", diff)
	}
}

// Case 081: the stream is gone and made anew, and gives what the spools had again, from 1
// on. What is archived is not kept twice, what is new is, and no more is acked than that.
func TestCase081StreamMadeAnew(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	old := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for n := uint64(1); n <= 100; n++ {
		k.take(t, r.entry(tenant, "r1", n, bus.Place{Seq: n + 1000, Time: old.Add(time.Duration(n))}))
	}
	if upTo := k.commit(t); upTo[0].Seq != 1100 {
		t.Errorf("acked up to %v", upTo)
	}
	anew := old.Add(time.Hour)
	k.Rebuilt(0, bus.Place{})
	for n := uint64(50); n <= 120; n++ {
		k.take(t, r.entry(tenant, "r1", n, bus.Place{Seq: n - 49, Time: anew.Add(time.Duration(n))}))
	}
	if upTo := k.upTo(); upTo[0].Seq > 51 {
		t.Errorf("before anything is sealed, acked up to %v", upTo)
	}
	if upTo := k.commit(t); upTo[0].Seq != 71 {
		t.Errorf("acked up to %v", upTo)
	}
	if st := k.ar.Stats(); st.Again != 51 {
		t.Errorf("%d were there again, want 51", st.Again)
	}
	_ = k.ar.Close()
	k = r.keeper("a") // and in another process
	for n := uint64(110); n <= 130; n++ {
		k.take(t, r.entry(tenant, "r1", n, bus.Place{Seq: n - 49, Time: anew.Add(time.Duration(n))}))
	}
	k.commit(t)
	r.check()
}

// Many tenants share a few open segments, and what a quiet one holds does not keep the
// bus: when it presses, the older ones are sealed.
func TestManyTenants(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	at := bus.Place{Time: time.Now().UTC()}
	for n := uint64(1); n <= 3; n++ {
		for i := range 10 {
			at.Seq, at.Time = at.Seq+1, at.Time.Add(1)
			k.take(t, r.entry(fmt.Sprint("tenant/", i), fmt.Sprint("r", i), n, at))
			if st := k.ar.Stats(); st.Open > r.cfg.OpenSegments {
				t.Fatalf("%d segments are open", st.Open)
			}
		}
	}
	last := bus.Place{}
	for range 100 {
		upTo := k.commit(t)[0]
		if upTo.Seq < last.Seq {
			t.Fatalf("acked up to %v after %v", upTo, last)
		}
		if last = upTo; last.Seq == at.Seq {
			break
		}
	}
	if last.Seq != at.Seq {
		t.Errorf("acked up to %d of %d", last.Seq, at.Seq)
	}
	r.check()
}

// The age of what is not sealed is known to a second, in bounded memory.
func TestLag(t *testing.T) {
	var l lag
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) bus.Place {
		return bus.Place{Seq: uint64(n), Time: begin.Add(time.Duration(n) * 100 * time.Millisecond)}
	}
	if got := l.sealed(bus.Place{}); !got.IsZero() {
		t.Errorf("nothing read: %v", got)
	}
	const last = 200_000
	for n := 1; n <= last; n++ {
		l.add(at(n))
	}
	if len(l.marks) > maxMarks {
		t.Errorf("%d marks", len(l.marks))
	}
	for _, upTo := range []int{0, 1, 50_000, 199_990, last - 1} {
		got := l.sealed(at(upTo))
		if d := at(upTo + 1).Time.Sub(got); d < 0 || d > 10*time.Second {
			t.Errorf("sealed up to %d: oldest is said to be %v too old", upTo, d)
		}
	}
	if got := l.sealed(at(last)); !got.IsZero() {
		t.Errorf("all sealed: %v", got)
	}
}

func TestConfig(t *testing.T) {
	good := Config{Dest: "/a", SealBytes: 1 << 20, SealAge: time.Minute, HeadsBehind: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"no destination": func(c *Config) { c.Dest = "" },
		"age":            func(c *Config) { c.SealAge = time.Hour },
		"bytes":          func(c *Config) { c.SealBytes = 1 },
		"heads":          func(c *Config) { c.HeadsBehind = 0 },
		"retention":      func(c *Config) { c.Retention = "acme=1s" },
		"retention form": func(c *Config) { c.Retention = "acme:3h" },
		"key twice":      func(c *Config) { c.SigningKey, c.SigningKeyFile = "a", "b" },
	} {
		c := good
		if change(&c); c.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r, err := parseRetention("acme=720h, *=8760h")
	if err != nil || r.of("acme") != 720*time.Hour || r.of("other") != 8760*time.Hour {
		t.Errorf("retention %v, %v", r, err)
	}
	if r, err := parseRetention(""); err != nil || r.of("acme") != 0 {
		t.Errorf("no retention: %v, %v", r, err)
	}
	for _, dest := range []string{"ftp://x/y", "s3://", "https://x"} {
		c := good
		c.Dest = dest
		if _, err := c.Open(); err == nil {
			t.Errorf("%s: no error", dest)
		}
	}
}
