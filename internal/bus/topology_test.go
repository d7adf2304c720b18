package bus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

func TestEnsureAndPlan(t *testing.T) {
	b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true})})
	tp := bus.Topology{Partitions: 2, MaxBytes: 100 << 20}
	plan, err := b.Plan(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	want := []bus.Change{{Stream: "EV_0"}, {Stream: "EV_1"}, {Stream: "CMD"}, {Stream: "CTL"}, {Stream: "KV_runs"}, {Stream: "KV_presence"}, {Stream: "KV_sessions"}}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("plan of nothing: %s", diff)
	}
	for range 2 { // the second call finds everything
		if drift, err := b.Ensure(t.Context(), tp); err != nil || drift != nil {
			t.Fatalf("Ensure = %v, %v", drift, err)
		}
	}
	update(t, b, "EV_1", func(cfg map[string]any) { cfg["max_bytes"] = 50 << 20 })
	tp.MaxAge = 24 * time.Hour
	drift, err := b.Ensure(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	want = []bus.Change{
		{"EV_0", "max_age", "24h0m0s", "168h0m0s"},
		{"EV_1", "max_age", "24h0m0s", "168h0m0s"},
		{"EV_1", "max_bytes", "104857600", "52428800"},
		{"CTL", "max_age", "24h0m0s", "168h0m0s"},
	}
	if diff := cmp.Diff(want, drift); diff != "" {
		t.Error(diff)
	}
	// Case 081: nothing is without a bound in bytes, and none was altered.
	for stream, bytes := range map[string]float64{
		"EV_0": 100 << 20, "EV_1": 50 << 20, "CMD": 32 << 20, "CTL": 64 << 20, "KV_runs": 64 << 20, "KV_presence": 16 << 20,
	} {
		var info struct {
			Config map[string]any `json:"config"`
		}
		api(t, b, "STREAM.INFO."+stream, nil, &info)
		if got := info.Config["max_bytes"]; got != bytes {
			t.Errorf("%s: max_bytes %v, want %v", stream, got, bytes)
		}
	}
}

// Many processes start at once on one machine.
func TestEnsureTogether(t *testing.T) {
	s := serve(t, natsd.Options{DontListen: true})
	errs := make(chan error, 8)
	for range cap(errs) {
		b := connect(t, bus.Config{InProcess: s})
		go func() {
			_, err := b.Ensure(t.Context(), topology)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The local store fits the server it is made for.
func TestLocalTopology(t *testing.T) {
	for _, size := range []int64{64 << 20, 256 << 20, 1 << 30, 8 << 30} {
		b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true, MaxStore: size})})
		if drift, err := b.Ensure(t.Context(), bus.Local(size)); err != nil || drift != nil {
			t.Errorf("%d MiB: %v, %v", size>>20, drift, err)
		}
	}
}
