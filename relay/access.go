package relay

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// loopbackAddr reports whether a listen address can be reached from this
// machine only.
func loopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// checkHost refuses a request that was sent to another name than ours: a page of
// an attacker's domain that resolves to this machine (DNS rebinding).
func (r *Relay) checkHost(q *http.Request) *apiErr {
	host := q.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || slices.ContainsFunc(r.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if ip.IsLoopback() {
			return nil
		}
		// The address that the connection came in on.
		local, ok := q.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if ok {
			if ap, err := netip.ParseAddrPort(local.String()); err == nil && ap.Addr().Unmap() == ip {
				return nil
			}
		}
	}
	return fail(CodeBadHost, "the Host header names a host that this relay is not (CBCAST_RELAY_HOSTS adds names)")
}

// checkOrigin refuses pages of other origins. No Origin is no page, or one that
// cannot read the answer; a browser that says where that one is from is believed.
func (r *Relay) checkOrigin(q *http.Request) *apiErr {
	values := q.Header.Values("Origin")
	switch {
	case len(values) == 0 && !foreignFetch(q), len(values) == 1 && (ownOrigin(q) || r.allowedOrigin(q)):
		return nil
	}
	return badOrigin()
}

func badOrigin() *apiErr {
	return fail(CodeBadOrigin, "a page of another origin may not do this (CBCAST_RELAY_ORIGINS allows some)")
}

// ownOrigin reports whether q comes from a page of the relay's own.
func ownOrigin(q *http.Request) bool {
	u, err := url.Parse(q.Header.Get("Origin"))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, q.Host)
}

func (r *Relay) allowedOrigin(q *http.Request) bool {
	return slices.Contains(r.cfg.Origins, q.Header.Get("Origin"))
}

// foreignFetch reports whether a browser says that another site's page fetches this
// without asking (an image, a script). A person who follows a link does not.
func foreignFetch(q *http.Request) bool {
	site := q.Header.Get("Sec-Fetch-Site")
	if site == "" || site == "none" || site == "same-origin" {
		return false
	}
	return q.Method != http.MethodGet || q.Header.Get("Sec-Fetch-Mode") != "navigate" || q.Header.Get("Sec-Fetch-Dest") != "document"
}

// What pages of configured origins may send and see. Credentials of the browser are
// not among it: such a page sends a token.
const (
	corsMethods = "GET, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Cache-Control"
	corsExposed = "Location, Retry-After, X-Workflow-Run-Status"
	corsAge     = "600"
)

// cors lets pages of configured origins read the answer. It reports whether q only
// asks if they may, and then has answered.
func (r *Relay) cors(w http.ResponseWriter, q *http.Request) (answered bool) {
	if len(r.cfg.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !r.allowedOrigin(q) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", q.Header.Get("Origin"))
	h.Set("Access-Control-Expose-Headers", corsExposed)
	if q.Method != http.MethodOptions || q.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// A Scope is a right that a token gives. [ScopeAdmin] includes the others, and each of
// the others includes [ScopeRead].
type Scope string

// The scopes.
const (
	ScopeRead    Scope = "read"    // see runs and their events
	ScopeCommand Scope = "command" // give commands: interrupt, stop_task, message …
	ScopeAnswer  Scope = "answer"  // answer asks, resume what waits for input
	// ScopeDelegate lets a program act for people that it knows itself, and name them.
	ScopeDelegate Scope = "delegate"
	ScopeMetrics  Scope = "metrics" // see the figures for Prometheus; no run
	ScopeAdmin    Scope = "admin"   // everything, and what is about the relay itself
)

// Scopes are all of them.
var Scopes = []Scope{ScopeRead, ScopeCommand, ScopeAnswer, ScopeDelegate, ScopeMetrics, ScopeAdmin}

// A caller is who sent a request, as far as a token or the loopback says.
type caller struct {
	name    string // for the audit; never the token
	from    string // where the request came from, for the audit
	behalf  string // on whose behalf it says to act, for the audit
	via     string // how it is known: token, session, loopback
	scopes  []Scope
	tenants []string  // whose runs it may see; nil is everybody's
	runs    []string  // which of them: ids, and "prefix*"; nil is all
	until   time.Time // when a session ends; zero for never
	grant   *grant    // nil on the loopback without a token
	hold    *hold
}

// How a caller is known.
const (
	viaToken, viaSession, viaLoopback = "token", "session", "loopback"

	// actorLoopback is whoever reads on the loopback without a token.
	actorLoopback = "loopback"
)

// holds reports whether c has s: admin has each, and whoever does something with runs reads them.
func (c *caller) holds(s Scope) bool {
	reads := func(had Scope) bool { return had != ScopeMetrics }
	return slices.Contains(c.scopes, s) || slices.Contains(c.scopes, ScopeAdmin) || s == ScopeRead && slices.ContainsFunc(c.scopes, reads)
}

// sees reports whether a run exists for c. To any other it is answered as if there
// were none, see [notFound].
func (c *caller) sees(i bus.RunInfo) bool {
	return (c.tenants == nil || slices.Contains(c.tenants, i.Tenant)) && c.mayName(i.Run)
}

// mayName reports whether a run of this id could exist for c.
func (c *caller) mayName(run string) bool {
	return c.runs == nil || slices.ContainsFunc(c.runs, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return run == pattern || wild && strings.HasPrefix(run, prefix)
	})
}

type callerKey struct{}

// callerOf is who sent q, as [Relay.guard] found out.
func callerOf(q *http.Request) *caller {
	c, ok := q.Context().Value(callerKey{}).(*caller)
	if !ok {
		return &caller{tenants: []string{}} // sees nothing
	}
	return c
}

// checkCaller finds out who sent q and whether it holds scope.
func (r *Relay) checkCaller(q *http.Request, scope Scope) (*caller, *apiErr) {
	c, err := r.identify(q)
	switch {
	case err != nil:
		return nil, err
	case c.holds(scope):
		return c, nil
	case c.grant == nil && scope == ScopeMetrics:
		return c, nil // whoever reads here may see it
	case c.grant == nil:
		return c, unauthorized("this needs the header Authorization: Bearer <token>; the token is in the relay's state directory")
	}
	return c, fail(CodeForbidden, "this token has not the scope "+string(scope)).with("scope", scope)
}

func unauthorized(message string) *apiErr { return fail(CodeUnauthorized, message) }

// identify finds out who sent q: by the token, else by the page's session, else by
// the loopback.
func (r *Relay) identify(q *http.Request) (*caller, *apiErr) {
	from, proxied := r.gate.clientAddr(q)
	if len(q.Header.Values("Authorization")) > 0 {
		g := r.bearer(q)
		if g == nil {
			return nil, unauthorized("the token is unknown, or has expired")
		}
		return g.caller(viaToken, from), nil
	}
	if g, until := r.sessionOf(q); g != nil {
		c := g.caller(viaSession, from)
		c.until = until
		if unsafe(q.Method) {
			return c, checkWrite(q)
		}
		return c, nil
	}
	if r.public || r.cfg.Closed || proxied {
		return nil, unauthorized("this needs the header Authorization: Bearer <token>, or a session (POST /v1/session)")
	}
	return &caller{name: actorLoopback, from: from, via: viaLoopback, scopes: []Scope{ScopeRead}}, nil
}

func (r *Relay) bearer(q *http.Request) *grant {
	values := q.Header.Values("Authorization")
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); len(values) != 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil
	}
	return r.gate.current.Load().token(token)
}

func (g *grant) caller(via, from string) *caller {
	return &caller{name: g.Name, from: from, via: via, scopes: g.Scopes, tenants: g.Tenants, runs: g.Runs, grant: g}
}

// unsafe reports whether a method may change something.
func unsafe(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// checkWrite refuses what another site's page could make a browser send with the
// session's cookie: a write must come from a page of the relay's own and be JSON,
// which no form sends.
func checkWrite(q *http.Request) *apiErr {
	if !ownOrigin(q) && q.Header.Get("Sec-Fetch-Site") != "same-origin" {
		return badOrigin()
	}
	if q.Method == http.MethodDelete {
		return nil
	}
	return checkJSON(q)
}

func checkJSON(q *http.Request) *apiErr {
	if t, _, err := mime.ParseMediaType(q.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return fail(CodeBadRequest, "with a session the body's Content-Type must be application/json").with("parameter", "Content-Type")
	}
	return nil
}

// clientAddr is where q came from, for people. Behind a configured proxy that is
// the nearest address in X-Forwarded-For that is no proxy of ours. proxied says that
// somebody passed q on: then the peer's address says nothing about the sender.
func (g *gate) clientAddr(q *http.Request) (from string, proxied bool) {
	forwarded := q.Header.Values("X-Forwarded-For")
	proxied = len(forwarded) > 0 || q.Header.Get("Forwarded") != "" || q.Header.Get("X-Real-Ip") != ""
	peer, err := netip.ParseAddrPort(q.RemoteAddr)
	if err != nil || !g.proxy(peer.Addr()) {
		return q.RemoteAddr, proxied
	}
	list := strings.Split(strings.Join(forwarded, ","), ",")
	for n := len(list) - 1; n >= 0; n-- {
		ip, err := netip.ParseAddr(strings.TrimSpace(list[n]))
		if err != nil {
			break // whatever stands before it is not to be believed either
		}
		if ip = ip.Unmap().WithZone(""); !g.proxy(ip) {
			return ip.String() + " via " + peer.Addr().Unmap().String(), true
		}
	}
	return q.RemoteAddr, true
}

func (g *gate) proxy(ip netip.Addr) bool {
	ip = ip.Unmap()
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// secure reports whether the client's connection is encrypted, as far as is known.
func (g *gate) secure(q *http.Request) bool {
	if q.TLS != nil {
		return true
	}
	peer, err := netip.ParseAddrPort(q.RemoteAddr)
	return err == nil && g.proxy(peer.Addr()) && strings.EqualFold(q.Header.Get("X-Forwarded-Proto"), "https")
}
