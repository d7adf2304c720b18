package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// A target is a relay's handler with one run that has ended: streams of it end, too.
type target struct {
	s *served
	h http.Handler
	c *contract
}

func newTarget(t testing.TB) *target {
	t.Helper()
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(fact(event.TypeStarted, event.Life, event.Started{Argv: []string{"claude"}, Dialect: "claude"}), note(1), exited())
	e.shipped()
	s := r.relay(relay.Config{Hosts: []string{"relay.example"}, Heartbeat: time.Second})
	return &target{s, s.relay.Handler(), theContract()}
}

// unsafeText is what must not come back as it was sent: markup, and line ends.
var unsafeText = []string{"<script", "<img", "\r\nX-Injected", "\nX-Injected"}

// ask gives one request to the handler as a server would, and checks the answer: it
// is documented, no 500, and has nothing unsafe of the request in it. A stream that
// does not end by itself is cut.
func (f *target) ask(t testing.TB, method string, u *url.URL, host string, header http.Header, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8420})
	q := (&http.Request{
		Method: method, URL: u, Host: host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "127.0.0.1:4000",
		Body: http.NoBody, RequestURI: u.RequestURI(),
	}).WithContext(ctx)
	if len(body) > 0 {
		q.Body, q.ContentLength = nopCloser{bytes.NewReader(body)}, int64(len(body))
	}
	w := &cutRecorder{ResponseRecorder: httptest.NewRecorder(), cancel: cancel}
	f.h.ServeHTTP(w, q)
	res := w.Result()
	content := w.Body.Bytes()
	if res.StatusCode >= 500 && res.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("%s %s: %d %.300s", method, u, res.StatusCode, content)
	}
	typ := res.Header.Get("Content-Type")
	if strings.HasPrefix(typ, "text/event-stream") {
		return // the frames have a test of their own
	}
	if err := f.c.check(exchange{method, u, header, body, res.StatusCode, res.Header, content, true}); err != nil {
		t.Fatalf("%s %.300q: %v", method, u, err)
	}
	if res.StatusCode < 400 {
		return
	}
	for _, bad := range unsafeText {
		if bytes.Contains(content, []byte(bad)) {
			t.Fatalf("%s %s answers with %q in %.300s", method, u, bad, content)
		}
		for name, values := range res.Header {
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, bad) || strings.ContainsAny(v, "\r\n") }) {
				t.Fatalf("%s %s: header %s is %q", method, u, name, values)
			}
		}
	}
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

// A cutRecorder ends a stream when its first event is there.
type cutRecorder struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (w *cutRecorder) Write(b []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(b)
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.cancel()
	}
	return n, err
}

// nasty are texts that somebody may send.
var nasty = []string{
	"", "abc", "-1", "18446744073709551616", "1", "0", "\x00", "a\r\nX-Injected: 1", "<script>alert(1)</script>", "<img src=x>", "../../etc/passwd",
	"..%2f", "%", "%zz", "é", "\xff\xfe", "{{7*7}}", "' or 1=1", strings.Repeat("x", 5000), "null", "1,2", "evil.example", "127.0.0.1", "[::1]:8420", "[",
	"http://evil.example", "null, http://127.0.0.1", "Bearer", "Bearer  " + token, "bearer " + token, "Basic " + token, "Bearer " + token + "\n", "a.b.c.d",
	"9999999999999.1.x.y", "::1, 10.0.0.1", "unknown", "999.999.999.999", "a1", "cbcast-x=1; cbcast-x=2", "run-1:t1", "run-1:", ":", "W/\"x\"", "*",
}

var fuzzedHeaders = []string{
	"Host", "Origin", "Authorization", "Cookie", "Last-Event-ID", "X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Idempotency-Key", "Content-Type",
	"Sec-Fetch-Site", "Sec-Fetch-Mode", "Accept", "If-None-Match", "Range", "Access-Control-Request-Method",
}

// FuzzHeader says that no header makes a route panic, fail or answer in another form.
func FuzzHeader(f *testing.F) {
	g := newTarget(f)
	for i, v := range nasty {
		for h := range fuzzedHeaders {
			f.Add(uint8(i+h), uint8(h), v, "")
		}
	}
	f.Fuzz(func(t *testing.T, op, name uint8, value, more string) {
		o := g.c.ops[int(op)%len(g.c.ops)]
		host, header := "127.0.0.1:8420", http.Header{}
		if o.method == "POST" {
			header.Set("Authorization", "Bearer "+token)
		}
		switch h := fuzzedHeaders[int(name)%len(fuzzedHeaders)]; {
		case h == "Host":
			host = value
		case more != "":
			header[http.CanonicalHeaderKey(h)] = []string{value, more}
		default:
			header[http.CanonicalHeaderKey(h)] = []string{value}
		}
		g.ask(t, o.method, &url.URL{Path: o.fill(nil)}, host, header, []byte(bodies[o.id]))
	})
}

// FuzzPath says the same of paths and parameters: cursors of every kind among them.
func FuzzPath(f *testing.F) {
	g := newTarget(f)
	for i, v := range nasty {
		f.Add(uint8(i), v, "", "after="+url.QueryEscape(v))
		f.Add(uint8(i), "", "/"+v, "cursor="+url.QueryEscape(v)+"&limit="+url.QueryEscape(v))
		f.Add(uint8(i), "run-1", "", v)
	}
	f.Fuzz(func(t *testing.T, op uint8, value, path, query string) {
		o := g.c.ops[int(op)%len(g.c.ops)]
		u := &url.URL{Path: path, RawQuery: query}
		if path == "" {
			u.Path = o.fill(map[string]string{"run": value, "id": value, "ask": value, "name": value, "file": value})
		}
		if !strings.HasPrefix(u.Path, "/") {
			return // no server takes it
		}
		g.ask(t, o.method, u, "localhost", http.Header{"Authorization": {"Bearer " + token}}, []byte(bodies[o.id]))
	})
}

// FuzzBody says the same of the bodies of all that takes one.
func FuzzBody(f *testing.F) {
	g := newTarget(f)
	var posts []*operation
	for _, o := range g.c.ops {
		if o.method == "POST" {
			posts = append(posts, o)
		}
	}
	slices.SortFunc(posts, func(a, b *operation) int { return strings.Compare(a.id, b.id) })
	seeds := []string{
		"{}", "[]", "null", `"x"`, "1", "{", `{"a":1,"a":2}`, `{"reason":"\u0000"}`, `{"reason":"<script>"}`, `{"<script>":1}`, `{"id":"../x"}`,
		`{"name":"message","args":{"content":"x"}}`, `{"name":"<img>","args":null}`, `{"name":"rewind","args":[1]}`, `{"decision":"answer","answers":{"<script>":["x"]}}`,
		`{"decision":"allow","updated_input":[]}`, `{"decision":"vendor","vendor":1e999}`, `{"deliver_within":1e308}`, `{"deliver_within":-0.0}`, "\ufeff{}",
		`{"token":"x"}`, `{"code":"<script>"}`, `{"token":"x","code":"y"}`, `{"resumeToken":"a1.AAAA","action":"allow","data":{}}`, `{"escalate":true}`,
		strings.Repeat(`{"a":`, 10000), strings.Repeat("[", 100000), `{"reason":"` + strings.Repeat("x", 5000) + `"}`, "\xff\xfe{\x00}\x00",
	}
	for i := range posts {
		for _, s := range seeds {
			f.Add(uint8(i), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, op uint8, body []byte) {
		o := posts[int(op)%len(posts)]
		h := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		g.ask(t, o.method, &url.URL{Path: o.fill(nil)}, "localhost", h, body)
	})
}

// TestTour asks every operation many things, made from the document: parameters that
// it allows and that it does not, in any mixture. What comes back is documented.
func TestTour(t *testing.T) {
	g := newTarget(t)
	rnd := rand.New(rand.NewPCG(5, 31)) // the same tour each time
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	for _, o := range g.c.ops {
		for range 40 {
			values, query, header := map[string]string{}, url.Values{}, http.Header{}
			for _, p := range o.params {
				if p.in != "path" && rnd.IntN(3) > 0 {
					continue
				}
				v := pick(nasty)
				if words := texts(g.c.get(p.pointer + "/schema/enum")); len(words) > 0 && rnd.IntN(2) == 0 {
					v = pick(words)
				}
				switch p.in {
				case "path":
					if v = strings.ReplaceAll(v, "\x00", ""); rnd.IntN(2) == 0 || v == "" {
						continue // the run that there is
					}
					values[p.name] = v
				case "query":
					query.Set(p.name, v)
				case "header":
					header.Set(p.name, v)
				}
			}
			if rnd.IntN(4) > 0 {
				header.Set("Authorization", "Bearer "+token)
			}
			if rnd.IntN(8) == 0 {
				header.Set("Origin", pick(nasty))
			}
			body := []byte(bodies[o.id])
			if rnd.IntN(3) == 0 {
				body, _ = json.Marshal(map[string]string{pick(nasty): pick(nasty)}) // always marshals
			}
			method := o.method
			if method == "GET" && rnd.IntN(8) == 0 {
				method = "HEAD"
			}
			g.ask(t, method, &url.URL{Path: o.fill(values), RawQuery: query.Encode()}, "localhost", header, body)
		}
	}
}
