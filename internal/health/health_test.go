package health

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Who listens beyond this machine is told that everybody can read.
func TestWarnsBeyondLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": false, "[::1]:0": false, "0.0.0.0:0": true, ":0": true} {
		var log bytes.Buffer
		s, err := New(Options{Addr: addr, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil && addr == "[::1]:0" {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "level=WARN"); got != want {
			t.Errorf("%s: warned %v, want %v: %s", addr, got, want, log.String())
		}
	}
}
