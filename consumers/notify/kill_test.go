package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// childConfig is what the program that is killed is told.
type childConfig struct{ NATS, Rules, State string }

// child is a notifier in a process of its own.
func child(dir string) {
	fail := func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "child.json"))
	fail(err)
	var c childConfig
	fail(json.Unmarshal(b, &c))
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	bb, err := bus.Connect(context.Background(), bus.Config{URL: c.NATS}, log)
	fail(err)
	n, err := notify.New(notify.Options{Bus: bb, Partitions: 1, Dir: c.State, Config: notify.Config{Rules: c.Rules}, Log: log})
	fail(err)
	fail(os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600))
	fail(n.Run(context.Background()))
}

// Killed at random moments, again and again, notify tells each state of each run under
// one id, and nothing else; what came twice came under the same id.
func TestKilled(t *testing.T) {
	kills, runs := 5, 90
	if testing.Short() {
		kills = 2
	}
	s, err := natsd.Start(natsd.Options{Dir: filepath.Join(t.TempDir(), "js")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	b, err := bus.Connect(t.Context(), bus.Config{URL: s.ClientURL()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if _, err := b.Ensure(t.Context(), bus.Topology{MaxBytes: 512 << 20}); err != nil {
		t.Fatal(err)
	}
	var hits atomic.Int64
	r := receive(t)
	r.reply = func(w http.ResponseWriter, _ *http.Request, n int) {
		hits.Add(1)
		if n%7 == 0 { // some are refused for the moment
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	dir := t.TempDir()
	cfg := childConfig{NATS: s.ClientURL(), State: filepath.Join(dir, "state"), Rules: rulesFile(t, r, `
version: 1
destinations:
  hook: {type: webhook, url: $URL/hook, allow: [127.0.0.1], retry: {ladder: [10ms, 20ms, 50ms, 50ms, 100ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s]}}
rules:
  - {name: all, to: [hook]}
`)}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "child.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}

	want := map[string]bool{}
	published := make(chan struct{})
	go func() { // ends by itself
		defer close(published)
		for i := range runs {
			id := fmt.Sprintf("run-%04d", i)
			switch i % 3 {
			case 0:
				publish(t, b, id, script(id, initLine, prompt, done, "exit 0"))
			case 1:
				publish(t, b, id, script(id, initLine, prompt, failed, "exit 1"))
			case 2:
				publish(t, b, id, script(id, initLine, prompt, askLine("q1", "ls"), askLine("q2", "rm")))
			}
			if i%10 == 0 {
				lost := id + "-lost"
				publish(t, b, lost, script(lost, initLine, prompt))
				fact(t, b, lost, event.TypeLost, "lost-1")
			}
		}
	}()
	for i := range runs {
		id := fmt.Sprintf("run-%04d", i)
		switch i % 3 {
		case 0:
			want[id+" finished"] = true
		case 1:
			want[id+" failed"] = true
		case 2:
			want[id+" waiting 1"], want[id+" waiting 2"] = true, true
		}
		if i%10 == 0 {
			want[id+"-lost lost"] = true
		}
	}

	startChild := func() *exec.Cmd {
		if err := os.Remove(filepath.Join(dir, "ready")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "NOTIFY_TEST_CHILD="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	for range kills {
		cmd := startChild()
		// It dies after some more requests, or while it is still coming up.
		target, deadline := hits.Load()+rand.Int64N(40), time.Now().Add(time.Duration(200+rand.IntN(1500))*time.Millisecond)
		tick := time.NewTicker(time.Millisecond)
		for hits.Load() < target && time.Now().Before(deadline) {
			<-tick.C
		}
		tick.Stop()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	<-published
	cmd := startChild()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	told := func(all []got) map[string]map[string]int {
		m := map[string]map[string]int{}
		asks := map[string]int{}
		for _, g := range all {
			key := g.Run + " " + g.Kind
			if g.Kind == "waiting" {
				if asks[g.ID] == 0 {
					asks[g.Run]++
					asks[g.ID] = asks[g.Run]
				}
				key += fmt.Sprint(" ", asks[g.ID])
			}
			if m[key] == nil {
				m[key] = map[string]int{}
			}
			m[key][g.ID]++
		}
		return m
	}
	var m map[string]map[string]int
	all := r.wait(t, "all states of all runs", func(all []got) bool { m = told(all); return len(m) >= len(want) }, func() {
		for key := range want {
			if m[key] == nil {
				t.Errorf("%s is not told", key)
			}
		}
		p, err := notify.Look(cfg.State)
		t.Logf("state %+v, %v", p, err)
		d, err := notify.Dead(cfg.State)
		t.Logf("dead %+v, %v", d, err)
	})
	again := 0
	for key, ids := range m {
		if !want[key] {
			t.Errorf("%s is told, and should not be", key)
		}
		if len(ids) != 1 {
			t.Errorf("%s has %d ids: %v", key, len(ids), ids)
		}
		for _, n := range ids {
			again += n - 1
		}
	}
	for key := range want {
		if m[key] == nil {
			t.Errorf("%s is not told", key)
		}
	}
	t.Logf("%d states told in %d requests, %d of them again, over %d kills", len(m), len(all), again, kills)
}
