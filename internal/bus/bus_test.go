package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// Close in the middle of a dial is no failure to tell of.
func TestCloseWhileDialing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var out bytes.Buffer // read after Close
	b, err := bus.Open(bus.Config{URL: "nats://" + ln.Addr().String()}, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept() // says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.Close()
	if out.Len() > 0 {
		t.Errorf("log: %s", out.String())
	}
}

func TestConnectNobody(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = bus.Connect(ctx, bus.Config{URL: "nats://" + addr}, nil)
	if !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Connect = %v", err)
	}
	// Open does not mind, and everything says why it fails.
	b, err := bus.Open(bus.Config{URL: "nats://" + addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Last(t.Context(), ref("r1")); !errors.Is(err, bus.ErrUnavailable) || b.Connected() {
		t.Errorf("Last = %v, connected %v", err, b.Connected())
	}
	b.Close()
	if _, _, err := b.Last(t.Context(), ref("r1")); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Last after Close = %v", err)
	}
	if err := b.WaitConnected(t.Context()); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("WaitConnected after Close = %v", err)
	}
	b.Close()
}

// A server that appears later is found.
func TestOpenBeforeServer(t *testing.T) {
	px := newProxy(t, "127.0.0.1:1")
	b, err := bus.Open(bus.Config{URL: px.url()}, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	server := serve(t, natsd.Options{})
	px.aim(server.ClientURL())
	if err := b.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.Generation() != 1 || b.Err() != nil {
		t.Errorf("generation %d, %v", b.Generation(), b.Err())
	}
}

func TestConfigErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, cfg := range map[string]bus.Config{
		"creds": {Creds: missing}, "nkey": {Nkey: missing}, "ca": {TLSCA: missing}, "cert alone": {TLSCert: "bus_test.go"},
		"not a seed": {Nkey: "bus_test.go"},
	} {
		if b, err := bus.Open(cfg, nil); err == nil {
			b.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// A refused login is a cause, not an end.
func TestAuthorization(t *testing.T) {
	server := serve(t, natsd.Options{Token: "secret"})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := bus.Connect(ctx, bus.Config{URL: server.ClientURL(), Token: "wrong"}, nil)
	if !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(strings.ToLower(err.Error()), "authorization") {
		t.Errorf("Connect = %v", err)
	}
	b := connect(t, bus.Config{URL: server.ClientURL(), Token: "secret"})
	ensure(t, b)
	in := connect(t, bus.Config{InProcess: server, Token: "secret", InboxPrefix: "_INBOX_edge"})
	publish(t, in, "r1", newMemory(evs("r1", 100)...).end())
	whole(t, b, "r1", 100)
}

// Close does not wait for a server that reads nothing.
func TestCloseWithStuckServer(t *testing.T) {
	server := serve(t, natsd.Options{})
	px := newProxy(t, server.ClientURL())
	b := connect(t, bus.Config{URL: px.url()})
	ensure(t, b)
	events := evs("r1", 200)
	for _, e := range events {
		e.Data = make([]byte, 256<<10)
	}
	src := newMemory(events...).end()
	asked := make(chan struct{}, 1000)
	src.ack = func(n uint64) {
		if n == 1 { // the run's first event goes out alone
			px.setStuck(true)
			src.mu.Lock()
			src.asked = func(uint64) { asked <- struct{}{} }
			src.mu.Unlock()
		}
	}
	defer px.setStuck(false)
	done := make(chan error, 1)
	p := &bus.Publisher{Bus: b, Ref: ref("r1"), Source: src}
	go func() { done <- p.Run(t.Context()) }()
	for range 3 { // on its way
		select {
		case <-asked:
		case <-time.After(patience):
			t.Fatal("the publisher does not publish")
		}
	}
	start := time.Now()
	b.Close()
	if err := <-done; !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Run = %v", err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("Close took %v", d)
	}
}
