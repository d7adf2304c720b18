package metrics

import (
	"time"

	"github.com/cbcast/cbcast/test/capture"
)

// startOf is a moment so many seconds after the recordings' start.
func startOf(seconds int) time.Time { return capture.Start.Add(time.Duration(seconds) * time.Second) }
