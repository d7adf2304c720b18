package natsd

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestLoggerLevels(t *testing.T) {
	for _, c := range []struct {
		format string
		v      []any
		warns  bool
	}{
		{"Filestore [EV_0] Stream state outdated, last block has additional entries, will rebuild", nil, false},
		{"Filestore [EV_0] Stream state outdated, found extra blocks, will rebuild", nil, false},
		{"Filestore [EV_0] Recovering stream state from index errored: %v", []any{"prior state file"}, false},
		{"Filestore [EV_0] Recovering stream state from index errored: %v", []any{"corrupt state file"}, true},
		{"Filestore [KV_presence] TTL state is outdated; attempting to recover using linear scan (seq %d to %d)", []any{1, 2}, false},
		{"Filestore [EV_0] Stream state checksum did not match", nil, true},
		{"Filestore [EV_0] Stream state detected prior state, could not locate msg block %d", []any{3}, true},
		{"TTL state is outdated; attempting to recover", nil, true}, // another's words
		{"100%% of the disk is used", nil, true},
	} {
		var out bytes.Buffer
		l := newLogger(slog.New(slog.NewTextHandler(&out, nil)))
		l.Warnf(c.format, c.v...)
		if got := out.Len() > 0; got != c.warns {
			t.Errorf("%s %v: logged %q, want a warning: %v", c.format, c.v, out.String(), c.warns)
		}
	}
}

// A store whose owner was killed is served again without a word: the copy is what
// such an owner leaves.
func TestStoreLeftOpenIsQuiet(t *testing.T) {
	dir, left := t.TempDir(), t.TempDir()
	write := func(s *Server, n int) {
		t.Helper()
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}, AllowMsgTTL: true}); err != nil {
			t.Fatal(err)
		}
		for range n {
			if _, err := js.Publish("s", []byte("kept")); err != nil {
				t.Fatal(err)
			}
		}
	}
	serve := func(dir string, log *slog.Logger) *Server {
		t.Helper()
		s, err := Start(Options{Dir: dir, DontListen: true, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	end := func(s *Server) {
		t.Helper()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(dir, nil)
	write(s, 3)
	end(s) // an index of three
	s = serve(dir, nil)
	write(s, 2)
	copyTree(t, dir, left)
	end(s)

	var out, all bytes.Buffer
	s = serve(left, slog.New(slog.NewMultiHandler(
		slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}),
		slog.NewTextHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	end(s)
	if out.Len() > 0 {
		t.Errorf("warnings: %s", out.String())
	}
	if !strings.Contains(all.String(), stale[0]) {
		t.Errorf("the store was not as a killed owner leaves it: %s", all.String())
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
