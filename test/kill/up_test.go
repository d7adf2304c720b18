package kill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Programs of up that fail end nothing: they are shown, with the reason, and begin as
// soon as they can.
func TestUpWithBrokenParts(t *testing.T) {
	dir := t.TempDir()
	rules, key := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "key.pem")
	if err := os.WriteFile(rules, []byte(strings.ReplaceAll(rulesText, "URL", "http://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "up", "notify") // where it has its state there is a file
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir}
	up := w.part("up", "CBCAST_NATS_URL=", "CBCAST_RELAY_ADDR=127.0.0.1:0", "CBCAST_NOTIFY_RULES="+rules,
		"CBCAST_ARCHIVE_DEST="+filepath.Join(dir, "kept"), "CBCAST_ARCHIVE_SIGNING_KEY_FILE="+key) // which is not there
	up.start()
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(long); !ok(); {
			if up.ended() || time.Now().After(deadline) {
				t.Fatalf("not %s; readyz says\n%s", what, up.get("/readyz"))
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	has := func(path string, lines ...string) func() bool {
		return func() bool {
			text := up.get(path)
			for _, l := range lines {
				if !strings.Contains(text, l+"\n") {
					return false
				}
			}
			return true
		}
	}
	until("ready beside what is broken", has("/readyz", "ok", "metrics: ok"))
	until("saying why", func() bool {
		text := up.get("/readyz")
		return strings.Contains(text, "archive: not ready: ") && strings.Contains(text, key) && strings.Contains(text, "notify: not ready: ") && strings.Contains(text, state)
	})
	until("counting", has("/metrics", `cbcast_consumer_ready{consumer="cbcast-metrics"} 1`, `cbcast_consumer_ready{consumer="cbcast-notify"} 0`,
		"cbcast_relay_ready 1"))

	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(up.env, "archive", "keygen", "--out", key); err != nil {
		t.Fatal(err)
	}
	until("whole", has("/readyz", "archive: ok", "metrics: ok", "notify: ok"))
	until("showing all", has("/metrics", `cbcast_consumer_ready{consumer="cbcast-archive"} 1`, `cbcast_consumer_ready{consumer="cbcast-notify"} 1`))
	up.stop()
}
