package notify_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
)

// syncBuffer is a buffer for a log of many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// metric is the value of one series, its labels in the order of the text form.
func metrics(tb testing.TB, n *notify.Notifier) string {
	tb.Helper()
	all, err := n.Metrics().Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for _, f := range all {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			fmt.Fprintf(&b, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return b.String()
}

// waitMetric waits until the metrics have a line.
func waitMetric(tb testing.TB, n *notify.Notifier, line string) {
	tb.Helper()
	deadline := time.Now().Add(long)
	for !strings.Contains(metrics(tb, n), line+"\n") {
		if time.Now().After(deadline) {
			tb.Fatalf("no %s in\n%s", line, metrics(tb, n))
		}
		<-time.After(5 * time.Millisecond)
	}
}

// What an endpoint answers decides how often it is tried. No redirect is followed, and
// nothing goes to a private address that is not allowed. 109 discourse/discourse#7392.
func TestAnswers(t *testing.T) {
	followed := receive(t)
	replies := map[string]func(w http.ResponseWriter){
		"h410": func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) },
		"h404": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"h400": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		"h401": func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		"h500": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"h503": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}
	for _, code := range []int{301, 302, 307, 308} {
		replies[fmt.Sprint("h", code)] = func(w http.ResponseWriter) {
			w.Header().Set("Location", followed.URL+"/x")
			w.WriteHeader(code)
		}
	}
	r := receive(t)
	r.reply = func(w http.ResponseWriter, q *http.Request, _ int) { replies[strings.TrimPrefix(q.URL.Path, "/")](w) }
	text := "version: 1\nowner: ok\ndestinations:\n  ok: {type: webhook, url: " + followed.URL + "/owner, allow: [127.0.0.1]}\n  private: {type: webhook, url: $URL/private, retry: {ladder: [1ms, 1ms, 1ms, 1ms]}}\n"
	names := []string{"private"}
	for name := range replies {
		text += fmt.Sprintf("  %s: {type: webhook, url: $URL/%s, allow: [127.0.0.1], retry: {ladder: [1ms, 1ms, 1ms, 1ms]}}\n", name, name)
		names = append(names, name)
	}
	text += "rules: [{name: all, to: [" + strings.Join(names, ", ") + "]}]\n"
	b, log := serve(t), &syncBuffer{}
	o := notify.Options{
		Bus: b, Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, r, text)},
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	n, stop := start(t, o)
	publish(t, b, "r1", script("r1", initLine, prompt, done, "exit 0"))
	for _, name := range names {
		switch name {
		case "h503": // it asks to be left alone
			waitMetric(t, n, "cbcast_notifications_failed_total{destination=h503,reason=throttled} 1")
		case "h410":
			waitMetric(t, n, "cbcast_notifications_total{destination=h410,kind=finished,outcome=disabled} 1")
		default:
			waitMetric(t, n, "cbcast_notifications_total{destination="+name+",kind=finished,outcome=dead} 1")
		}
	}
	publish(t, b, "r2", script("r2", initLine, prompt, done, "exit 0")) // the disabled one is not asked
	waitMetric(t, n, "cbcast_notifications_total{destination=h410,kind=finished,outcome=disabled} 2")
	owner := followed.n(t, 1)
	stop()
	tries := map[string]int{}
	for _, g := range r.n(t, 1) {
		if g.Run == "r1" {
			tries[strings.TrimPrefix(g.Path, "/")]++
		} else if g.Path == "/h410" {
			t.Error("a disabled destination is asked")
		}
	}
	want := map[string]int{"h410": 1, "h404": 3, "h400": 3, "h401": 3, "h301": 3, "h302": 3, "h307": 3, "h308": 3, "h500": 5, "h503": 1}
	if d := cmp.Diff(want, tries); d != "" {
		t.Errorf("attempts (-want +got):\n%s", d)
	}
	if len(owner) != 1 || owner[0].Path != "/owner" || owner[0].Kind != "disabled" {
		t.Errorf("the owner got %s", kinds(owner))
	}
	list, err := notify.Dead(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(followed.URL, "http://")
	for _, l := range list {
		if l.Destination == "h302" && !strings.Contains(l.Why, host) {
			t.Errorf("a redirect is reported as %q, without its host %s", l.Why, host)
		}
	}
	if !strings.Contains(log.String(), "destination is disabled") {
		t.Error("the log does not say that a destination is disabled")
	}
}

// The address of a destination is a secret: whatever goes wrong, it stands in no log,
// no metric and no file. 114 prometheus/alertmanager#1822.
func TestSecretAddress(t *testing.T) {
	const part, query = "SECRETPART", "token=abcdef"
	path := "/services/T0/B0/" + part + "?" + query
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(tlsServer.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	closed.Close()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	r := receive(t)
	r.reply = func(w http.ResponseWriter, q *http.Request, _ int) {
		switch q.Header.Get("x-what") {
		case "timeout":
			select {
			case <-hang:
			case <-q.Context().Done():
			}
		case "redirect":
			w.Header().Set("Location", "http://127.0.0.1:1"+path)
			w.WriteHeader(http.StatusFound)
		case "echo":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "no such hook: ", q.URL)
		default:
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	text := "version: 1\ndestinations:\n"
	var names []string
	for name, base := range map[string]string{
		"refused": refused, "dns": "http://no-such-host.invalid", "tls": tlsServer.URL, "timeout": r.URL, "throttled": r.URL, "redirect": r.URL, "echo": r.URL,
	} {
		text += fmt.Sprintf("  %s: {type: webhook, url: %q, timeout: 200ms, headers: {x-what: %s}, allow: [127.0.0.1, no-such-host.invalid], retry: {ladder: [1ms, 1ms]}}\n", name, base+path, name)
		names = append(names, name)
	}
	text += "rules: [{name: all, to: [" + strings.Join(names, ", ") + "]}]\n"
	b, log := serve(t), &syncBuffer{}
	o := notify.Options{
		Bus: b, Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, r, text)},
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	n, stop := start(t, o)
	publish(t, b, "r1", script("r1", initLine, prompt, done, "exit 0"))
	for _, name := range names {
		if name == "throttled" {
			waitMetric(t, n, "cbcast_notifications_failed_total{destination=throttled,reason=throttled} 1")
			continue
		}
		waitMetric(t, n, "cbcast_notifications_total{destination="+name+",kind=finished,outcome=dead} 1")
	}
	shown := metrics(t, n)
	stop()
	look := func(where, text string) {
		t.Helper()
		for _, secret := range []string{part, query, "abcdef"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %s:\n%s", where, secret, text)
			}
		}
	}
	look("the log", log.String())
	look("a metric", shown)
	err = filepath.WalkDir(o.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		look(path, string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "timeout") {
		t.Error("the log does not name the destinations")
	}
}

// One whose rules file is changed uses the new rules; a bad file changes nothing.
func TestReload(t *testing.T) {
	b, r := serve(t), receive(t)
	path := rulesFile(t, r, plain)
	n, stop := start(t, notify.Options{Bus: b, Partitions: 1, Config: notify.Config{Rules: path}})
	publish(t, b, "r1", script("r1", initLine, prompt, done, "exit 0"))
	r.n(t, 1)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "$URL", r.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(plain + "nonsense: true\n")
	if err := n.Reload(); err == nil || n.Ready() == nil {
		t.Error("a bad file is taken, or not told")
	}
	publish(t, b, "r2", script("r2", initLine, prompt, done, "exit 0"))
	r.n(t, 2)
	write(strings.ReplaceAll(plain, "/hook", "/other"))
	if err := n.Reload(); err != nil || n.Ready() != nil {
		t.Errorf("reload: %v, ready: %v", err, n.Ready())
	}
	publish(t, b, "r3", script("r3", initLine, prompt, done, "exit 0"))
	all := r.n(t, 3)
	stop()
	var paths []string
	for _, g := range all {
		paths = append(paths, g.Run+g.Path)
	}
	if d := cmp.Diff([]string{"r1/hook", "r2/hook", "r3/other"}, paths); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

// A second one on the same directory is refused; its requests reach the first.
func TestOneOnly(t *testing.T) {
	b, r := serve(t), receive(t)
	o := notify.Options{Bus: b, Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, r, plain)}}
	_, stop := start(t, o)
	publish(t, b, "r1", script("r1", initLine, prompt, done, "exit 0"))
	first := r.n(t, 1)
	if n, err := notify.New(o); err == nil {
		_ = n.Close()
		t.Error("two have one directory")
	}
	deadline := time.Now().Add(long)
	for { // the outcome is noted a moment after the request
		a, err := notify.Ask(t.Context(), o.Dir, notify.Request{Replay: &notify.Replay{Run: "r1"}})
		if err != nil {
			t.Fatal(err)
		}
		if a.Sent == 1 || time.Now().After(deadline) {
			break
		}
	}
	all := r.n(t, 2)
	stop()
	if all[1].ID != first[0].ID {
		t.Errorf("it was sent again as %s, not as %s", all[1].ID, first[0].ID)
	}
}
