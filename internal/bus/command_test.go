package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

func command(id string) bus.Command {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return bus.Command{
		ID: id, Tenant: "acme", Run: "r1", Name: "interrupt", Data: []byte(`{"reason":"enough"}`), Time: now,
		DeliverBy: now.Add(30 * time.Second), EffectBy: now.Add(75 * time.Second), Actor: "local token", From: "127.0.0.1",
	}
}

func send(t *testing.T, b *bus.Bus, c bus.Command) {
	t.Helper()
	if dup, err := b.SendCommand(t.Context(), c); err != nil || dup {
		t.Fatalf("SendCommand(%s) = %v, %v", c.ID, dup, err)
	}
}

func TestCommandRoundTrip(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	c := command("c 1")
	send(t, b, c)
	got, err := b.FindCommand(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Error(diff)
	}
	again := c
	again.Data = []byte(`{"reason":"other"}`)
	if dup, err := b.SendCommand(t.Context(), again); err != nil || !dup {
		t.Errorf("again: %v, %v", dup, err)
	}
	// The same id for another run is another command.
	other := c
	other.Run = "r2"
	send(t, b, other)
	if _, err := b.FindCommand(t.Context(), "none"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("FindCommand(none) = %v", err)
	}
	late := command("c2")
	late.DeliverBy = time.Now().Add(-time.Second)
	if _, err := b.SendCommand(t.Context(), late); err == nil {
		t.Error("a command that can never be delivered was taken")
	}
	var stored struct {
		Message struct {
			Hdrs []byte `json:"hdrs"`
		} `json:"message"`
	}
	api(t, b, "STREAM.MSG.GET.CMD", map[string]any{"last_by_subj": "cbc.cmd.acme.r1.>"}, &stored)
	if want := "Nats-TTL: 630\r\n"; !contains(stored.Message.Hdrs, want) {
		t.Errorf("no %q in %q", want, stored.Message.Hdrs)
	}
}

func TestCommandsArriveOnceInOrder(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	away := connect(t, bus.Config{URL: px.url()})
	b := connect(t, bus.Config{URL: server.ClientURL()})
	ensure(t, b)
	for i := range 70 { // more than one fetch
		send(t, b, command(fmt.Sprint("before", i)))
	}
	other := command("other")
	other.Run = "r10"
	send(t, b, other)
	got := make(chan bus.Command, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- away.Commands(ctx, "acme", "r1", func(c bus.Command) { got <- c }) }()
	want := func(id string) {
		t.Helper()
		select {
		case c := <-got:
			if c.ID != id {
				t.Fatalf("command %s, want %s", c.ID, id)
			}
		case <-time.After(patience):
			t.Fatalf("no command %s", id)
		}
	}
	for i := range 70 {
		want(fmt.Sprint("before", i))
	}
	for i := range 20 {
		send(t, b, command(fmt.Sprint("live", i)))
		want(fmt.Sprint("live", i))
	}
	px.aim("127.0.0.1:1")
	px.cut()
	for i := range 5 {
		send(t, b, command(fmt.Sprint("away", i)))
	}
	px.aim(server.ClientURL())
	for i := range 5 {
		want(fmt.Sprint("away", i))
	}
	api(t, b, "STREAM.DELETE.CMD", nil, nil)
	ensure(t, b)
	send(t, b, command("anew")) // its sequence is 1
	want("anew")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Commands = %v", err)
	}
	if len(got) > 0 {
		t.Errorf("one more: %v", <-got)
	}
}

func contains(b []byte, s string) bool { return bytes.Contains(b, []byte(s)) }

func fact(run, ref, typ string) *event.Event {
	return &event.Event{
		Tenant: "acme", Run: run, Ref: ref, Time: epoch, Type: typ, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON, Data: []byte(`{}`),
	}
}

// Lost and resumed alternate on one subject, and of many writers one succeeds.
func TestControlHappensOnce(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	ctx := t.Context()
	seen := make(chan *event.Event, 10)
	ready := make(chan struct{})
	tctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- b.TailControl(tctx, func() { close(ready) }, func(e *event.Event, _ uint64) { seen <- e })
	}()
	<-ready
	var last uint64
	for i, typ := range []string{event.TypeLost, event.TypeResumed, event.TypeLost} {
		results := make(chan error, 5)
		for w := range cap(results) {
			go func() {
				_, err := b.PutControl(ctx, fact("r1", fmt.Sprintf("%s-%d-%d", typ, i, w), typ), "liveness", last)
				results <- err
			}()
		}
		won := 0
		for range cap(results) {
			if err := <-results; err == nil {
				won++
			} else if !errors.Is(err, bus.ErrConflict) {
				t.Error(err)
			}
		}
		e, seq, err := b.Control(ctx, "acme", "r1", "liveness")
		if err != nil || won != 1 || e.Type != typ || e.Kind != event.Life || seq <= last {
			t.Errorf("%d writers succeeded; %+v %d %v", won, e, seq, err)
		}
		last = seq
		if got := <-seen; got.Type != typ {
			t.Errorf("tail has %s, want %s", got.Type, typ)
		}
	}
	for range 2 { // an audit fact twice is one
		if _, err := b.PutControl(ctx, fact("r1", "audit-c1", event.TypeAudit), "audit-c1", bus.Any); err != nil {
			t.Error(err)
		}
	}
	var types []string
	for e, err := range b.Controls(ctx, "acme", "r1") {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	want := []string{event.TypeLost, event.TypeResumed, event.TypeLost, event.TypeAudit}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	for range b.Controls(ctx, "acme", "r2") {
		t.Error("r2 has none")
	}
	if _, _, err := b.Control(ctx, "acme", "r2", "liveness"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Control of none = %v", err)
	}
	cancel()
	<-done
}
