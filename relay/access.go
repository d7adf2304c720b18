package relay

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

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

// checkOrigin refuses pages of other origins. No Origin is no page.
func (r *Relay) checkOrigin(q *http.Request) *apiErr {
	values := q.Header.Values("Origin")
	if len(values) == 0 {
		return nil
	}
	if len(values) == 1 {
		if slices.Contains(r.cfg.Origins, values[0]) {
			return nil
		}
		u, err := url.Parse(values[0])
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, q.Host) {
			return nil
		}
	}
	return fail(CodeBadOrigin, "a page of another origin may not do this (CBCAST_RELAY_ORIGINS allows some)")
}

// A Scope is a right that a token gives. [ScopeAdmin] includes the others, and each of
// the others includes [ScopeRead].
type Scope string

// The scopes.
const (
	ScopeRead    Scope = "read"    // see runs and their events
	ScopeCommand Scope = "command" // give commands: interrupt, stop_task, message …
	ScopeAnswer  Scope = "answer"  // answer asks, resume what waits for input
	ScopeAdmin   Scope = "admin"   // everything, and what is about the relay itself
)

// A caller is who sent a request, as far as a token or the loopback says.
type caller struct {
	name    string // for the audit; never the token
	scopes  []Scope
	tenants []string // whose runs it may see; nil is everybody's
	runs    []string // which of them: ids, and "prefix*"; nil is all
}

func (c *caller) holds(s Scope) bool {
	return slices.Contains(c.scopes, s) || slices.Contains(c.scopes, ScopeAdmin) || s == ScopeRead && len(c.scopes) > 0
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

// checkCaller finds out who sent q and whether it holds scope. The request that it
// returns has the caller, see [callerOf].
func (r *Relay) checkCaller(q *http.Request, scope Scope) (*http.Request, *apiErr) {
	c := r.identify(q)
	if c == nil || !c.holds(scope) {
		return q, fail(CodeUnauthorized, "this needs the header Authorization: Bearer <token>; the token is in the relay's state directory")
	}
	return q.WithContext(context.WithValue(q.Context(), callerKey{}, c)), nil
}

// identify compares the bearer token in constant time. On the loopback whoever has
// none may read.
func (r *Relay) identify(q *http.Request) *caller {
	scheme, given, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(r.token))
	if subtle.ConstantTimeCompare(have[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer") && r.token != "" {
		return &caller{name: actorLocal, scopes: []Scope{ScopeAdmin}}
	}
	if r.public {
		return nil
	}
	return &caller{name: "loopback", scopes: []Scope{ScopeRead}}
}
