package sink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func TestPublicAddresses(t *testing.T) {
	for addr, public := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.255.255": true, "100.128.0.1": true, "2606:4700::1111": true, "2001:4860:4860::8888": true,
		"64:ff9b::8.8.8.8": true, "::ffff:8.8.8.8": true, "2002:0808:0808::1": true,
		"127.0.0.1": false, "127.255.255.254": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "100.64.0.1": false,
		"169.254.169.254": false, "169.254.0.1": false, "168.63.129.16": false, "192.0.0.192": false, "100.100.100.200": false, "198.18.0.1": false, "192.0.2.1": false,
		"203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2001:db8::1": false, "fec0::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false, "::10.0.0.1": false, "64:ff9b::127.0.0.1": false, "64:ff9b::a9fe:a9fe": false,
		"64:ff9b:1::1": false, "2002:7f00:1::1": false, "2002:0a00:0001::1": false, "2001::1": false, "100::1": false, "::ffff:0:0": false,
	} {
		if why := sink.Public(addr); (why == "") != public {
			t.Errorf("%s: %q, want public %v", addr, why, public)
		}
	}
}

func TestGuard(t *testing.T) {
	r := newReceiver(t, nil)
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	named := "http://localhost:" + u.Port()
	for _, c := range []struct {
		allow []string
		url   string
		ok    bool
	}{
		{nil, r.URL, false},
		{nil, named, false},
		{nil, "http://[::ffff:127.0.0.1]:" + u.Port(), false},
		{[]string{"127.0.0.1"}, r.URL, true},
		{[]string{"127.0.0.0/8", "::1"}, named, true},
		{[]string{"::ffff:127.0.0.0/104"}, r.URL, true},
		{[]string{"10.0.0.0/8"}, r.URL, false},
		{[]string{"LocalHost"}, named, true},
		{[]string{"localhost:" + u.Port()}, named, true},
		{[]string{"localhost:1"}, named, false},
		{[]string{"localhost"}, r.URL, false},
		{[]string{"127.0.0.1:" + u.Port()}, r.URL, true},
	} {
		g, err := sink.NewGuard(c.allow, "")
		if err != nil {
			t.Fatal(err)
		}
		before := r.count()
		o := webhook(t, sink.WebhookConfig{URL: c.url, Guard: g}).Send(t.Context(), notice(sink.Finished))
		if got := o.Verdict == sink.Delivered; got != c.ok || (r.count() > before) != c.ok {
			t.Errorf("%v to %s: %+v", c.allow, c.url, o)
		}
		if !c.ok && (o.Verdict != sink.Refused || !strings.Contains(fmt.Sprint(o.Err), "this machine's own")) {
			t.Errorf("%v to %s: %s, %v", c.allow, c.url, o.Verdict, o.Err)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "a/b"} {
		if _, err := sink.NewGuard([]string{bad}, ""); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, bad := range []string{"socks5://x", "proxy:3128", "http://"} {
		if _, err := sink.NewGuard(nil, bad); err == nil {
			t.Errorf("proxy %q is taken", bad)
		}
	}
}

// resolver answers every question for an address with next.
func resolver(t *testing.T, next func() [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response = true
			m.Additionals = nil
			q := m.Questions[0]
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0}, Body: &dnsmessage.AResource{A: next()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A name that was public a moment ago and is this machine's now is not connected to.
func TestGuardAfterDNSChange(t *testing.T) {
	r := newReceiver(t, nil)
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	g, err := sink.NewGuard([]string{"127.0.0.2"}, "")
	if err != nil {
		t.Fatal(err)
	}
	g.SetResolver(resolver(t, func() [4]byte {
		if asked.Add(1) == 1 {
			return [4]byte{127, 0, 0, 2} // allowed, and nobody is there
		}
		return [4]byte{127, 0, 0, 1}
	}))
	w := webhook(t, sink.WebhookConfig{URL: "http://hooks.changing.test:" + u.Port() + "/in", Guard: g})
	if o := w.Send(t.Context(), notice(sink.Finished)); o.Verdict == sink.Refused {
		t.Errorf("first: %+v", o)
	}
	if o := w.Send(t.Context(), notice(sink.Finished)); o.Verdict != sink.Refused || asked.Load() < 2 {
		t.Errorf("after the change: %+v, asked %d times", o, asked.Load())
	}
	if r.count() != 0 {
		t.Errorf("%d requests", r.count())
	}
}

// Behind a proxy the target is checked all the same, and the proxy is connected to.
func TestGuardProxy(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { asked.Store(q.URL.String()) }))
	defer proxy.Close()
	g, err := sink.NewGuard(nil, proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	g.SetResolver(resolver(t, func() [4]byte { return [4]byte{93, 184, 215, 14} }))
	send(t, webhook(t, sink.WebhookConfig{URL: "http://hooks.outside.test/in", Guard: g}), notice(sink.Finished))
	if asked.Load() != "http://hooks.outside.test/in" {
		t.Errorf("the proxy was asked for %v", asked.Load())
	}
	asked.Store("")
	for _, target := range []string{"http://169.254.169.254/latest", "http://127.0.0.1:1/", "http://[::1]/"} {
		if o := webhook(t, sink.WebhookConfig{URL: target, Guard: g}).Send(t.Context(), notice(sink.Finished)); o.Verdict != sink.Refused || asked.Load() != "" {
			t.Errorf("%s: %+v, proxy asked for %v", target, o, asked.Load())
		}
	}
}

func TestGuardDials(t *testing.T) {
	g, err := sink.NewGuard(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:25"); !errors.Is(err, sink.ErrBlocked) {
		t.Errorf("%v", err)
	}
	if _, err := g.DialContext(t.Context(), "tcp", "nonsense"); err == nil {
		t.Error("no port is taken")
	}
}
