package relay_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

const html = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" // as browsers send it

func TestWeb(t *testing.T) {
	r := newRigOn(t, small(), natsd.Options{})
	s := r.relay(relay.Config{})
	for _, c := range []struct {
		path, accept string
		status       int
		mime, has    string
	}{
		{"/", "", 200, "text/plain; charset=utf-8", "/v1/runs"},
		{"/", "*/*", 200, "text/plain; charset=utf-8", "/v1/runs"},
		{"/", "application/json", 200, "text/plain; charset=utf-8", "/v1/runs"},
		{"/", html, 200, "text/html; charset=utf-8", `data-heartbeat="12000"`},
		{"/ui/main.js", "", 200, "text/javascript; charset=utf-8", "import"},
		{"/ui/style.css", "", 200, "text/css; charset=utf-8", "color-scheme"},
		{"/ui/icon.svg", "", 200, "image/svg+xml", "<svg"},
		{"/ui/index.html", "", 404, "application/json", "not_found"},
		{"/ui/nothing.js", "", 404, "application/json", "not_found"},
		{"/ui/..%2fweb.go", "", 404, "application/json", "not_found"},
		{"/ui/", "", 404, "application/json", "not_found"},
	} {
		h := map[string]string{}
		if c.accept != "" {
			h["Accept"] = c.accept
		}
		got := s.get(c.path, h)
		if got.status != c.status || got.header.Get("Content-Type") != c.mime || !strings.Contains(string(got.body), c.has) {
			t.Errorf("GET %s (%s): %d %s %.80q, want %d %s with %q", c.path, c.accept, got.status, got.header.Get("Content-Type"), got.body, c.status, c.mime, c.has)
		}
		if got.status == 200 && c.path != "/" || c.accept == html {
			for name, part := range map[string]string{
				"Content-Security-Policy": "require-trusted-types-for 'script'", "X-Content-Type-Options": "nosniff",
				"Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
			} {
				if v := got.header.Get(name); !strings.Contains(v, part) {
					t.Errorf("GET %s: %s is %q, want %q in it", c.path, name, v, part)
				}
			}
			h["If-None-Match"] = got.header.Get("ETag")
			if again := s.get(c.path, h); again.status != http.StatusNotModified {
				t.Errorf("GET %s with its ETag %q: %d, want 304", c.path, h["If-None-Match"], again.status)
			}
		}
		if v := got.header.Get("Vary"); c.path == "/" && v != "Accept" {
			t.Errorf("GET /: Vary is %q: a cache would mix up page and list", v)
		}
	}
}

// TestWebRules reads the page's own files: the few things that would make text of an
// agent run are nowhere in them.
func TestWebRules(t *testing.T) {
	never := []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "setHTML", "DOMParser", "srcdoc",
		"eval(", "new Function", "setTimeout(\"", "javascript:", "localStorage", "sessionStorage", "http://", "https://cdn",
	}
	for name, data := range relay.WebFiles() {
		if strings.Count(string(data), "\n") > 350 && !strings.HasSuffix(name, ".css") {
			t.Errorf("%s is over 350 lines", name)
		}
		for i, l := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(strings.TrimSpace(l), "//") || strings.Contains(l, "http://www.w3.org/2000/svg") {
				continue
			}
			for _, word := range never {
				if strings.Contains(l, word) {
					t.Errorf("%s:%d has %s", name, i+1, word)
				}
			}
		}
	}
}
