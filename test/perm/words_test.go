package perm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsauth"
)

// An edge may write what it likes under its own run. Messages that look like the
// server's own words, to whoever reads them, stop nobody who reads other runs as well.
func TestWordsOfTheServer(t *testing.T) {
	w := operator(t, tenant)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	own, run := newRun(t), newRun(t)
	attacker := w.raw(w.edge(tenant, own))
	edge, relay := w.connect(w.edge(tenant, run)), w.connect(w.user(tenant, natsauth.Relay))
	hostile := func() {
		t.Helper()
		for _, status := range []string{"100", "204", "400", "404", "408", "409 Consumer Deleted", "409 Message Size Exceeds MaxBytes", "423", "503"} {
			h := nats.Header{
				"Status": {status[:3]}, "Description": {status[3:]}, "Nats-Pending-Messages": {"1000000"}, "Nats-Sequence": {"1"},
				"Nats-Last-Sequence": {"77"}, "Nats-Num-Pending": {"0"},
			}
			f := foe{own: own, tenant: tenant}
			for _, subj := range []string{"cbc.ev.0.TENANT.OWN.s.t.msg", "$KV.runs.OWN", "$KV.presence.OWN"} {
				_, err := attacker.RequestMsg(&nats.Msg{Subject: f.in(subj), Header: h}, patience)
				must(t, err)
			}
		}
	}
	hostile()
	publish(t, edge, tenant, run, 100)
	must(t, edge.PutRun(ctx, bus.RunInfo{Run: run, Tenant: tenant, State: "running"}))
	must(t, edge.RenewPresence(ctx, run, time.Minute))
	hostile()

	lctx, stop := context.WithCancel(ctx)
	events, entries, alive := make(chan string, 1000), make(chan string, 1000), make(chan string, 1000)
	ended := make(chan error, 3)
	go func() {
		ended <- relay.Tail(lctx, 0, func() { events <- "ready" }, func(e *event.Event, _ uint64) { events <- fmt.Sprint(e.Run, e.Seq) })
	}()
	go func() {
		ended <- relay.WatchRuns(lctx, func() { entries <- "ready" }, func(r bus.RunInfo, _ bool) { entries <- r.Run + r.State })
	}()
	go func() {
		ended <- relay.WatchPresence(lctx, func() { alive <- "ready" }, func(run string, p bus.Presence) { alive <- run + p.String() })
	}()
	next(t, events, "ready")
	next(t, entries, run+"running")
	next(t, entries, "ready")
	next(t, alive, run+"alive")
	next(t, alive, "ready")
	hostile()
	other := newRun(t)
	live := w.connect(w.edge(tenant, other))
	publish(t, live, tenant, other, 1)
	must(t, live.PutRun(ctx, bus.RunInfo{Run: other, Tenant: tenant, State: "done"}))
	must(t, live.RenewPresence(ctx, other, time.Minute))
	next(t, events, other+"1")
	next(t, entries, other+"done")
	next(t, alive, other+"alive")
	whole(t, relay, tenant, run, 100)
	if all, err := relay.Runs(ctx); err != nil || len(all) != 2 {
		t.Errorf("runs: %+v, %v", all, err)
	}
	stop()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
