package natsd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/natsd"
)

func start(t *testing.T, o natsd.Options) *natsd.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := natsd.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestServerKeepsItsStore(t *testing.T) {
	dir := t.TempDir()
	s := start(t, natsd.Options{Dir: dir})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}

	s = start(t, natsd.Options{Dir: dir, DontListen: true})
	if got := s.ClientURL(); got != "" {
		t.Errorf("url of a server that does not listen = %q", got)
	}
	nc, err = nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err = nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	m, err := js.GetMsg("S", 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Data); got != "kept" {
		t.Errorf("message 1 = %q, want kept", got)
	}
}

func TestServerIsOnLoopback(t *testing.T) {
	s := start(t, natsd.Options{})
	host, _, err := net.SplitHostPort(s.ClientURL()[len("nats://"):])
	if err != nil || host != "127.0.0.1" {
		t.Errorf("listens on %q (%v)", host, err)
	}
}

func TestServerAuth(t *testing.T) {
	s := start(t, natsd.Options{Token: "secret"})
	for _, opt := range [][]nats.Option{nil, {nats.Token("wrong")}} {
		if nc, err := nats.Connect(s.ClientURL(), opt...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connect = %v, %v; want %v", nc, err, nats.ErrAuthorization)
		}
	}
	nc, err := nats.Connect(s.ClientURL(), nats.Token("secret"))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestServerPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = natsd.Start(natsd.Options{Dir: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port})
	if !errors.Is(err, natsd.ErrInUse) {
		t.Errorf("start on port %v = %v, want %v", l.Addr(), err, natsd.ErrInUse)
	}
}

func TestServerBadDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", filepath.Join(file, "below")} {
		if s, err := natsd.Start(natsd.Options{Dir: dir}); err == nil {
			t.Errorf("start on %q = %v, want an error", dir, s)
		}
	}
}

func TestServerPayloadAndLimits(t *testing.T) {
	s := start(t, natsd.Options{MaxPayload: 64 << 10})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 64<<10 {
		t.Errorf("max payload = %d", got)
	}
}

func TestCluster(t *testing.T) {
	ports := freePorts(t, 3)
	var routes []string
	for _, p := range ports {
		routes = append(routes, "nats://127.0.0.1:"+strconv.Itoa(p))
	}
	var first *natsd.Server
	for i, p := range ports {
		s := start(t, natsd.Options{
			Name:    "n" + strconv.Itoa(i),
			Cluster: &natsd.Cluster{Name: "c", Port: p, Routes: routes},
		})
		if first == nil {
			first = s
		}
	}
	nc, err := nats.Connect(first.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream(nats.MaxWait(2 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &nats.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3}
	until(t, func() error { // refused until the cluster has elected a leader
		_, err := js.AddStream(cfg)
		return err
	})
	if _, err := js.Publish("s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	// A server that is shut down while it makes its replica leaves goroutines.
	until(t, func() error {
		i, err := js.StreamInfo("S")
		if err != nil {
			return err
		}
		for _, r := range i.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("replica %s lags", r.Name)
			}
		}
		return nil
	})
}

func until(t *testing.T, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(eventually); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
