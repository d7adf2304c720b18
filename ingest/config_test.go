package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
)

// Of several settings that are wrong the same one is named each time.
func TestConfigNamesTheSame(t *testing.T) {
	c := ingest.Config{Tenant: "default", CaptureStdin: "control", SpoolRunMax: 1 << 30, ExitFlush: -time.Second, KillAfterResult: -1, StallAfter: -1}
	for range 50 {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "CBCAST_EXIT_FLUSH") {
			t.Fatalf("%v, want CBCAST_EXIT_FLUSH", err)
		}
	}
}
