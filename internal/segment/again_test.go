package segment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
)

// crowd makes records of many runs, some of them large: blocks are written long before or
// after those of their neighbours in the stream.
func (r *rig) crowd(rnd *rand.Rand, n int) {
	for range n {
		rec := r.next([]string{"acme", "beta"}[rnd.IntN(2)], fmt.Sprintf("run-%d", rnd.IntN(12)))
		rec.Stored = day.Add(24*time.Hour + time.Duration(int(r.seq)-n/2)*time.Second)
		if rnd.IntN(3) == 0 {
			rec.Data = bytes.Repeat([]byte{'x'}, 500+rnd.IntN(3000))
		}
		if rnd.IntN(9) == 0 {
			rec.Log, rec.Subject, rec.Seq = segment.Control, "cbc.ctl.acme."+rec.Run+".audit-1", 0
			r.run[rec.Tenant+"/"+rec.Run]--
		}
	}
}

// until appends what is not acknowledged, seals now and then, and stops without a word after
// some records.
func (r *rig) until(rnd *rand.Rand, acked map[segment.Log]segment.Place, stop int) {
	r.Helper()
	ctx := context.Background()
	a, err := segment.Open(ctx, r.Options)
	if err != nil {
		r.Fatal(err)
	}
	defer a.Close()
	seal := func() {
		if _, err := a.Seal(ctx, 0); err != nil {
			r.Fatal(err)
		}
		for log, p := range a.Through() {
			if p.Seq > acked[log].Seq {
				acked[log] = p
			}
		}
	}
	for _, rec := range r.all {
		if rec.StreamSeq <= acked[rec.Log].Seq {
			continue
		}
		if stop--; stop == 0 {
			return
		}
		_, err := a.Append(ctx, rec)
		if errors.Is(err, segment.ErrFull) {
			seal()
			_, err = a.Append(ctx, rec)
		}
		if err != nil {
			r.Fatalf("append %s: %v", place(rec), err)
		}
		if rnd.IntN(25) == 0 {
			seal()
		}
	}
	seal()
}

// TestKilledBetweenBlocks: what a killed process left has late places and not the early ones. It
// is not taken for more than it is, whatever is sealed before everything came again,
// also where this machine is lost on the way.
func TestKilledBetweenBlocks(t *testing.T) {
	key := newKey(t)
	for seed := range uint64(max(8, 24/stride)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t)
		r.key, r.Memory, r.Segment, r.Block, r.Open = key, 20_000, 30_000, 4000, 3
		r.crowd(rnd, 200)
		acked := map[segment.Log]segment.Place{}
		for range 5 {
			r.until(rnd, acked, 1+rnd.IntN(150))
			if rnd.IntN(6) == 0 {
				r.Dir = tempDir(t) // another machine
			}
		}
		r.until(rnd, acked, 0)
		if len(acked) != 2 {
			t.Errorf("acknowledged %v", acked)
		}
		r.whole(fmt.Sprintf("seed %d", seed))
		if t.Failed() {
			return
		}
	}
}

// TestRecoveredWaits: what a killed process left is not sealed before its logs were read
// again, and says nothing of what lies between. Where retention took that, or the log was made
// anew, it is the only copy, and is sealed.
func TestRecoveredWaits(t *testing.T) {
	for _, how := range []string{"read again", "retention took all", "retention took the middle", "made anew"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.Memory = 20_000
			a := r.open()
			small := []*segment.Record{r.next("acme", "a"), r.next("acme", "b")}
			large := r.next("acme", "c")
			large.Data = bytes.Repeat([]byte{'x'}, 19_900)
			next := r.next("acme", "d")
			r.add(large) // it is a block when the next one comes
			r.add(next)
			a.Close() // next is lost
			r.all = nil

			a = r.open()
			if heads := r.seal(); len(heads) != 0 {
				t.Fatalf("sealed %+v", heads[0].Segment)
			}
			want := map[segment.Log]segment.Place{0: {Seq: 3, Time: large.Stored}}
			if got := a.Awaited(); len(got) != 1 || got[0] != want[0] {
				t.Errorf("awaited %v, want %v", got, want)
			}
			switch how {
			case "read again":
				r.add(small...)
				if got := must(a.Append(t.Context(), large)); got != segment.Already {
					t.Errorf("got %v", got)
				}
				r.all = append(small, large)
			case "retention took all":
				a.Gone(0, 2) // not yet
				if heads := r.seal(); len(heads) != 0 {
					t.Error("sealed before")
				}
				a.Gone(0, 3)
				r.all = []*segment.Record{large}
			case "retention took the middle":
				r.add(small[0])
				r.add(next)
				r.all = []*segment.Record{small[0], large, next}
			case "made anew":
				a.Rebuilt(0)
				r.all = []*segment.Record{large}
			}
			r.seal()
			r.whole(how)
			if got, want := a.Through()[0].Seq, map[string]uint64{"read again": 3, "retention took the middle": 4}[how]; got != want {
				t.Errorf("through %d, want %d", got, want)
			}
		})
	}
}

// TestFewerLogs: a segment that was recovered waits for the logs that there are, not for one that
// is no more, and what comes behind it in its tenant's chain goes on.
func TestFewerLogs(t *testing.T) {
	r := newRig(t)
	a := r.open()
	first, second := r.next("acme", "a"), r.next("acme", "b")
	second.Log = 1
	r.add(first, second)
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a = r.open()
	if got := a.Awaited(); len(got) != 2 {
		t.Errorf("awaited %v", got)
	}
	if got := must(a.Append(t.Context(), first)); got != segment.Already {
		t.Errorf("got %v", got)
	}
	if heads := r.seal(); len(heads) != 0 {
		t.Error("sealed before anything is known of the second log")
	}
	a.Rebuilt(1)
	r.add(r.next("acme", "b"))
	if heads := r.seal(); len(heads) != 1 {
		t.Errorf("%d heads", len(heads))
	}
	if got := a.Through(); got[0].Seq != 3 || got[1] != (segment.Place{}) {
		t.Errorf("through %v", got)
	}
	r.whole("fewer logs")
}

// TestAnewLog: a log that was made anew counts from 1 again. What is open of the earlier one
// is no place in it.
func TestAnewLog(t *testing.T) {
	r := newRig(t)
	a := r.open()
	for range 5 {
		r.add(r.next("acme", "a"))
	}
	a.Rebuilt(0)
	if got := a.Through(); len(got) != 0 {
		t.Errorf("through %v", got)
	}
	r.seq = 0
	again := r.next("acme", "a")
	again.Stored = again.Stored.Add(time.Hour)
	r.add(again)
	if got := a.Through(); len(got) != 0 {
		t.Errorf("through %v, nothing of it is sealed", got)
	}
	r.seal()
	if got := a.Through()[0]; got.Seq != 1 {
		t.Errorf("through %v", got)
	}
	r.whole("made anew")
}
