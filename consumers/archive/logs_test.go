package archive

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// stream is the stream of a log, to be done something to.
func (r *rig) js() jetstream.JetStream {
	r.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(r.server))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// partitioned publishes one run to each of two partitions. It returns their ids.
func (r *rig) partitioned(n uint64) (ids [2]string) {
	r.t.Helper()
	if _, err := r.bus.Ensure(r.t.Context(), bus.Topology{MaxBytes: 64 << 20, Partitions: 2}); err != nil {
		r.t.Fatal(err)
	}
	for p := range ids {
		for i := 0; ids[p] == ""; i++ {
			if id := fmt.Sprintf("run-%d", i); subject.Partition(id, 2) == p {
				ids[p] = id
			}
		}
		r.publishTo(p, ids[p], n)
	}
	return ids
}

// publishTo adds n events to a run of a partition.
func (r *rig) publishTo(partition int, id string, n uint64) {
	r.t.Helper()
	u := r.sent[id]
	if u == nil {
		u = &run{tenant: tenant, id: id}
		r.sent[id] = u
	}
	u.n += n
	p := &bus.Publisher{Bus: r.bus, Ref: bus.Ref{Tenant: tenant, Run: id, Partition: partition}, Source: u}
	ctx, cancel := context.WithTimeout(r.t.Context(), long)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) hasEvents(id string) bool {
	i, err := r.place().Reader().Run(r.t.Context(), tenant, id)
	return err == nil && i.LastSeq == r.sent[id].n
}

// With fewer partitions than before, what was read of one and not sealed when the process was
// killed waits for nothing, whether the partition is gone or still there; one that is there is
// read on, one that is gone is no reason not to be ready.
func TestFewerPartitions(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint("gone ", gone), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ids := r.partitioned(50)
			two := func(o *Options) { o.Partitions = 2 }
			u := r.start(two)
			u.until("both", r.hasBoth(ids))
			_ = u.close()
			r.publishTo(1, ids[1], 50)
			r.publishTo(0, ids[0], 50)
			r.leaveOpen(1, 50)
			if gone {
				if err := r.js().DeleteStream(t.Context(), subject.EventStream(1)); err != nil {
					t.Fatal(err)
				}
			}
			u = r.start(quickLook) // with one
			u.until("what was left", r.hasBoth(ids))
			if !gone {
				r.publishTo(1, ids[1], 50)
				u.until("what came to the former partition", r.hasBoth(ids))
				if !slices.Contains(u.logs(), 1) {
					t.Errorf("reads %v", u.logs())
				}
				if err := r.js().DeleteStream(t.Context(), subject.EventStream(1)); err != nil {
					t.Fatal(err)
				}
				u.until("it is known to be gone", func() bool { return !slices.Contains(u.logs(), 1) })
			}
			u.until("ready", func() bool { return u.Ready() == nil })
			_ = u.close()
			r.check2(ids)
		})
	}
}

func (r *rig) hasBoth(ids [2]string) func() bool {
	return func() bool { return r.hasEvents(ids[0]) && r.hasEvents(ids[1]) }
}

// leaveOpen reads what comes behind the first n messages of a log as a process does that is
// killed before it seals it.
func (r *rig) leaveOpen(l bus.Log, n uint64) {
	r.t.Helper()
	o := Options{Config: r.cfg, Dir: r.dir, Bus: r.bus, Partitions: 2}
	s, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	ar, err := s.openArchive(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	k := newKeeper(r.t.Context(), s, ar, func(error) {})
	last, err := r.bus.HeadLog(r.t.Context(), l)
	if err != nil {
		r.t.Fatal(err)
	}
	for e, err := range r.bus.ReadLog(r.t.Context(), l, bus.Place{Seq: n}, bus.Place{Seq: last}, "", "") {
		if err != nil {
			r.t.Fatal(err)
		}
		c := entryOf(e)
		c.Log = l
		if err := k.Handle(r.t.Context(), c); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := ar.Sync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := ar.Close(); err != nil {
		r.t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "open", "*.seg")); err != nil || len(left) == 0 {
		r.t.Fatalf("nothing was left: %v", err)
	}
}

// check2 is check for runs of two partitions.
func (r *rig) check2(ids [2]string) {
	r.t.Helper()
	for p, id := range ids {
		var n uint64
		for rec, err := range r.place().Reader().Records(r.t.Context(), segment.Query{Tenant: tenant, Run: id}) {
			if err != nil {
				r.t.Fatal(err)
			}
			if n++; rec.Seq != n || rec.Log != segment.Log(p) {
				r.t.Errorf("%s has %d of %s where %d belongs", id, rec.Seq, rec.Log, n)
			}
		}
		if n != r.sent[id].n {
			r.t.Errorf("%s has %d events of %d", id, n, r.sent[id].n)
		}
	}
	r.verify()
}

func TestIsFormer(t *testing.T) {
	for err, want := range map[error]bool{bus.ErrNoLog: true, bus.ErrDenied: true, bus.ErrUnavailable: false, context.Canceled: false} {
		if got := isFormer(fmt.Errorf("ask: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
