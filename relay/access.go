package relay

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
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

// checkToken compares the bearer token in constant time.
func (r *Relay) checkToken(q *http.Request) *apiErr {
	scheme, given, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(r.token))
	if subtle.ConstantTimeCompare(have[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer") && r.token != "" {
		return nil
	}
	return fail(CodeUnauthorized, "this needs the header Authorization: Bearer <token>; the token is in the relay's state directory")
}
