package relay_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// grantOf is an entry of a list of tokens.
func grantOf(name, token string, entry relay.Token) relay.Token {
	sum := sha256.Sum256([]byte(token))
	entry.Name, entry.SHA256 = name, hex.EncodeToString(sum[:])
	return entry
}

func tokensOf(t testing.TB, list ...relay.Token) string {
	t.Helper()
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Tokens of the callers in these tests.
const (
	tokenRun    = "cbcast_token-of-a-caller-who-may-see-run-1-only"
	tokenTenant = "cbcast_token-of-a-caller-of-another-tenant"
)

var allScopes = relay.Scopes

// secret is in what run-2 says, and nowhere else.
const secret = "secret-of-run-2"

// foreign is a relay with run-1 and run-2, where run-2 waits for an answer and has
// had a command, and two callers who hold every scope but may not see run-2.
func foreign(t testing.TB) (*rig, *served) {
	t.Helper()
	r := newRig(t, small())
	for _, run := range []string{"run-1", "run-2"} {
		e := r.edge(run)
		e.info.Sessions = []string{"s-" + run}
		e.register()
		ev := frameOf(`{"type":"system","subtype":"init","session_id":"s1","cwd":"/w"}`)
		if run == "run-2" {
			ev = frameOf(`{"type":"assistant","session_id":"s1","message":{"content":[{"type":"text","text":"` + secret + `"}]}}`)
			ev.Task = "task-of-run-2"
		}
		e.emit(fact(event.TypeStarted, event.Life, event.Started{Argv: []string{"claude"}, Dialect: "claude"}), ev, exited())
		e.shipped()
	}
	s := r.relay(relay.Config{Tokens: tokensOf(t,
		grantOf("run", tokenRun, relay.Token{Scopes: allScopes, Runs: []string{"run-1"}}),
		grantOf("tenant", tokenTenant, relay.Token{Scopes: allScopes, Tenants: []string{"umbrella"}}),
	)})
	return r, s
}

// bodies are requests that each operation would take.
var bodies = map[string]string{
	"answerAsk": `{"decision":"allow"}`, "interrupt": `{"reason":"x"}`, "stopTask": `{"task":"t"}`, "command": `{"name":"end_session","id":"own-id"}`,
	"resumeWorkflow": `{"resumeToken":"a1.xxxx","action":"allow"}`, "cancelWorkflow": `{}`,
}

// fill puts values into the path of an operation; those that are not given are
// plain.
func (o *operation) fill(values map[string]string) string {
	plain := map[string]string{"run": "run-1", "id": "run-1", "ask": "a1", "name": "Run.json", "file": "app.js"}
	return rest.ReplaceAllStringFunc(o.path, func(p string) string {
		name := strings.Trim(p, "{}")
		if v, ok := values[name]; ok {
			return v
		}
		return plain[name]
	})
}

// said is what an answer tells a caller: all but the time.
type said struct {
	Status int
	Body   string
	Header http.Header
}

func (s *served) said(method, path, body string, header map[string]string) said {
	s.t.Helper()
	a := s.do(method, path, body, header)
	h := a.header.Clone()
	h.Del("Date")
	return said{a.status, string(a.body), h}
}

// hidden lists the values of a path that must all be as if there were nothing: the
// run that the caller may not see, and ways to name it through one that he may.
var hidden = []string{
	"run-2", "run-1%2F..%2Frun-2", "run-1%2f..%2frun-2", "..%2Frun-2", "%2e%2e%2Frun-2", "run-1%00run-2", "run-2%00", "run-2%20", "%20run-2",
	"run-1%0Arun-2", "run-1%5C..%5Crun-2", "run-2%2F", "run-2%3Ftask=x", "run-2%23", "run-2*", "run-*", "*", "%3E", "run-1.run-2", "RUN-2",
	"run-1:task-of-run-2", "run-1:..:run-2", "run-1%3Arun-2", "run-2:task-of-run-2", "run-2%3Atask-of-run-2", "run-2:", "=72un-2", "run-2=00",
}

// missing makes of each of them the same for a run that there is not.
var missing = strings.NewReplacer("run-2", "none-1", "RUN-2", "NONE-1", "=72un-2", "=6Eone-1", "run-*", "none-*")

// Every route whose path names a run or a command answers a caller who may not see
// it with the same bytes as for one that does not exist, whatever he asks: case 105.
func TestForeignIsMissing(t *testing.T) {
	_, s := foreign(t)
	admin := map[string]string{"Authorization": "Bearer " + token}
	given := s.post("/v1/runs/run-1/interrupt", `{"id":"command-of-run-1"}`, admin)
	if given.status != http.StatusConflict { // the run has ended
		t.Fatalf("%d %s", given.status, given.body)
	}
	n := 0
	for _, o := range theContract().ops {
		i := slices.IndexFunc(o.params, func(p param) bool { return p.in == "path" && (p.name == "run" || p.name == "id") })
		if i < 0 {
			continue
		}
		name := o.params[i].name
		for _, tok := range []string{tokenRun, tokenTenant} {
			h := map[string]string{"Authorization": "Bearer " + tok}
			for k, more := range []struct {
				query, body string
				header      map[string]string
			}{
				{"", bodies[o.id], nil}, {"?after=abc", bodies[o.id], map[string]string{"Last-Event-ID": "1"}}, {"?after=x", `{"nothing":1}`, nil},
			} {
				with := map[string]string{}
				for _, m := range []map[string]string{h, more.header} {
					for k, v := range m {
						with[k] = v
					}
				}
				for _, value := range hidden {
					if tok == tokenRun && strings.HasPrefix(strings.ReplaceAll(value, "%3A", ":"), "run-1:") && strings.HasPrefix(o.path, "/api/workflows/") {
						continue // a task of a run that he may see, not a run
					}
					want := s.said(o.method, o.fill(map[string]string{name: missing.Replace(value)})+more.query, more.body, with)
					got := s.said(o.method, o.fill(map[string]string{name: value})+more.query, more.body, with)
					if k == 0 && got.Status != http.StatusNotFound {
						t.Errorf("%s %s of %s: %d %s", o.id, value, tok, got.Status, got.Body)
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("%s %s%s of %s is not as one that is missing (-missing +got):\n%s", o.id, value, more.query, tok, d)
					}
					n++
				}
			}
		}
	}
	if n < 1000 {
		t.Errorf("%d requests were compared", n)
	}
	for _, path := range []string{"/v1/runs/run-1/../run-2", "/v1/runs/run-1/..%2Frun-2/events", "/v1/runs//run-2", "/v1/runs/./run-2", "/v1/../v1/runs/run-2"} {
		h := map[string]string{"Authorization": "Bearer " + tokenRun}
		want := s.said("GET", "/v1/runs/none-1", "", h)
		if d := cmp.Diff(want, s.said("GET", path, "", h)); d != "" {
			t.Errorf("%s (-missing +got):\n%s", path, d)
		}
	}
}

// What lists runs, or follows many, tells a caller nothing of those that he may not
// see, whatever he asks for.
func TestForeignIsNotListed(t *testing.T) {
	_, s := foreign(t)
	for _, tok := range []string{tokenRun, tokenTenant} {
		h := map[string]string{"Authorization": "Bearer " + tok}
		for _, query := range []string{"", "?tenant=acme", "?session=s-run-2", "?state=done", "?dialect=claude", "?limit=1000"} {
			if got := s.get("/v1/runs"+query, h); strings.Contains(string(got.body), "run-2") {
				t.Errorf("%s: the list %s shows run-2", tok, query)
			}
		}
		for _, query := range []string{"?from=start", "?from=start&tenant=acme", "?from=start&session=s-run-2", "?from=start&kind=msg,life"} {
			c := s.stream("/v1/stream"+query, h)
			var all strings.Builder
			for e, ok := c.next(); ok && e.name != "ready"; e, ok = c.next() {
				all.WriteString(e.data)
			}
			// What is behind the list comes at once, with run-1's last event at the end.
			if tok == tokenRun && query == "?from=start" {
				for e, ok := c.next(); ok; e, ok = c.next() {
					all.WriteString(e.data)
					if strings.Contains(e.data, event.TypeExited) {
						break
					}
				}
			}
			c.close()
			if got := all.String(); strings.Contains(got, secret) || strings.Contains(got, "run-2") {
				t.Errorf("%s: the stream %s shows run-2: %.300s", tok, query, got)
			}
		}
	}
}

// A token that is revoked, or lacks the scope, is told so at the next connect and at
// the next command, in every route.
func TestScopesOfEveryRoute(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(exited())
	e.shipped()
	const reader, commander, answerer, scraper = "cbcast_token-of-a-reader-1234567890", "cbcast_token-of-a-commander-123456", "cbcast_token-of-an-answerer-123456", "cbcast_token-of-a-scraper-12345678"
	s := r.relay(relay.Config{Closed: true, Tokens: tokensOf(t,
		grantOf("reader", reader, relay.Token{Scopes: []relay.Scope{relay.ScopeRead}}),
		grantOf("commander", commander, relay.Token{Scopes: []relay.Scope{relay.ScopeCommand}}),
		grantOf("answerer", answerer, relay.Token{Scopes: []relay.Scope{relay.ScopeAnswer}}),
		grantOf("scraper", scraper, relay.Token{Scopes: []relay.Scope{relay.ScopeMetrics}}),
	)})
	holds := map[string][]string{"": {"read"}, reader: {"read"}, commander: {"read", "command"}, answerer: {"read", "answer"}, scraper: {"metrics"}}
	for _, o := range theContract().ops {
		for tok, scopes := range holds {
			h := map[string]string{}
			if tok != "" {
				h["Authorization"] = "Bearer " + tok
			}
			status, body := s.open1(o.method, o.fill(nil), bodies[o.id], h)
			var fault relay.ErrorBody
			_ = json.Unmarshal(body, &fault) // what is none has no code
			switch {
			case o.scope == "":
				if status == http.StatusUnauthorized && o.id != "logIn" || fault.Code == relay.CodeForbidden {
					t.Errorf("%s is open, and answers %d", o.id, status)
				}
			case tok == "":
				if status != http.StatusUnauthorized || fault.Code != relay.CodeUnauthorized {
					t.Errorf("%s without a token: %d %s", o.id, status, fault.Code)
				}
			case slices.Contains(scopes, o.scope):
				if status == http.StatusUnauthorized || fault.Code == relay.CodeForbidden {
					t.Errorf("%s with %v: %d %s", o.id, scopes, status, fault.Code)
				}
			case status != http.StatusForbidden || fault.Code != relay.CodeForbidden:
				t.Errorf("%s with %v: %d %s", o.id, scopes, status, fault.Code)
			}
		}
	}
}

// open1 asks, and reads the answer where it is no stream that has no end.
func (s *served) open1(method, path, body string, header map[string]string) (status int, content []byte) {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		q.Header.Set(k, v)
	}
	res, err := s.client.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res.StatusCode, nil
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, b
}

// No route answers what was sent to another host's name, or by a foreign page.
func TestStrangersInEveryRoute(t *testing.T) {
	s := newRig(t, small()).relay(relay.Config{})
	for _, o := range theContract().ops {
		for code, h := range map[relay.Code]map[string]string{
			relay.CodeBadHost: {"Host": "evil.example"}, relay.CodeBadOrigin: {"Origin": "https://evil.example"},
		} {
			h["Authorization"] = "Bearer " + token
			got := s.do(o.method, o.fill(nil), bodies[o.id], h)
			var fault relay.ErrorBody
			got.into(t, &fault)
			if got.status != http.StatusForbidden || fault.Code != code {
				t.Errorf("%s: %d %s, want %s", o.id, got.status, fault.Code, code)
			}
		}
	}
}
