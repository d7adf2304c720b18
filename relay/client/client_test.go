package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/relay/client"
)

func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &client.Client{URL: s.URL + "/", Token: "secret"}
}

// sse is one event as a relay writes it.
func sse(seq uint64, name, data string) string {
	id := ""
	if seq > 0 {
		id = fmt.Sprintf("id: %d\n", seq)
	}
	return id + "event: " + name + "\ndata: " + data + "\n\n"
}

// A stream that is cut at any byte, over and over, is told whole and once.
func TestFollowOverCuts(t *testing.T) {
	const n = 200
	rng := rand.New(rand.NewPCG(1, 2)) // of the server's one connection at a time
	cuts := 0
	c := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer secret" || q.URL.Path != "/v1/runs/r 1/stream" {
			t.Errorf("asked for %s with %q", q.URL.Path, q.Header.Get("Authorization"))
		}
		after, _ := strconv.ParseUint(q.Header.Get("Last-Event-ID"), 10, 64)
		if after == n {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		var b strings.Builder
		b.WriteString("retry: 1\n\n:\n\n")
		for i := after + 1; i <= n; i++ {
			b.WriteString(sse(i, "msg", fmt.Sprintf(`{"n":%d}`, i)))
		}
		all := b.String()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, all[:min(rng.IntN(900)+40, len(all))])
		cuts++
	})
	var got []uint64
	err := c.Follow(t.Context(), "r 1", 0, func(e client.Event) error {
		var d struct{ N uint64 }
		if e.Name != "msg" || json.Unmarshal(e.Data, &d) != nil || d.N != e.Seq {
			t.Errorf("event %d is %s %s", e.Seq, e.Name, e.Data)
		}
		got = append(got, e.Seq)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, seq := range got {
		if seq != uint64(i+1) {
			t.Fatalf("event %d of %d is %d", i+1, len(got), seq)
		}
	}
	if len(got) != n || cuts < 10 {
		t.Errorf("%d events over %d connections", len(got), cuts)
	}
}

// What the relay says beside the events reaches the caller once.
func TestFollowWhatTheRelaySays(t *testing.T) {
	answers := []string{
		sse(0, "reset", `{"asked":9,"first":1,"last":2,"reason":"beyond_head"}`) + sse(1, "msg", `{}`),
		sse(1, "msg", `{}`) + sse(0, "lost", `{}`), // told before: no second time
		sse(0, "lost", `{}`),
		sse(0, "resumed", `{}`) + sse(0, "lost", `{}`),
		sse(0, "resumed", `{}`) + "event: msg\r\nid: 4\r\ndata: {\"a\":\rdata: 1}\r\n\r\nid: 5\nevent: life\ndata: cut",
		sse(0, "gap", `{"asked":4,"first":7,"last":7,"reason":"not_kept"}`) + sse(7, "life", `{}`),
	}
	var cursors []string
	c := serve(t, func(w http.ResponseWriter, q *http.Request) {
		cursors = append(cursors, q.Header.Get("Last-Event-ID"))
		if len(answers) == 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, "retry: 1\n\n"+answers[0])
		answers = answers[1:]
	})
	var got []string
	err := c.Follow(t.Context(), "r", 9, func(e client.Event) error {
		got = append(got, fmt.Sprintf("%d %s %s", e.Seq, e.Name, e.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{
		`0 reset {"asked":9,"first":1,"last":2,"reason":"beyond_head"}`, "1 msg {}", "0 lost {}", "0 resumed {}", "0 lost {}",
		"0 resumed {}", "4 msg {\"a\":\n1}", `0 gap {"asked":4,"first":7,"last":7,"reason":"not_kept"}`, "7 life {}",
	}, got); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"9", "1", "1", "1", "1", "4", "7"}, cursors); d != "" {
		t.Errorf("cursors (-want +got):\n%s", d)
	}
}

func TestFollowEnds(t *testing.T) {
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	for name, x := range map[string]struct {
		serve func(w http.ResponseWriter, q *http.Request)
		fn    func(client.Event) error
		check func(error) bool
	}{
		"refused": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"code":"not_found","message":"there is no such thing here","retryable":false}`)
			}, nil,
			func(err error) bool {
				var e *client.Error
				return errors.As(err, &e) && e.Code == "not_found" && e.Status == 404
			},
		},
		"caller": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, sse(1, "msg", "{}")) },
			func(client.Event) error { return stop },
			func(err error) bool { return errors.Is(err, stop) },
		},
		"context": {
			func(w http.ResponseWriter, q *http.Request) {
				_ = http.NewResponseController(w).Flush()
				cancel(stop)
				<-q.Context().Done()
			}, nil,
			func(err error) bool { return errors.Is(err, stop) },
		},
		"no id of ours": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "id: x\ndata: 1\n\n") }, nil,
			func(err error) bool { return err != nil && strings.Contains(err.Error(), `"x"`) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			use := t.Context()
			if name == "context" {
				use = ctx
			}
			fn := x.fn
			if fn == nil {
				fn = func(client.Event) error { return nil }
			}
			if err := serve(t, x.serve).Follow(use, "r", 0, fn); !x.check(err) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// A relay that is away, or a connection that died without a word, is tried again.
func TestFollowGoesOn(t *testing.T) {
	asked := 0
	c := serve(t, func(w http.ResponseWriter, q *http.Request) {
		asked++
		switch asked {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"unavailable","retryable":true}`)
		case 2:
			w.WriteHeader(http.StatusBadGateway) // of a proxy
			_, _ = io.WriteString(w, `<html>`)
		case 3:
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done() // silent until the client gives up
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	c.Idle = 50 * time.Millisecond
	if err := c.Follow(t.Context(), "r", 0, func(client.Event) error { return nil }); err != nil || asked != 4 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestSendAndWait(t *testing.T) {
	var asked atomic.Int32
	var body string
	c := serve(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.Method == http.MethodPost:
			b, _ := io.ReadAll(q.Body)
			body = q.URL.EscapedPath() + " " + string(b)
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"command":"c1","run":"r","name":"interrupt","state":"accepted"}`)
		case asked.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"unavailable","retryable":true}`)
		case asked.Load() < 4:
			_, _ = io.WriteString(w, `{"command":"c1","state":"written","facts":[{"fact":"accepted"},{"fact":"written"}]}`)
		default:
			_, _ = io.WriteString(w, `{"command":"c1","state":"settled","final":true,"facts":[{"fact":"accepted"},{"fact":"written"},{"fact":"settled"}]}`)
		}
	})
	a, err := c.Send(t.Context(), "r/1", client.Command{ID: "c1", Name: "interrupt", Args: map[string]string{"reason": "enough"}})
	if err != nil || a.Command != "c1" || body != `/v1/runs/r%2F1/commands {"id":"c1","name":"interrupt","args":{"reason":"enough"}}` {
		t.Errorf("sent %s: %+v %v", body, a, err)
	}
	if s, err := c.Wait(t.Context(), "c1", "written"); err != nil || s.Final || !s.Has("written") {
		t.Errorf("wait for written: %+v %v", s, err)
	}
	if s, err := c.Wait(t.Context(), "c1", ""); err != nil || !s.Final || s.State != "settled" {
		t.Errorf("wait for the end: %+v %v", s, err)
	}
	if s, err := c.Wait(t.Context(), "c1", "refused"); !errors.Is(err, client.ErrNoFact) || s.State != "settled" {
		t.Errorf("wait for what did not happen: %+v %v", s, err)
	}
	if _, err := c.Answer(t.Context(), "r", "a1", client.Answer{Decision: "deny", Message: "no"}); err != nil ||
		body != `/v1/runs/r/asks/a1 {"decision":"deny","message":"no"}` {
		t.Errorf("answered %s: %v", body, err)
	}
}
