package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

// restart goes on with the snapshot, as a new process does.
func (f *feeder) restart() {
	f.t.Helper()
	data, err := f.c.encode(f.at)
	if err != nil {
		f.t.Fatal(err)
	}
	f.load(data)
}

func (f *feeder) load(data []byte) {
	f.t.Helper()
	c := newTally(f.c.opt)
	if err := c.decode(data); err != nil {
		f.t.Fatal(err)
	}
	f.c = c
}

func (f *feeder) reset() { f.c = newTally(f.c.opt) }

// recount counts all that was stored from scratch, in its order.
func (f *feeder) recount(now time.Time) map[string]string {
	f.t.Helper()
	old := f.c
	defer func() { f.c = old }()
	f.reset()
	f.c.ordered = true
	for _, x := range f.log {
		f.count(x)
	}
	f.c.expire(now.Add(-lostSlack))
	f.c.now = old.now
	return f.c.counted()
}

// mixed stores the events of many recordings, each run in its order and all of them mixed.
func mixed(f *feeder, rng *rand.Rand, names []string) (all []fed) {
	var runs [][]*event.Event
	for i, name := range names {
		runs = append(runs, captured(f.t, name, fmt.Sprint("t", i%3), fmt.Sprintf("r%03d", i)))
	}
	for len(runs) > 0 {
		i := rng.IntN(len(runs))
		n := min(1+rng.IntN(5), len(runs[i]))
		for _, e := range runs[i][:n] {
			all = append(all, f.store(0, e))
		}
		if runs[i] = runs[i][n:]; len(runs[i]) == 0 {
			runs = slices.Delete(runs, i, i+1)
		} else if rng.IntN(40) == 0 {
			e := runs[i][0]
			for _, typ := range []string{event.TypeLost, event.TypeResumed} {
				x := fact(e.Tenant, e.Run, typ, "liveness", map[string]string{})
				x.Time = e.Time
				all = append(all, f.store(bus.ControlLog, x))
			}
		}
	}
	return all
}

// A process that is killed at any moment, and gets again what was not acked, counts as one
// that was never killed: all recordings are played, mixed, some with little memory for folds.
func TestKilledAnywhere(t *testing.T) {
	const parts = 6
	for seed := range uint64(parts) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var names []string
			for i, name := range capture.List() {
				if i%parts == int(seed) {
					names = append(names, name)
				}
			}
			rng := rand.New(rand.NewPCG(seed, 6))
			o := testOptions()
			if seed%2 == 1 {
				o.Memory = 20 * foldBase
			}
			f := feed(t, o)
			all := mixed(f, rng, names)
			want := f.recount(f.at)
			snapshot, from := []byte(nil), 0 // as on the disk, and what was acked
			kills := 0
			for i := 0; i < len(all); i++ {
				f.count(all[i])
				switch rng.IntN(200) {
				case 0, 1, 2: // a commit; the ack may be lost
					var err error
					if snapshot, err = f.c.encode(f.at); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(3) > 0 {
						from = i + 1
					}
				case 3:
					if kills++; snapshot == nil {
						f.reset()
						i = -1
						break
					}
					f.load(snapshot)
					i = from - 1
				}
			}
			f.c.now = func() time.Time { return f.at }
			if d := cmp.Diff(want, f.c.counted()); d != "" {
				t.Errorf("after %d kills the counts differ (-recount +counts):\n%s", kills, d)
			}
			if kills < 5 {
				t.Errorf("%d kills: the test is too easy", kills)
			}
			if o.Memory > 0 && f.c.folds.cost > 2*o.Memory {
				t.Errorf("folds take %d, more than the %d they may", f.c.folds.cost, o.Memory)
			}
		})
	}
}

// An entry that could not be counted comes again, after others, and across a restart.
func TestHeldUpRun(t *testing.T) {
	f := feed(t, testOptions())
	a, b := claudeRun("r1"), claudeRun("r2")
	for _, s := range []*script{a, b} {
		s.started(event.Started{})
		s.init()
		s.result("a", 0.1, "")
		s.exited(0)
	}
	var all []fed
	for i := range a.events {
		all = append(all, f.store(0, a.events[i]), f.store(0, b.events[i]))
	}
	want := f.recount(f.at)
	f.count(all[0])
	f.count(all[1])
	f.c.passed(all[2].log, all[2].at, errors.New("refused")) // and with it the rest of r1
	for _, x := range []fed{all[3], all[5], all[7]} {
		f.count(x)
	}
	f.restart()
	for _, x := range all[2:] { // the ack never passed the held-up entry
		if x.e.Run == "r2" {
			f.count(x)
		}
	}
	if d := cmp.Diff(want, f.c.counted()); d == "" {
		t.Fatal("r1 is counted already")
	}
	for _, x := range []fed{all[2], all[4], all[6]} {
		f.count(x)
	}
	if d := cmp.Diff(want, f.c.counted()); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
}

// Any damage of the snapshot is seen.
func TestDamagedSnapshot(t *testing.T) {
	f := feed(t, testOptions())
	f.play(captured(t, "claude-2.1.220/02-multi-turn", "acme", "r1")...)
	f.play(claudeLive("r2").events...)
	data, err := f.c.encode(f.at)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty": {}, "cut": data[:len(data)-1], "half": data[:len(data)/2], "no head": data[bytes.IndexByte(data, '\n')+1:],
		"longer": append(slices.Clone(data), ' '), "zeroes": make([]byte, len(data)),
		"other version": bytes.Replace(data, []byte("cbcast-metrics 1 "), []byte("cbcast-metrics 2 "), 1),
	}
	for i := 0; i < len(data); i += 1 + len(data)/200 {
		d := slices.Clone(data)
		d[i] ^= 1
		damaged[fmt.Sprint("bit at ", i)] = d
	}
	for name, d := range damaged {
		c := newTally(f.c.opt)
		if err := c.decode(d); !errors.Is(err, errDamaged) {
			t.Errorf("%s: error %v, want %v", name, err, errDamaged)
		}
	}
	f.load(data)
}

func claudeLive(run string) *script {
	s := claudeRun(run)
	s.started(event.Started{})
	s.init()
	return s
}

// What was counted is the same after a restart, to the last bucket and exemplar.
func TestSnapshotIsWhole(t *testing.T) {
	f := feed(t, testOptions())
	for i, name := range capture.List() {
		f.play(captured(t, name, "acme", fmt.Sprint("r", i))...)
	}
	f.play(claudeLive("live").events...)
	before, text := f.c.values(), f.text()
	f.restart()
	f.c.saved = time.Time{}
	delete(before, "metrics_folds_held{}")
	after := f.c.values()
	delete(after, "metrics_folds_held{}")
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("counts (-before +after):\n%s", d)
	}
	if d := cmp.Diff(text, f.text()); d != "" {
		t.Errorf("exposition (-before +after):\n%s", d)
	}
}
