package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// sessionAge bounds a session of the page. It ends with its token, too.
	sessionAge = 12 * time.Hour

	// codeAge is how long a code that logs a browser in may be used, once.
	codeAge = 10 * time.Minute

	// maxCodes bounds the codes of one token that were not used yet; past it its
	// oldest goes.
	maxCodes = 8
)

// sessionRoutes are for browsers, whose scripts must not hold a token.
func (r *Relay) sessionRoutes() []route {
	return []route{
		{"POST", "/v1/session", "", r.logIn, "log a browser in, by a token or a code: it gets a cookie"},
		{"GET", "/v1/session", ScopeRead, r.whoAmI, "who asks, with which scopes"},
		{"DELETE", "/v1/session", "", r.logOut, "log it out"},
		{"POST", "/v1/session/code", ScopeRead, r.makeCode, "a code that logs a browser in, once"},
		{"GET", "/login", "", r.loginPage, "the page that takes such a code"},
	}
}

// A SessionDoc says who asks.
type SessionDoc struct {
	Name    string     `json:"name"` // of the token; "loopback" without one
	Scopes  []Scope    `json:"scopes"`
	Tenants []string   `json:"tenants,omitempty"` // absent for all
	Runs    []string   `json:"runs,omitempty"`    // absent for all of the tenants
	Via     string     `json:"via"`               // token, session or loopback
	Expires *time.Time `json:"expires,omitempty"` // when the token or the session ends
}

func (c *caller) doc() SessionDoc {
	d := SessionDoc{Name: c.name, Scopes: c.scopes, Tenants: c.tenants, Runs: c.runs, Via: c.via}
	end := c.until
	if g := c.grant; g != nil && !g.Expires.IsZero() && (end.IsZero() || g.Expires.Before(end)) {
		end = g.Expires
	}
	if !end.IsZero() {
		d.Expires = &end
	}
	return d
}

func (r *Relay) whoAmI(w http.ResponseWriter, q *http.Request) *apiErr {
	writeJSON(w, http.StatusOK, callerOf(q).doc())
	return nil
}

// A SessionRequest is the body of POST /v1/session: one of the two.
type SessionRequest struct {
	Token string `json:"token"`
	Code  string `json:"code"` // see [CodeDoc]
}

func (r *Relay) logIn(w http.ResponseWriter, q *http.Request) *apiErr {
	// A foreign page must not log a browser in as somebody else either. One that
	// sends no Origin is no page.
	if len(q.Header.Values("Origin")) > 0 && !ownOrigin(q) {
		return badOrigin()
	}
	if aerr := checkJSON(q); aerr != nil {
		return aerr
	}
	var req SessionRequest
	if aerr := readBody(q, &req, []string{"token", "code"}); aerr != nil {
		return aerr
	}
	var g *grant
	switch {
	case (req.Token == "") == (req.Code == ""):
		return fail(CodeBadRequest, "a session begins with either a token or a code")
	case req.Token != "":
		g = r.gate.current.Load().token(req.Token)
	default:
		g = r.gate.codes.use(req.Code, time.Now())
	}
	if g == nil {
		return unauthorized("the token or code is unknown, was used or has expired")
	}
	until := time.Now().Add(sessionAge)
	if !g.Expires.IsZero() && g.Expires.Before(until) {
		until = g.Expires
	}
	secure := r.gate.secure(q)
	http.SetCookie(w, r.cookie(secure, r.session(g, until), int(time.Until(until).Seconds())+1))
	from, _ := r.gate.clientAddr(q)
	r.met.sessions.Inc()
	r.log.Info("session began", "actor", g.Name, "from", from, "until", until)
	c := g.caller(viaSession, "")
	c.until = until
	writeJSON(w, http.StatusOK, c.doc())
	return nil
}

// logOut takes the cookie away. A copy of it would hold until the session's end:
// what ends all sessions of a token is to take the token out of the list.
func (r *Relay) logOut(w http.ResponseWriter, q *http.Request) *apiErr {
	if aerr := checkWrite(q); aerr != nil && len(q.Cookies()) > 0 {
		return aerr
	}
	http.SetCookie(w, r.cookie(r.gate.secure(q), "", -1))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// cookie is the session's: for this host only, out of reach of scripts, and not sent
// with what other sites make a browser do.
func (r *Relay) cookie(secure bool, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: r.cookieName(secure), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// cookieName is that of all relays with one secret. Cookies do not tell ports apart:
// another user's relay on this machine has another name. Over TLS the prefix makes
// browsers refuse one that was not set by this very host.
func (r *Relay) cookieName(secure bool) string {
	name := "cbcast-" + hex.EncodeToString(r.mac("cookie name")[:6])
	if secure {
		return "__Host-" + name
	}
	return name
}

// session is the value of a cookie: which token, until when, and a signature.
func (r *Relay) session(g *grant, until time.Time) string {
	var nonce [9]byte
	_, _ = rand.Read(nonce[:]) // never fails
	body := g.id + "." + strconv.FormatInt(until.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString(nonce[:])
	return body + "." + base64.RawURLEncoding.EncodeToString(r.mac("session", body))
}

// maxSession bounds the cookie; ours has some 110 bytes.
const maxSession = 256

// sessionOf finds the grant of the session in q's cookie. A session that has ended
// is none, and neither is one that the page of another origin uses.
func (r *Relay) sessionOf(q *http.Request) (*grant, time.Time) {
	c, err := q.Cookie(r.cookieName(r.gate.secure(q)))
	if err != nil || len(c.Value) > maxSession {
		return nil, time.Time{}
	}
	if len(q.Header.Values("Origin")) > 0 && !ownOrigin(q) || foreignSite(q) {
		return nil, time.Time{}
	}
	i := strings.LastIndexByte(c.Value, '.')
	if i < 0 {
		return nil, time.Time{}
	}
	body, sig := c.Value[:i], c.Value[i+1:]
	have, err := base64.RawURLEncoding.DecodeString(sig)
	parts := strings.Split(body, ".")
	if err != nil || !hmac.Equal(have, r.mac("session", body)) || len(parts) != 3 {
		return nil, time.Time{}
	}
	sec, err := strconv.ParseInt(parts[1], 10, 64)
	until := time.Unix(sec, 0)
	if err != nil || !time.Now().Before(until) {
		return nil, time.Time{}
	}
	return r.gate.current.Load().session(parts[0]), until
}

func foreignSite(q *http.Request) bool {
	site := q.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "none" && site != "same-origin"
}

// A CodeDoc is the answer of POST /v1/session/code.
type CodeDoc struct {
	// Path logs a browser in, once: the code stands behind the "#", which no
	// browser sends to a server or to another page.
	Path    string    `json:"path"`
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// makeCode gives a code for the caller's own token. Only the token itself does: a
// session that made codes would never end.
func (r *Relay) makeCode(w http.ResponseWriter, q *http.Request) *apiErr {
	c := callerOf(q)
	switch c.via {
	case viaToken:
	case viaSession:
		return fail(CodeForbidden, "a code is made with the token itself, not with a session")
	default:
		return unauthorized("a code is made with the token: Authorization: Bearer <token>")
	}
	writeJSON(w, http.StatusOK, r.gate.codes.make(c.grant, time.Now()))
	return nil
}

// LoginCode is a code for this machine's own token, for its user's terminal.
func (r *Relay) LoginCode() CodeDoc {
	if r.gate.local == nil {
		return CodeDoc{}
	}
	return r.gate.codes.make(r.gate.local, time.Now())
}

// codes are those that were not used yet, on this relay.
type codes struct {
	mu   sync.Mutex
	list []code // the oldest first
}

type code struct {
	text    string
	grant   *grant
	expires time.Time
}

func (s *codes) make(g *grant, now time.Time) CodeDoc {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	c := code{base64.RawURLEncoding.EncodeToString(b[:]), g, now.Add(codeAge)}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := 0
	for _, o := range s.list {
		if o.grant == g {
			of++
		}
	}
	if of >= maxCodes {
		oldest := slices.IndexFunc(s.list, func(o code) bool { return o.grant == g })
		s.list = slices.Delete(s.list, oldest, oldest+1)
	}
	s.list = slices.DeleteFunc(append(s.list, c), func(o code) bool { return !now.Before(o.expires) || !o.grant.holds() })
	return CodeDoc{Path: "/login#" + c.text, Code: c.text, Expires: c.expires}
}

// use takes a code out and returns its grant, nil where it does not count.
func (s *codes) use(text string, now time.Time) *grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *grant
	keep := s.list[:0]
	for _, c := range s.list {
		switch {
		case !now.Before(c.expires):
		case hmac.Equal([]byte(c.text), []byte(text)):
			found = c.grant
		default:
			keep = append(keep, c)
		}
	}
	clear(s.list[len(keep):])
	s.list = keep
	if found == nil || !found.holds() {
		return nil
	}
	return found
}
