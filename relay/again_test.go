package relay_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/relay"
)

// An EventSource that meets a relay which has not begun yet is told to come back; other
// clients are told that it is not there.
func TestStreamsBeforeTheBeginning(t *testing.T) {
	r := newRig(t, small())
	rel := relay.New(relay.Options{Bus: r.bus, Token: token}) // Run was not called
	for _, path := range []string{"/v1/runs/run-1/stream", "/v1/stream", "/api/workflows/runs/run-1/stream"} {
		for accept, want := range map[string]struct {
			status int
			typ    string
			body   string
		}{
			"text/event-stream": {200, "text/event-stream", "retry: "},
			"*/*":               {503, "application/json", `"code":"unavailable"`},
			"":                  {503, "application/json", `"code":"unavailable"`},
		} {
			q := httptest.NewRequest("GET", path, nil)
			q.Host = "localhost"
			q.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			rel.Handler().ServeHTTP(w, q)
			if body := w.Body.String(); w.Code != want.status || !strings.HasPrefix(w.Header().Get("Content-Type"), want.typ) ||
				!strings.Contains(body, want.body) || strings.Contains(body, "data:") || strings.Contains(body, "id:") {
				t.Errorf("%s with Accept %q: %d %s %q", path, accept, w.Code, w.Header().Get("Content-Type"), body)
			}
		}
	}
	q := httptest.NewRequest("GET", "/v1/stream?kind=none", nil) // what is wrong stays wrong
	q.Host = "localhost"
	q.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	rel.Handler().ServeHTTP(w, q)
	if w.Code != 400 {
		t.Errorf("a bad request: %d", w.Code)
	}
}
