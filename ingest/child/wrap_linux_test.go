package child_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/child"
)

// The parent reads no more and says TERM: we end, and the tap has everything.
func TestAbandon(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, nil, "termexit")
	last, same := 0, 0
	poll(t, "pipe to the parent is full", func() bool {
		n, err := unix.IoctlGetInt(int(w.pipe.Fd()), unix.TIOCINQ)
		if same++; n != last || n < 16<<10 {
			last, same = n, 0
		}
		return err != nil || same > 50
	})
	w.Process.Signal(syscall.SIGTERM)
	begin := time.Now()
	ws, got := w.end()
	if took := time.Since(begin); took > child.DrainTime+2*time.Second {
		t.Errorf("ended %v after TERM", took)
	}
	if ws.ExitStatus() != 5 {
		t.Errorf("exit = %d, want 5", ws.ExitStatus())
	}
	if got.Result.Abandoned == 0 {
		t.Error("Abandoned = 0")
	}
	out := got.Tap[child.Out]
	if int64(len(out)) < got.Result.Abandoned || !bytes.HasPrefix(out, []byte("line 0 z")) {
		t.Errorf("tap got %d bytes, %d abandoned", len(out), got.Result.Abandoned)
	}
	for i, l := range bytes.Split(out, []byte("\n")) { // no line is missing or doubled
		if want := fmt.Sprintf("line %d ", i); !bytes.HasPrefix(l, []byte(want)) && len(l) > len(want) {
			t.Fatalf("tapped line %d = %q", i, l)
		}
	}
}
