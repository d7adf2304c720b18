package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Guard decides which addresses sinks may connect to: those of the public
// internet, and what the rules allow. It looks at the address of each connection when
// that is made, so a name that resolves to something else a moment later is no way
// around it. Its methods are safe for concurrent use.
type Guard struct {
	nets     []netip.Prefix
	hosts    []string // in lower case: "name" or "name:port"
	proxy    *url.URL
	resolver *net.Resolver // nil is the system's
}

// ErrBlocked is the cause when a Guard refused an address.
var ErrBlocked = errors.New("the address is not a public one")

// NewGuard returns a guard that allows, beside public addresses, those in allow: an
// address, a range ("10.1.0.0/16"), a host by its name, whatever it resolves to, or
// one of its ports ("hooks.internal:8443"). proxy is the URL of an HTTP proxy to go
// through, "" for none: whoever configures one trusts it, and the addresses of
// targets are looked up and checked here first.
func NewGuard(allow []string, proxy string) (*Guard, error) {
	g := &Guard{}
	var bad settingErrors
	for n, a := range allow {
		a = strings.TrimSpace(a)
		switch p, err := netip.ParsePrefix(a); {
		case err == nil:
			g.nets = append(g.nets, netip.PrefixFrom(p.Addr().Unmap(), unmappedBits(p)).Masked())
			continue
		case strings.Contains(a, "/") || a == "":
			bad.add(fmt.Sprintf("allow/%d", n), fmt.Errorf("allow: %q is no address, no range of addresses and no host", short(a, 80)))
			continue
		}
		if ip, err := netip.ParseAddr(a); err == nil {
			ip = ip.Unmap()
			g.nets = append(g.nets, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		g.hosts = append(g.hosts, strings.ToLower(a))
	}
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			bad.say("proxy", "the proxy must be a URL that begins with http:// or https://")
		}
		g.proxy = u
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	return g, nil
}

// hidden is what the proxy's address says of its user.
func (g *Guard) hidden() *Hidden {
	if g == nil || g.proxy == nil {
		return nil
	}
	return loginOf(g.proxy.String())
}

func unmappedBits(p netip.Prefix) int {
	if p.Addr().Is4In6() {
		return max(0, p.Bits()-96)
	}
	return p.Bits()
}

// Ranges that are not of the public internet beside what netip knows: shared address
// space, protocol assignments, documentation, benchmarks, reserved; of IPv6 local
// NAT64, Teredo, documentation, site-local, discard. From the IANA registries of
// special-purpose addresses. The last one is Azure's host, which answers for
// metadata under a public address.
var special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
	"168.63.129.16/32")

// Ranges of IPv6 that hold an address of IPv4, and at which byte: NAT64, 6to4, and
// the old form of a compatible one.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2}, {netip.MustParsePrefix("::/96"), 12}}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for n, s := range list {
		out[n] = netip.MustParsePrefix(s)
	}
	return out
}

// public says why an address is none of the public internet, "" where it is.
func public(ip netip.Addr) string {
	ip = ip.WithZone("").Unmap()
	switch {
	case !ip.IsValid(), ip.IsUnspecified():
		return "no address of a host"
	case ip.IsLoopback():
		return "this machine's own"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsPrivate():
		return "private"
	case ip.IsMulticast():
		return "multicast"
	case slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return "for a special purpose"
	}
	for _, e := range embedding {
		if e.prefix.Contains(ip) {
			b := ip.As16()
			return public(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return ""
}

// check says whether a connection to ip may be made.
func (g *Guard) check(ip netip.Addr) error {
	ip = ip.WithZone("").Unmap()
	if slices.ContainsFunc(g.nets, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	if why := public(ip); why != "" {
		return fmt.Errorf("%w: it is %s (the rules can allow it)", ErrBlocked, why)
	}
	return nil
}

// Refuses says whether a URL, or a host, names an address that is never connected to. No
// name is looked up but localhost.
func (g *Guard) Refuses(at string) error {
	host, port := at, ""
	if u, err := url.Parse(at); err == nil && u.Host != "" {
		if host, port = u.Hostname(), u.Port(); port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if g.named(host, port) {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		ip, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return nil // a name: it is looked at when it is connected to
	}
	if err := g.check(ip); err != nil {
		return fmt.Errorf("%s is refused: %w: allow: [%q]", host, err, host)
	}
	return nil
}

// named reports whether the rules allow a host by its name. host is in lower case.
func (g *Guard) named(host, port string) bool {
	return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, net.JoinHostPort(host, port))
}

// DialContext connects, as [net.Dialer] does, where that is allowed.
func (g *Guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: g.resolver}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if !g.named(strings.ToLower(strings.TrimSuffix(host, ".")), port) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return ErrBlocked
			}
			return g.check(ap.Addr())
		}
	}
	return d.DialContext(ctx, network, addr)
}

// target checks where a proxy would be sent: the proxy looks the name up again, but
// what is plainly internal is not asked for.
func (g *Guard) target(ctx context.Context, u *url.URL) error {
	host, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if g.named(host, port) {
		return nil
	}
	ips, err := cmpResolver(g.resolver).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if err := g.check(ip); err != nil {
			return err
		}
	}
	return nil
}

func cmpResolver(r *net.Resolver) *net.Resolver {
	if r == nil {
		return net.DefaultResolver
	}
	return r
}

// client makes requests that the guard allows. A connection serves one request: what
// is sent over one that the other side is just closing may have arrived or not.
// Redirects are not followed. roots are who signs certificates, nil the system's.
func (g *Guard) client(timeout time.Duration, roots *x509.CertPool) *http.Client {
	proxy, dial := g.dialing()
	t := &http.Transport{
		Proxy: proxy, DialContext: dial, DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport: &guarded{g, t}, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialing is how connections are made: to the proxy alone, where there is one.
func (g *Guard) dialing() (func(*http.Request) (*url.URL, error), func(context.Context, string, string) (net.Conn, error)) {
	if g.proxy == nil {
		return nil, g.DialContext
	}
	direct := &net.Dialer{Timeout: 10 * time.Second}
	return http.ProxyURL(g.proxy), direct.DialContext
}

// guarded checks targets behind a proxy.
type guarded struct {
	g *Guard
	t *http.Transport
}

func (c *guarded) RoundTrip(q *http.Request) (*http.Response, error) {
	if c.g.proxy != nil {
		if err := c.g.target(q.Context(), q.URL); err != nil {
			return nil, err
		}
	}
	return c.t.RoundTrip(q)
}
