package segment_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

var errCrash = errors.New("crash")

// A crasher lets everything fail from its n-th step on: steps of the archive, and operations of
// its stores, which fail before they happen or when they have happened.
type crasher struct {
	n, at int
	after bool // operations of stores happen, and their answer is lost
	name  string
}

func (c *crasher) down() bool { return c.at > 0 && c.n >= c.at }

func (c *crasher) step(name string) error {
	if c.down() {
		return errCrash
	}
	if c.n++; c.n == c.at {
		c.name = name
		return errCrash
	}
	return nil
}

// watch makes a store's operations steps, too.
func (c *crasher) watch(st *mem) {
	st.fail, st.lost = nil, nil
	before := func(op, key string) error {
		if op == "open" {
			if c.down() {
				return errCrash
			}
			return nil
		}
		if c.after && !c.down() {
			return nil
		}
		return c.step(op + " " + key)
	}
	st.fail = before
	if c.after {
		st.lost = func(op, key string) error {
			if op == "open" {
				return nil
			}
			return c.step(op + " " + key)
		}
	}
}

// work appends all records behind what is sealed, as a consumer would: sync now and then,
// seal now and then, and acknowledge what is sealed.
func (r *rig) work(acked *map[segment.Log]segment.Place, hook func(string) error) error {
	a, err := segment.OpenHook(context.Background(), r.Options, hook)
	if err != nil {
		return err
	}
	defer a.Close()
	n := 0
	for _, rec := range r.all {
		if p := (*acked)[rec.Log]; rec.StreamSeq <= p.Seq {
			continue // it is not delivered again
		}
		if _, err := a.Append(context.Background(), rec); err != nil {
			return err
		}
		if n++; n%5 == 0 {
			if err := a.Sync(context.Background()); err != nil {
				return err
			}
		}
		if n%8 == 0 {
			if _, err := a.Seal(context.Background(), 0); err != nil {
				return err
			}
			*acked = a.Through()
		}
	}
	if _, err := a.Seal(context.Background(), 0); err != nil {
		return err
	}
	*acked = a.Through()
	return nil
}

// whole checks that the archive has each record exactly once, and that verify is content.
func (r *rig) whole(name string) {
	r.Helper()
	for _, st := range []segment.Store{r.Store, r.Keys} {
		m := st.(*mem)
		m.fail, m.lost = nil, nil
	}
	rep, err := segment.Verify(context.Background(), segment.VerifyOptions{
		Store: r.Store, Keys: r.Keys, Trust: []ed25519.PublicKey{public(r.key)}, Deep: true, Wrap: r.Wrap,
	})
	if err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	for _, f := range rep.Findings {
		if f.Code != segment.IndexMissing && f.Code != segment.RunOpen {
			r.Errorf("%s: %+v", name, f)
		}
	}
	var got []string
	for rec, err := range r.reader().Records(context.Background(), segment.Query{}) {
		if err != nil {
			r.Fatalf("%s: %v", name, err)
		}
		got = append(got, place(rec))
	}
	var want []string
	for _, rec := range r.all {
		want = append(want, place(rec))
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		r.Fatalf("%s: records (-want +got):\n%s", name, d)
	}
	left, err := os.ReadDir(r.Dir)
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range left {
		if strings.HasSuffix(e.Name(), ".seg") || strings.HasSuffix(e.Name(), ".keys") {
			r.Errorf("%s: %s is left", name, e.Name())
		}
	}
}

func place(r *segment.Record) string {
	return fmt.Sprintf("%s %s %s/%d seq %d: %s", r.Tenant, r.Run, r.Log, r.StreamSeq, r.Seq, r.Data)
}

// fill makes records of two tenants, three runs and three logs, over midnight.
func (r *rig) fill(n int) {
	for i := range n {
		rec := r.next([]string{"acme", "beta"}[i%2], []string{"a", "b", "c"}[i%3])
		rec.Stored = day.Add(24*time.Hour + time.Duration(i-n/2)*time.Second)
		if i%7 == 6 {
			rec.Log, rec.Subject, rec.Seq = segment.Control, "cbc.ctl.acme."+rec.Run+".audit-1", 0
			r.run[rec.Tenant+"/"+rec.Run]--
		}
	}
}

// TestCrashes crashes at each step in turn, before it and with its answer lost, and starts
// again: nothing is lost, nothing is there twice.
func TestCrashes(t *testing.T) {
	key := newKey(t)
	for _, after := range []bool{false, true} {
		for at := 1; ; at += stride {
			r := newRig(t)
			r.key = key
			r.Memory = 2000 // blocks are made between syncs, too
			r.fill(18)
			c := &crasher{at: at, after: after}
			c.watch(r.Store.(*mem))
			c.watch(r.Keys.(*mem))
			acked := map[segment.Log]segment.Place{}
			err := r.work(&acked, c.step)
			if err == nil && c.name == "" {
				if at < 60 {
					t.Errorf("only %d steps", at)
				}
				break // there are no more steps
			}
			name := fmt.Sprintf("crash at %d, %s, after %v", at, c.name, after)
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatalf("%s: %v", name, err)
			}
			for _, st := range []segment.Store{r.Store, r.Keys} {
				st.(*mem).fail, st.(*mem).lost = nil, nil
			}
			if err := r.work(&acked, nil); err != nil {
				t.Fatalf("%s: again: %v", name, err)
			}
			r.whole(name)
			if t.Failed() {
				return
			}
		}
	}
}

// TestTorn cuts the files of an open segment at each byte: what was before comes back, in
// whole blocks, and the rest comes again.
func TestTorn(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.next("acme", []string{"a", "b"}[i%2])
	}
	a := r.open()
	for i, rec := range r.all {
		r.add(rec)
		if i%2 == 1 {
			if err := a.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Close()
	files := map[string][]byte{}
	for _, e := range must(os.ReadDir(r.Dir)) {
		files[e.Name()] = must(os.ReadFile(filepath.Join(r.Dir, e.Name())))
	}
	base := r.Store.(*mem).clone()
	for cutName, whole := range files {
		for n := range len(whole) + 1 {
			r.Store, r.Keys, r.Dir = base.clone(), newMem(), tempDir(t)
			for name, b := range files {
				if name == cutName {
					b = b[:n]
				}
				if err := os.WriteFile(filepath.Join(r.Dir, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			name := fmt.Sprintf("%s cut at %d of %d", cutName[len(cutName)-5:], n, len(whole))
			a := r.open()
			recs, cut := int64(0), int64(0)
			for _, rec := range a.Recovered() {
				recs, cut = rec.Records, rec.Cut
				if (rec.Reason == "") != (rec.Cut == 0) {
					t.Errorf("%s: %+v", name, rec)
				}
			}
			if n == len(whole) && (recs != 4 || cut != 0) {
				t.Errorf("%s: %d records, %d bytes cut", name, recs, cut)
			}
			if n%(11*stride) != 0 && n != len(whole) {
				continue // the rest is the same for most
			}
			again := int64(0)
			for _, rec := range r.all {
				added, err := a.Append(t.Context(), rec)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if added == segment.Already {
					again++
				}
			}
			if again != recs {
				t.Errorf("%s: %d records were there, %d recovered", name, again, recs)
			}
			r.seal()
			r.whole(name)
			if t.Failed() {
				return
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
