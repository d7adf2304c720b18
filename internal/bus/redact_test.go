package bus_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

func TestRedactURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                           "",
		"nats://a:1,tls://b":         "nats://a:1,tls://b",
		"nats://u:SECRET@a:1,b:2":    "nats://u:xxxxx@a:1,b:2",
		"nats://SECRET@a:1":          "nats://xxxxx@a:1", // a token
		"u:SECRET@a:1":               "nats://u:xxxxx@a:1",
		"nats://u:SEC/RET@a:1":       "nats://xxxxx@a:1",
		"nats://u:SEC@RET@a:1":       "nats://u:xxxxx@a:1",
		"nats://u:SECRET@bad host:9": "nats://xxxxx@bad host:9",
		"nats://u:SECRET\x1b@a":      "nats://xxxxx@a",
	} {
		if got := bus.RedactURL(url); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// A URL that cannot be read is not told by the error about it, or in the log.
func TestUnreadableURL(t *testing.T) {
	for _, url := range []string{"nats://u:SECRET@bad host", "nats://u:SECRET/1@a", "nats://u:SECRET\x1b@a"} {
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		b, err := bus.Connect(ctx, bus.Config{URL: url}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		cancel()
		if err == nil {
			b.Close()
			t.Fatalf("%q: connected", url)
		}
		if strings.Contains(err.Error(), "SECRET") || strings.Contains(log.String(), "SECRET") {
			t.Errorf("%q: %v\n%s", url, err, log.String())
		}
	}
}
