package segment_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

// A pair is two processes that state things about one archive.
type pair struct {
	*rig
	a, b *segment.Archive
}

func newPair(t *testing.T) *pair {
	t.Helper()
	r := newRig(t)
	p := &pair{rig: r, a: r.open()}
	for range 2 {
		r.add(r.next("acme", "a"), r.next("acme", "b"))
		r.seal()
	}
	o := r.Options
	o.Dir = tempDir(t)
	p.b = must(segment.Open(t.Context(), o))
	t.Cleanup(func() { p.b.Close() })
	must(p.b.Holds(t.Context(), "acme")) // it knows the chain as it is now
	return p
}

// meanwhile does something just before the first operation of its kind.
func (p *pair) meanwhile(st segment.Store, op, key string, do func()) {
	p.Helper()
	m, done := st.(*mem), false
	m.fail = func(o, k string) error {
		if done || o != op || !strings.Contains(k, key) {
			return nil
		}
		done = true
		m.mu.Unlock()
		defer m.mu.Lock()
		do()
		return nil
	}
	p.Cleanup(func() {
		m.fail = nil
		if !done {
			p.Errorf("no %s of %s", op, key)
		}
	})
}

// statements lists what was stated, and has the archive verified with its keys.
func (p *pair) statements() (kinds []segment.StatementKind) {
	p.Helper()
	p.Store.(*mem).fail, p.Keys.(*mem).fail = nil, nil
	rep := verifyDeep(p.rig)
	if !rep.OK() {
		p.Errorf("verify: %+v", rep.Findings)
	}
	for h, err := range p.reader().Heads(p.Context(), "acme", 2) {
		if err != nil {
			p.Fatal(err)
		}
		kinds = append(kinds, h.Statement.Kind)
	}
	return kinds
}

func (p *pair) want(want ...segment.StatementKind) {
	p.Helper()
	if d := cmp.Diff(want, p.statements()); d != "" {
		p.Errorf("statements (-want +got):\n%s", d)
	}
}

// TestEraseTwoRuns: two processes erase two runs of one segment: neither writes the other's key back.
func TestEraseTwoRuns(t *testing.T) {
	p := newPair(t)
	p.meanwhile(p.Keys, "replace", "keys/acme/", func() { must(p.b.Erase(t.Context(), "acme", "b", "dpo", "x")) })
	must(p.a.Erase(t.Context(), "acme", "a", "dpo", "x"))
	p.want(segment.Erased, segment.Erased)
	keys := p.Keys.(*mem)
	for _, k := range keys.keys("keys/") {
		if segment.HasKey(keys.m[k], "a") || segment.HasKey(keys.m[k], "b") {
			t.Errorf("%s has a key", k)
		}
	}
}

// TestEraseTwice: of two who erase one run, one states it, and the other says the same head.
func TestEraseTwice(t *testing.T) {
	p := newPair(t)
	var other *segment.Head
	p.meanwhile(p.Store, "create", "heads/", func() { other = must(p.b.Erase(t.Context(), "acme", "a", "dpo", "second")) })
	h := must(p.a.Erase(t.Context(), "acme", "a", "dpo", "first"))
	if h.Number != other.Number || h.Statement.Why != "second" {
		t.Errorf("heads %d and %d: %+v", h.Number, other.Number, h.Statement)
	}
	p.want(segment.Erased)
}

// TestEraseHeld: a hold that was faster than the erasure holds, and one that was slower is refused.
func TestEraseHeld(t *testing.T) {
	for _, run := range []string{"a", ""} {
		p := newPair(t)
		p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Hold(t.Context(), "acme", run, "h", "counsel", "x")) })
		if _, err := p.a.Erase(t.Context(), "acme", "a", "dpo", "x"); !errors.Is(err, segment.ErrHeld) {
			t.Errorf("got %v", err)
		}
		p.want(segment.Held)
		if n := len(p.read(segment.Query{Tenant: "acme", Run: "a"})); n != 2 {
			t.Errorf("%d records", n)
		}
	}
	p := newPair(t)
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Erase(t.Context(), "acme", "a", "dpo", "x")) })
	if _, err := p.a.Hold(t.Context(), "acme", "a", "h", "counsel", "x"); err == nil {
		t.Error("an erased run is held")
	}
	p.want(segment.Erased)
}

// TestHoldTwice: one name is one hold, and it is released once.
func TestHoldTwice(t *testing.T) {
	p := newPair(t)
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Hold(t.Context(), "acme", "a", "h", "counsel", "x")) })
	if _, err := p.a.Hold(t.Context(), "acme", "b", "h", "counsel", "x"); err == nil {
		t.Error("two holds of one name")
	}
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Release(t.Context(), "acme", "h", "counsel", "x")) })
	if _, err := p.a.Release(t.Context(), "acme", "h", "counsel", "x"); !errors.Is(err, segment.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	p.want(segment.Held, segment.Released)
}

// TestRetainBeside: retention keeps what was held a moment ago, and of two each segment is deleted once.
func TestRetainBeside(t *testing.T) {
	end := day.Add(time.Hour)
	p := newPair(t)
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Hold(t.Context(), "acme", "a", "h", "counsel", "x")) })
	if h := must(p.a.Retain(t.Context(), "acme", end, "archive", "x")); h != nil {
		t.Errorf("deleted %+v", h.Statement)
	}
	p.want(segment.Held)

	p = newPair(t)
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Hold(t.Context(), "acme", "", "h", "counsel", "x")) })
	if _, err := p.a.Retain(t.Context(), "acme", end, "archive", "x"); !errors.Is(err, segment.ErrHeld) {
		t.Errorf("got %v", err)
	}
	p.want(segment.Held)

	p = newPair(t)
	p.meanwhile(p.Store, "create", "heads/", func() { must(p.b.Retain(t.Context(), "acme", end, "archive", "x")) })
	if h := must(p.a.Retain(t.Context(), "acme", end, "archive", "x")); h != nil {
		t.Errorf("deleted again: %+v", h.Statement)
	}
	p.want(segment.Retained)
}

// TestEraseRetained: a page of keys that retention deletes while a run in it is erased does not stay.
func TestEraseRetained(t *testing.T) {
	p := newPair(t)
	p.meanwhile(p.Keys, "replace", "keys/acme/", func() { must(p.b.Retain(t.Context(), "acme", day.Add(time.Hour), "archive", "x")) })
	must(p.a.Erase(t.Context(), "acme", "a", "dpo", "x"))
	p.want(segment.Erased, segment.Retained)
	if left := p.Keys.(*mem).keys("keys/"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func verifyDeep(r *rig) *segment.Report {
	r.Helper()
	rep := must(segment.Verify(r.Context(), segment.VerifyOptions{
		Store: r.Store, Keys: r.Keys, Wrap: r.Wrap, Deep: true, Trust: []ed25519.PublicKey{public(r.key)},
	}))
	rep.Findings = ended(rep.Findings)
	return rep
}

// TestManyBeside: several processes erase, hold, delete and seal in one directory at once. Whoever
// was first is respected, and nothing is left half done.
func TestManyBeside(t *testing.T) {
	r := newRig(t)
	dir := tempDir(t)
	r.Store, r.Keys = openStore(t, dir), openStore(t, dir)
	r.open()
	runs := strings.Fields("a b c d e f g h")
	fill := func() {
		for _, run := range runs {
			r.add(r.next("acme", run))
		}
		r.seal()
	}
	for range 3 {
		fill()
	}
	end := r.all[len(runs)-1].Stored.Add(time.Millisecond) // of the first segment
	var wg sync.WaitGroup
	var mu sync.Mutex
	erased, held := map[string]bool{}, map[string]bool{}
	for n := range 4 {
		o := r.Options
		o.Dir, o.Store, o.Keys = tempDir(t), openStore(t, dir), openStore(t, dir)
		a := must(segment.Open(t.Context(), o))
		t.Cleanup(func() { a.Close() })
		wg.Go(func() {
			for i, run := range runs {
				_, err := a.Erase(t.Context(), "acme", run, "dpo", "x")
				_, herr := a.Hold(t.Context(), "acme", runs[(i+3*n)%len(runs)], fmt.Sprint(n, "-", i), "counsel", "x")
				_, rerr := a.Retain(t.Context(), "acme", end, "archive", "x")
				if err != nil && !errors.Is(err, segment.ErrHeld) || rerr != nil {
					t.Errorf("erase: %v; retain: %v", err, rerr)
				}
				mu.Lock()
				erased[run] = erased[run] || err == nil
				if herr == nil {
					held[runs[(i+3*n)%len(runs)]] = true
				}
				mu.Unlock()
			}
		})
	}
	for range 3 {
		fill()
	}
	wg.Wait()
	fill()
	if len(erased) != len(runs) {
		t.Error(erased)
	}
	for run := range held {
		if erased[run] {
			t.Errorf("run %s was erased, and is held", run)
		}
	}
	if rep := verifyDeep(r); !rep.OK() {
		t.Errorf("%+v", rep.Findings)
	}
	readable := map[string]bool{}
	for rec, err := range r.reader().Records(t.Context(), segment.Query{}) {
		var gone *segment.ErasedError
		var deleted *segment.GoneError
		switch {
		case errors.As(err, &gone), errors.As(err, &deleted):
		case err != nil:
			t.Fatal(err)
		default:
			readable[rec.Run] = true
		}
	}
	for _, run := range runs {
		if readable[run] == erased[run] {
			t.Errorf("run %s: erased %v, readable %v", run, erased[run], readable[run])
		}
	}
}
