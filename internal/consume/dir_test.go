package consume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A directory that is in use is known before anything is begun, and by whom.
func TestFree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "notify")
	if err := Free(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made by looking")
	}
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var used *DirUsedError
	if err := Free(dir); !errors.As(err, &used) || !errors.Is(err, ErrDirUsed) || used.PID != os.Getpid() || used.Dir != dir {
		t.Errorf("got %v", err)
	}
	unlock()
	if err := Free(dir); err != nil {
		t.Error(err)
	}
}

// A consumer that does not run has the metric that an alert looks at.
func TestAbsent(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Absent("cbcast-x"))
	got, err := reg.Gather()
	if err != nil || len(got) != 1 || got[0].GetName() != "cbcast_consumer_ready" || got[0].GetMetric()[0].GetGauge().GetValue() != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
