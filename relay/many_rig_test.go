package relay_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// serveAll is a relay of several partitions.
func (r *rig) serveAll(cfg relay.Config, partitions int) *served {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	b, tr := r.connect(), &http.Transport{}
	rel := relay.New(relay.Options{Config: patient(cfg), Bus: b, Token: token, Partitions: partitions, Log: testLog(r.t)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rel.Serve(ctx, ln); !errors.Is(err, context.Canceled) {
			r.t.Errorf("Serve: %v", err)
		}
	}()
	s := &served{t: r.t, relay: rel, url: "http://" + ln.Addr().String(), client: &http.Client{Transport: tr}, patience: 3 * patience}
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		b.Close()
		tr.CloseIdleConnections()
	})
	r.t.Cleanup(s.stop)
	s.until(func() bool { return s.get("/readyz", nil).status == http.StatusOK })
	return s
}

// edgeIn is an edge whose run is in a partition.
func (r *rig) edgeIn(run string, partition int) *edge {
	r.t.Helper()
	e := &edge{r: r, ref: bus.Ref{Tenant: tenant, Run: run, Partition: partition}, grown: make(chan struct{})}
	e.info = bus.RunInfo{Run: run, Tenant: tenant, Partition: partition, Dialect: "claude", State: "working", Started: time.Now().UTC()}
	e.begin()
	return e
}

// jetStream is the server as an operator sees it.
func (r *rig) jetStream() (jetstream.JetStream, func()) {
	r.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(r.srv))
	if err != nil {
		r.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js, nc.Close
}

// dropRun takes a run's entry away, as its expiry does.
func (r *rig) dropRun(run string) {
	r.t.Helper()
	js, done := r.jetStream()
	defer done()
	kv, err := js.KeyValue(r.t.Context(), subject.RunsBucket)
	if err == nil {
		err = kv.Delete(r.t.Context(), subject.Key(run))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// purge lets go of a partition's events before a stream sequence, as retention does.
func (r *rig) purge(partition int, before uint64) {
	r.t.Helper()
	js, done := r.jetStream()
	defer done()
	s, err := js.Stream(r.t.Context(), subject.EventStream(partition))
	if err == nil {
		err = s.Purge(r.t.Context(), jetstream.WithPurgeSequence(before))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// recreate makes a partition's stream anew, as who lost its disk does.
func (r *rig) recreate(partition, partitions int) {
	r.t.Helper()
	js, done := r.jetStream()
	defer done()
	if err := js.DeleteStream(r.t.Context(), subject.EventStream(partition)); err != nil {
		r.t.Fatal(err)
	}
	top := small()
	top.Partitions = partitions
	if _, err := r.bus.Ensure(r.t.Context(), top); err != nil {
		r.t.Fatal(err)
	}
}
