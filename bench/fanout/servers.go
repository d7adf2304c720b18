//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// natsRole is a NATS server with cbcast's streams, until stdin ends.
func natsRole(arg string) error {
	var dir string
	if err := json.Unmarshal([]byte(arg), &dir); err != nil {
		return err
	}
	s, err := natsd.Start(natsd.Options{Dir: dir, MaxStore: 8 << 30})
	if err != nil {
		return err
	}
	b, err := bus.Connect(context.Background(), bus.Config{URL: s.ClientURL()}, nil)
	if err != nil {
		return err
	}
	if _, err := b.Ensure(context.Background(), bus.Topology{MaxBytes: 4 << 30}); err != nil {
		return err
	}
	b.Close()
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Shutdown(context.Background())
}

func startRelay(program string) func(context.Context, options, string) (*lab, error) {
	return func(ctx context.Context, _ options, dir string) (*lab, error) {
		l := &lab{path: "/v1/runs/" + runName("%d") + "/stream"}
		if err := l.startRelay(ctx, program, dir); err != nil {
			l.end()
			return nil, err
		}
		return l, nil
	}
}

func (l *lab) startRelay(ctx context.Context, program, dir string) (err error) {
	if l.bus, err = role(ctx, dir, "role-nats", filepath.Join(dir, "js")); err != nil {
		return err
	}
	nats, err := l.bus.hear()
	if err != nil {
		return err
	}
	l.feed = feed{Kind: "nats", URL: nats}
	if l.addr, err = freeAddr(); err != nil {
		return err
	}
	env := []string{
		"CBCAST_NATS_URL=" + nats, "CBCAST_RELAY_ADDR=" + l.addr, "HOME=" + dir,
		"XDG_CONFIG_HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir,
	}
	if l.server, err = spawn(ctx, dir, env, program, "up"); err != nil {
		return err
	}
	return answers(ctx, l.addr)
}

func startCentrifugo(ctx context.Context, o options, dir string) (*lab, error) {
	l := &lab{path: "/connection/uni_sse?cf_connect=" + url.QueryEscape(`{"subs":{"`+runName("RUN")+`":{}}}`)}
	l.path = strings.ReplaceAll(strings.ReplaceAll(l.path, "%", "%%"), "RUN", "%d")
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	l.addr = addr
	_, port, _ := net.SplitHostPort(addr)
	config := `{"http_server":{"address":"127.0.0.1","port":` + port + `},"client":{"insecure":true},
"http_api":{"insecure":true},"uni_sse":{"enabled":true},"log":{"level":"error"},
"channel":{"without_namespace":{"history_size":1000,"history_ttl":"10m","allow_subscribe_for_anonymous":true,"allow_subscribe_for_client":true}}}`
	file := filepath.Join(dir, "centrifugo.json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	if l.server, err = spawn(ctx, dir, nil, o.centrifugo, "-c", file); err != nil {
		return nil, err
	}
	l.feed = feed{Kind: "centrifugo", URL: "http://" + addr + "/api/publish"}
	return l, answers(ctx, addr)
}

func startMercure(ctx context.Context, o options, dir string) (*lab, error) {
	l := &lab{path: "/.well-known/mercure?topic=" + runName("%d")}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	l.addr = addr
	const key = "a key for this measurement only, 32+"
	if l.server, err = spawn(ctx, dir, nil, o.mercure, "--addr", addr, "--jwt-key", key, "--allow-anonymous",
		"--transport-url", "bolt://"+filepath.Join(dir, "updates.db"), "--write-timeout", "0s"); err != nil {
		return nil, err
	}
	l.feed = feed{Kind: "mercure", URL: "http://" + addr + "/.well-known/mercure", Token: jwt(key, `{"mercure":{"publish":["*"]}}`)}
	return l, answers(ctx, addr)
}

// jwt is a token by RFC 7519, signed with HS256.
func jwt(key, claims string) string {
	enc := base64.RawURLEncoding
	s := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString([]byte(claims))
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(s))
	return s + "." + enc.EncodeToString(m.Sum(nil))
}

func startBare(how string) func(context.Context, options, string) (*lab, error) {
	return func(ctx context.Context, _ options, dir string) (*lab, error) {
		l := &lab{path: "/stream?run=%d"}
		var err error
		if l.server, err = role(ctx, dir, "role-bare", struct{}{}); err != nil {
			return nil, err
		}
		if l.addr, err = l.server.hear(); err != nil {
			l.end()
			return nil, err
		}
		l.feed = feed{Kind: how, URL: "http://" + l.addr + "/" + how}
		return l, nil
	}
}

// bareRole is the least that fans out over net/http: no history, no ids of its
// own, no slow clients. Each client has a channel, into which go the bytes of an
// event as they are.
func bareRole(string) error {
	b := &bare{topics: map[string]map[chan []byte]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stream", b.stream)
	mux.HandleFunc("POST /post", func(w http.ResponseWriter, q *http.Request) {
		data, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		b.send(q.URL.Query().Get("run"), data)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /inside", func(_ http.ResponseWriter, q *http.Request) {
		var f feed
		if json.NewDecoder(q.Body).Decode(&f) == nil {
			b.pacer.run(q.Context(), f, func(run int, n uint64) { b.send(strconv.Itoa(run), cloudEvent(f.event(run, n))) })
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(ln, mux) }() //nolint:gosec // ends with the process
	fmt.Println(ln.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

type bare struct {
	pacer  pacer
	mu     sync.RWMutex
	topics map[string]map[chan []byte]bool
}

func (b *bare) send(run string, data []byte) {
	m := make([]byte, 0, len(data)+64)
	m = append(append(append(m, "id: 12345\nevent: msg\ndata: "...), data...), "\n\n"...)
	b.mu.RLock()
	defer b.mu.RUnlock()
	for c := range b.topics[run] {
		c <- m
	}
}

func (b *bare) stream(w http.ResponseWriter, q *http.Request) {
	run, c := q.URL.Query().Get("run"), make(chan []byte, 16)
	b.mu.Lock()
	if b.topics[run] == nil {
		b.topics[run] = map[chan []byte]bool{}
	}
	b.topics[run][c] = true
	b.mu.Unlock()
	defer func() {
		go func() { // send may be at this client
			for range c {
			}
		}()
		b.mu.Lock()
		delete(b.topics[run], c)
		b.mu.Unlock()
		close(c)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	for {
		select {
		case m := <-c:
			if _, err := w.Write(m); err != nil {
				return
			}
			_ = rc.Flush()
		case <-q.Context().Done():
			return
		}
	}
}

// lines reads a role's orders.
func lines(f func(line string) bool) {
	for sc := bufio.NewScanner(os.Stdin); sc.Scan() && f(sc.Text()); {
	}
}
