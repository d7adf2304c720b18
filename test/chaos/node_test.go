package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// nodeSpec is a nats-server in a process of its own.
type nodeSpec struct {
	Name, Dir string
	Port      int
	Route     int   // port for routes, 0 runs alone
	Routes    []int // of all nodes
}

func (s *nodeSpec) run(ctx context.Context) error {
	o := natsd.Options{Dir: s.Dir, Name: s.Name, Port: s.Port, MaxStore: 8 << 30}
	if s.Route != 0 {
		o.Cluster = &natsd.Cluster{Name: "chaos", Port: s.Route}
		for _, r := range s.Routes {
			o.Cluster.Routes = append(o.Cluster.Routes, "nats://127.0.0.1:"+strconv.Itoa(r))
		}
	}
	// The port is the one of before, and the system may not have let go of it.
	srv, err := natsd.Start(o)
	for end := time.Now().Add(patience); errors.Is(err, natsd.ErrInUse) && time.Now().Before(end) && pause(ctx, 50*time.Millisecond); {
		srv, err = natsd.Start(o)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready", srv.ClientURL())
	<-ctx.Done()
	return srv.Shutdown(context.Background())
}

// A broker is one node or a cluster of them, each behind a proxy.
type broker struct {
	nodes   []*node
	kills   int
	proxies []*proxy
}

type node struct {
	spec nodeSpec
	proc *proc
}

func (n *node) addr() string { return "127.0.0.1:" + strconv.Itoa(n.spec.Port) }

func (n *node) start(ctx context.Context) error {
	p, err := play(role{Node: &n.spec})
	if err != nil {
		return err
	}
	if _, err := p.expect(ctx, "ready"); err != nil {
		p.kill()
		return fmt.Errorf("node %s: %w", n.spec.Name, err)
	}
	n.proc = p
	return nil
}

// startBroker starts a server alone or a cluster, with its streams. It ends with
// the test.
func startBroker(t *testing.T, replicas int) *broker {
	t.Helper()
	ports := freePorts(t, 2*replicas)
	b := &broker{}
	for i := range replicas {
		s := nodeSpec{Name: "n" + strconv.Itoa(i), Dir: t.TempDir(), Port: ports[i]}
		if replicas > 1 {
			s.Route, s.Routes = ports[replicas+i], ports[replicas:]
		}
		b.nodes = append(b.nodes, &node{spec: s})
	}
	for _, n := range b.nodes {
		if err := n.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.proc.kill() })
		p, err := newProxy(n.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		b.proxies = append(b.proxies, p)
	}
	c, err := bus.Connect(t.Context(), bus.Config{URL: b.urls(false)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topology := bus.Topology{Replicas: replicas, MaxBytes: 4 << 30}
	for end := time.Now().Add(patience); ; {
		_, err := c.Ensure(t.Context(), topology) // a cluster needs its leader first
		if err == nil {
			return b
		}
		if time.Now().After(end) || !pause(t.Context(), 200*time.Millisecond) {
			t.Fatal(err)
		}
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if p := l.Addr().(*net.TCPAddr).Port; !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// urls lists where the nodes are, or the proxies before them.
func (b *broker) urls(proxied bool) string {
	s := ""
	for i, n := range b.nodes {
		if i > 0 {
			s += ","
		}
		if proxied {
			s += b.proxies[i].url()
		} else {
			s += "nats://" + n.addr()
		}
	}
	return s
}

// connect goes around the proxies, and around our code.
func (b *broker) connect() (*nats.Conn, nats.JetStreamContext, error) {
	nc, err := nats.Connect(b.urls(false), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(10*time.Second))
	if err != nil {
		return nil, nil, err
	}
	js, err := nc.JetStream(nats.MaxWait(2 * time.Second))
	return nc, js, err
}

// leader is the node that leads the events' stream, node 0 of a lone server.
func (b *broker) leader(ctx context.Context) (*node, error) {
	if len(b.nodes) == 1 {
		return b.nodes[0], nil
	}
	var led *node
	err := b.until(ctx, func(i *nats.StreamInfo) bool {
		for _, n := range b.nodes {
			if i.Cluster != nil && i.Cluster.Leader == n.spec.Name {
				led = n
			}
		}
		return led != nil
	})
	return led, err
}

// healthy waits until every replica has everything.
func (b *broker) healthy(ctx context.Context) error {
	return b.until(ctx, func(i *nats.StreamInfo) bool {
		if len(b.nodes) == 1 {
			return true
		}
		if i.Cluster == nil || i.Cluster.Leader == "" || len(i.Cluster.Replicas) != len(b.nodes)-1 {
			return false
		}
		return !slices.ContainsFunc(i.Cluster.Replicas, func(p *nats.PeerInfo) bool { return p.Offline || !p.Current })
	})
}

func (b *broker) until(ctx context.Context, ok func(*nats.StreamInfo) bool) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for end := time.Now().Add(patience); ; {
		i, err := js.StreamInfo("EV_0", nats.Context(ctx))
		if err == nil && ok(i) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the stream does not get well: %+v, %w", i, err)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// killLeader kills the leader, leaves it dead for a while and starts it again.
func (b *broker) killLeader(ctx context.Context, dead time.Duration) error {
	n, err := b.leader(ctx)
	if err != nil {
		return err
	}
	n.proc.kill()
	b.kills++
	pause(ctx, dead)
	return n.start(context.WithoutCancel(ctx))
}

// faults are what the proxies did.
func (b *broker) faults() (cuts, dropped, lateBytes int64) {
	for _, p := range b.proxies {
		cuts += p.cuts.Load()
		dropped += p.dropped.Load()
		lateBytes += p.lateBytes.Load()
	}
	return cuts, dropped, lateBytes
}

// read gives every message of the events' stream to each, in its order.
func (b *broker) read(ctx context.Context, each func(message)) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	var closed sync.WaitGroup
	closed.Add(1)
	nc.SetClosedHandler(func(*nats.Conn) { closed.Done() })
	defer closed.Wait()
	defer nc.Close()
	info, err := js.StreamInfo("EV_0", nats.Context(ctx))
	if err != nil {
		return err
	}
	if info.State.Msgs == 0 {
		return nil
	}
	sub, err := js.SubscribeSync("", nats.BindStream("EV_0"), nats.OrderedConsumer())
	if err != nil {
		return err
	}
	for last := uint64(0); last < info.State.LastSeq; {
		m, err := sub.NextMsg(patience)
		if err != nil {
			return fmt.Errorf("after message %d of %d: %w", last, info.State.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		last = meta.Sequence.Stream
		h := m.Header
		each(message{m.Subject, get(h, "ce-id"), get(h, "ce-sequence"), get(h, "ce-type"), m.Data})
	}
	return nil
}

func get(h nats.Header, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}
