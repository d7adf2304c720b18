package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

func quickLook(o *Options) { o.look = 10 * time.Millisecond }

// headFile is the file of a tenant's newest head.
func (r *rig) headFile(tenant string) string {
	r.t.Helper()
	all, err := filepath.Glob(filepath.Join(r.cfg.Dest, "t", tenant, "heads", "*.json"))
	if err != nil || len(all) == 0 {
		r.t.Fatalf("heads of %s: %v, %v", tenant, all, err)
	}
	return all[len(all)-1]
}

// spoil makes a head what an earlier version wrote of ids that are no UTF-8. It returns how to
// mend it.
func (r *rig) spoil(file string) (mend func()) {
	r.t.Helper()
	whole, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("{\"v\":1,\"tenant\":\"ac\xff\xfeme\"}\n"), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// hasOf reports whether the archive has all of one tenant.
func (r *rig) hasOf(tenant string) func() bool {
	return func() bool {
		for _, u := range r.sent {
			if u.tenant != tenant {
				continue
			}
			if i, err := r.place().Reader().Run(r.t.Context(), u.tenant, u.id); err != nil || i.LastSeq < u.n {
				return false
			}
		}
		return true
	}
}

func (u *running) asideNow() float64 { return u.value("cbcast_archive_tenants_aside") }

// value is that of a metric.
func (u *running) value(name string) float64 {
	u.t.Helper()
	all, err := u.Metrics().Gather()
	if err != nil {
		u.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	u.t.Fatalf("no metric %s", name)
	return 0
}

// A tenant whose chain has a head that is none is set aside, by name: the others are archived
// and acked. When the head is back, all that the bus has of the tenant is archived, whoever
// does it, and though nothing more comes of it.
func TestTenantAside(t *testing.T) {
	for _, who := range []string{"same", "restarted", "another"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.publish(tenant, "a1", 20)
			r.publish("other", "o1", 20)
			u := r.start(quickLook)
			u.until("before", r.has())
			_ = u.close()
			mend := r.spoil(r.headFile(tenant))
			u = r.start(quickLook)
			for i := range 3 {
				r.publish(tenant, "a1", 50)
				r.publish(tenant, fmt.Sprint("a2-", i), 50, started)
				r.audit(tenant, "a1", fmt.Sprint("c", i), event.Audit{Command: fmt.Sprint("c", i), Name: "interrupt", Actor: "alice"})
				r.publish("other", "o1", 50)
			}
			u.until("the other tenant", r.hasOf("other"))
			u.until("acked", func() bool { return u.Status().Lag == 0 && u.Status().Unacked == 0 })
			said := u.readyText()
			if !strings.Contains(said, `tenants set aside: "acme"`) || !strings.Contains(said, "cbcast archive verify --tenant acme") {
				t.Errorf("ready: %s", said)
			}
			if n := u.value("cbcast_archive_aside_messages_total"); u.asideNow() != 1 || n < 303 {
				t.Errorf("%v aside, %v messages passed over", u.asideNow(), n)
			}
			if who != "same" {
				_ = u.close()
				u = r.start(quickLook, func(o *Options) {
					if who == "another" {
						o.SigningKeyFile, o.Dir = r.cfg.SigningFile(r.dir), filepath.Join(t.TempDir(), "second")
					}
				})
				u.until("known to be aside", func() bool { return u.asideNow() == 1 && strings.Contains(u.readyText(), "acme") })
				r.publish(tenant, "a3", 10)
				r.publish("other", "o2", 10)
				u.until("the other tenant", r.hasOf("other"))
				u.until("acked", func() bool { return u.Status().Lag == 0 && u.Status().Unacked == 0 })
			}
			mend()
			u.until("caught up", r.has())
			u.until("as before", func() bool { return u.asideNow() == 0 && u.Ready() == nil })
			r.publish(tenant, "a1", 5)
			u.until("after", r.has())
			_ = u.close()
			r.check()
			if left, err := filepath.Glob(filepath.Join(r.cfg.Dest, "aside", "*")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if n, err := NoteOf(t.Context(), r.place(), tenant, "a1"); err != nil || len(n.Decisions) != 3 {
				t.Errorf("facts: %+v, %v", n.Decisions, err)
			}
		})
	}
}

// The chain is damaged, or lost, while records of the tenant wait to be sealed.
func TestTenantAsideWhileItRuns(t *testing.T) {
	for name, spoil := range map[string]func(r *rig) func(){
		"damaged": func(r *rig) func() { return r.spoil(r.headFile(tenant)) },
		"gone": func(r *rig) func() {
			file := r.headFile(tenant)
			if err := os.Rename(file, file+".away"); err != nil {
				r.t.Fatal(err)
			}
			return func() {
				if err := os.Rename(file+".away", file); err != nil {
					r.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			u := r.start(quickLook)
			r.publish(tenant, "a1", 20)
			r.publish("other", "o1", 20)
			u.until("before", r.has())
			mend := spoil(r)
			r.publish(tenant, "a1", 100)
			r.publish("other", "o1", 100)
			u.until("aside", func() bool { return u.asideNow() == 1 })
			u.until("the other tenant", r.hasOf("other"))
			u.until("acked", func() bool { return u.Status().Lag == 0 && u.Status().Unacked == 0 })
			mend()
			u.until("caught up", r.has())
			_ = u.close()
			r.check()
		})
	}
}

// The newest head is none and there is no copy, as an early version left it: what the
// documentation says mends it, and the bus gives its messages again.
func TestNewestHeadIsNone(t *testing.T) {
	r := newRig(t)
	r.cfg.Heads = filepath.Join(t.TempDir(), "heads.ndjson")
	u := r.start(quickLook)
	r.publish(tenant, "a1", 20, started)
	u.until("first", r.has())
	r.publish(tenant, "a2", 20, started)
	u.until("second", r.has())
	u.until("acked", func() bool { return u.Status().Lag == 0 && u.copies.state().Waiting == 0 })
	_ = u.close()
	file := r.headFile(tenant)
	_ = r.spoil(file)
	r.publish(tenant, "a3", 20, started)
	u = r.start(quickLook)
	u.until("aside", func() bool { return u.asideNow() == 1 })
	_ = u.close()
	number := strings.TrimSuffix(filepath.Base(file), ".json")
	for _, away := range []string{
		file, filepath.Join(r.cfg.Dest, "catalog", tenant, number+".json.gz"), filepath.Join(r.dir, "known.json"),
		filepath.Join(r.dir, "open", "chain-"+tenant+".json"),
	} {
		if err := os.Remove(away); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(r.cfg.Heads)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	if err := os.WriteFile(r.cfg.Heads, []byte(strings.Join(lines[:len(lines)-1], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	u = r.start(quickLook)
	u.until("all", r.has())
	u.until("as before", func() bool { return u.Ready() == nil && u.asideNow() == 0 && u.copies.state().Waiting == 0 })
	_ = u.close()
	r.check()
	listed := map[string]bool{}
	if err := List(t.Context(), r.place(), Filter{Repo: "acme/shop"}, func(l Listed) error { listed[l.Run] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 3 {
		t.Errorf("the catalogue has %v", listed)
	}
	heads, err := r.cfg.LoadHeads(t.Context(), r.cfg.Heads)
	if err != nil || len(heads) < 3 {
		t.Errorf("%d copies of heads, %v", len(heads), err)
	}
}

// A tenant that cannot be sealed for another reason, again and again, while others can, is set
// aside, too; where nobody can be sealed, nobody is.
func TestTenantAlone(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	at := time.Now().UTC()
	if err := os.MkdirAll(filepath.Join(r.cfg.Dest, "t", tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{tenant, "other"} { // where segments are to be there is a file
		if err := os.MkdirAll(filepath.Join(r.cfg.Dest, "t", name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.cfg.Dest, "t", name, "segments"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(k *keeper) error {
		k.take(t, r.entry(tenant, "r1", 1, bus.Place{Seq: 1, Time: at}), r.entry("other", "r2", 1, bus.Place{Seq: 2, Time: at}))
		for range maxFailures - 1 {
			if _, err := k.Commit(t.Context(), true); err == nil || errors.Is(err, errSession) {
				t.Fatalf("Commit: %v", err)
			}
		}
		_, err := k.Commit(t.Context(), true)
		return err
	}
	if err := try(k); !errors.Is(err, errSession) || errors.Is(err, errAside) || k.s.asideError() != nil {
		t.Errorf("nobody can be sealed: %v; %v", err, k.s.asideError())
	}
	_ = k.ar.Close()
	if err := os.Remove(filepath.Join(r.cfg.Dest, "t", "other", "segments")); err != nil {
		t.Fatal(err)
	}
	k = r.keeper("b")
	if err := try(k); !errors.Is(err, errAside) || !k.s.isAside(tenant) || k.s.isAside("other") {
		t.Errorf("one cannot be sealed: %v; %v", err, k.s.asideError())
	}
}
