package perm

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

// A server lets a client name any subject as the place for an answer, also one that
// it may not publish to; only those of JetStream's own API are refused. So an edge
// can have the server write there: an acknowledgement, a message that it may read,
// an event of its own. Within one account no permission prevents that. What is
// written so counts for nothing: not as a command, not as a decision, not as an
// event, not as an entry; and the run that it is under goes on.
func TestAnswersAreNoMessages(t *testing.T) {
	w := operator(t, tenant)
	relay := w.connect(w.user(tenant, natsauth.Relay))
	f := foe{own: newRun(t), run: newRun(t), tenant: tenant}

	// The attacker's last event is whatever it likes: here all that a command, a
	// decision and an entry need.
	attacker := w.raw(w.edge(tenant, f.own))
	forged := nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"x"}, "ce-source": {f.in("/cbcast/TENANT/RUN")}, "ce-type": {event.TypeCmd},
		"ce-time": {time.Now().UTC().Format(time.RFC3339Nano)}, "ce-command": {"interrupt"}, "ce-sequence": {"000000000001"},
		"ce-expirytime": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)}, "ce-datacontenttype": {"application/json"},
	}
	m := &nats.Msg{Subject: f.in("cbc.ev.0.TENANT.OWN.s.t.msg"), Header: forged, Data: []byte(f.in(`{"run":"RUN","tenant":"TENANT","state":"forged"}`))}
	_, err := attacker.RequestMsg(m, patience)
	must(t, err)
	lastOwn := f.in("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.OWN.>")

	// The victim lives, and listens.
	edge := w.connect(w.edge(tenant, f.run))
	src := newTape(tenant, f.run, 100)
	p := bus.Publisher{Bus: edge, Ref: bus.Ref{Tenant: tenant, Run: f.run}, Source: src}
	shipped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	go func() { shipped <- p.Run(ctx) }()
	src.until(t, 100)
	must(t, edge.RenewPresence(ctx, f.run, 2*time.Second))
	must(t, edge.PutRun(ctx, bus.RunInfo{Run: f.run, Tenant: tenant, State: "running"}))
	got := make(chan string, 10)
	lctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 3)
	go func() {
		ended <- edge.Commands(lctx, tenant, f.run, func(c bus.Command) { got <- c.Name + " " + c.ID })
	}()
	entries, alive := make(chan string, 10), make(chan bus.Presence, 10)
	go func() {
		ended <- relay.WatchRuns(lctx, nil, func(r bus.RunInfo, gone bool) {
			if r.Run == f.run {
				entries <- r.State
			}
		})
	}()
	go func() {
		ended <- relay.WatchPresence(lctx, nil, func(run string, p bus.Presence) {
			if run == f.run {
				alive <- p
			}
		})
	}()
	next(t, entries, "running")
	next(t, alive, bus.Alive)

	// A command to the attacker itself, which it may read, and have delivered. Its
	// message id would stop that for ten minutes, so this one has none.
	own := nats.Header{}
	for k, v := range forged {
		own[k] = v
	}
	own["ce-source"] = []string{f.in("/cbcast/TENANT/OWN")}
	_, err = w.raw(w.user(tenant, natsauth.Relay)).RequestMsg(&nats.Msg{Subject: f.in("cbc.cmd.TENANT.OWN.own"), Header: own}, patience)
	must(t, err)

	places := []struct{ stream, subj string }{
		{"CMD", "cbc.cmd.TENANT.RUN.forged"},
		{"CTL", "cbc.ctl.TENANT.RUN.audit-answer-RUN-a1-1"},
		{"EV_0", "cbc.ev.0.TENANT.RUN.s1._.msg"},
		{"KV_runs", "$KV.runs.RUN"},
		{"KV_presence", "$KV.presence.RUN"},
	}
	admin := w.raw(w.user(tenant, natsauth.Admin))
	for _, at := range places {
		for _, how := range []struct {
			name string
			do   func(to string) error
		}{
			{"the own event", func(to string) error { return attacker.PublishRequest(lastOwn, to, nil) }},
			{"an acknowledgement", func(to string) error {
				return attacker.PublishRequest(f.in("cbc.ev.0.TENANT.OWN.s.t.raw"), to, []byte("x"))
			}},
			{"a command, by a consumer", func(to string) error {
				if at.stream == "CMD" {
					to = f.in("cbc.cmd.TENANT.RUN.forged2")
				}
				_, err := createAs(attacker, f, "cbc.cmd.TENANT.OWN.>", map[string]any{"deliver_policy": "all"})
				if err != nil {
					return err
				}
				return attacker.PublishRequest(f.in("$JS.API.CONSUMER.MSG.NEXT.CMD.OWN"), to, []byte(`{"batch":1,"no_wait":true}`))
			}},
		} {
			before := lastSeq(t, admin, at.stream)
			must(t, how.do(f.in(at.subj)))
			must(t, attacker.FlushTimeout(patience))
			// That it is there shows that the attack is real.
			for lastSeq(t, admin, at.stream) == before {
				if ctx.Err() != nil {
					t.Fatalf("%s does not reach %s", how.name, at.stream)
				}
				wait(t.Context(), t)
			}
			if how.name == "a command, by a consumer" {
				_, err = attacker.ask(f.in("$JS.API.CONSUMER.DELETE.CMD.OWN"), "")
				must(t, err)
			}
			// An own event again, as the acknowledgement's message was the last one.
			_, err := attacker.RequestMsg(m, patience)
			must(t, err)
		}
	}

	// The victim goes on, and takes commands of relays only.
	src.add(400, true)
	must(t, <-shipped)
	whole(t, relay, tenant, f.run, 500)
	if e, _, err := relay.Last(ctx, bus.Ref{Tenant: tenant, Run: f.run}); err != nil || e.Seq != 500 {
		t.Errorf("last: %+v, %v", e, err)
	}
	_, err = relay.SendCommand(ctx, bus.Command{
		ID: "true", Tenant: tenant, Run: f.run, Name: "interrupt", Time: time.Now(), DeliverBy: time.Now().Add(time.Minute),
	})
	must(t, err)
	next(t, got, "interrupt true")
	what := subject.Audit("answer-" + f.run + "-a1-1")
	if e, _, err := relay.Control(ctx, tenant, f.run, what); err == nil {
		t.Errorf("decided: %+v", e)
	}
	for e, err := range relay.Controls(ctx, tenant, f.run) {
		t.Errorf("control fact: %+v, %v", e, err)
	}
	audit := &event.Event{
		Tenant: tenant, Run: f.run, Ref: what, Time: time.Now(), Type: event.TypeAudit, Kind: event.Cmd, Stream: event.Edge, ContentType: event.JSON,
	}
	if _, mine, err := relay.Decide(ctx, audit, what); err != nil || !mine {
		t.Errorf("a decision behind a forged one: %v, %v", mine, err)
	}
	dup, err := relay.SendCommand(ctx, bus.Command{
		ID: "forged", Tenant: tenant, Run: f.run, Name: "stop", Time: time.Now(), DeliverBy: time.Now().Add(time.Minute),
	})
	if err != nil || dup {
		t.Errorf("a command with the id of a forged one: %v, %v", dup, err)
	}
	next(t, got, "stop forged")
	if i, err := relay.Run(ctx, f.run); err == nil {
		t.Errorf("entry: %+v", i)
	}
	if all, err := relay.Runs(ctx); err != nil || len(all) != 0 {
		t.Errorf("entries: %+v, %v", all, err)
	}
	// What it says itself is heard, and that it says nothing more.
	must(t, edge.PutRun(ctx, bus.RunInfo{Run: f.run, Tenant: tenant, State: "done"}))
	next(t, entries, "done")
	next(t, alive, bus.Expired)
	stop()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(got)+len(entries)+len(alive) > 0 {
		t.Errorf("%d more commands, %d entries, %d presences", len(got), len(entries), len(alive))
	}
}

// next waits for the next value and compares it.
func next[T comparable](t *testing.T, c <-chan T, want T) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no %v", want)
	}
}

// lastSeq is the last sequence of a stream.
func lastSeq(t *testing.T, admin *raw, stream string) uint64 {
	t.Helper()
	a, err := admin.ask("$JS.API.STREAM.INFO."+stream, "")
	must(t, err)
	var info struct {
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
	}
	must(t, json.Unmarshal(a.Data, &info))
	return info.State.LastSeq
}
