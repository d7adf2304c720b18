package ingest_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	guuid "github.com/google/uuid"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// A run can be given its id. A second run with it, from another machine, leaves the
// first one's events, entry and presence alone, and says that it was not shipped.
func TestRunIDTwice(t *testing.T) {
	id := guuid.Must(guuid.NewV7()).String()
	o := options(t)
	o.RunID, o.Dialect = id, dialect.Claude
	r := wrap(t, o, streamArgs...)
	out := r.exit(0)
	equal(t, "run", []any{out.Run, out.Shipped}, []any{id, true})
	evs := r.w.history(t, id)
	before, err := r.w.bus.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	again := options(t)
	again.RunID, again.Dialect, again.SpoolRoot = id, dialect.Claude, filepath.Join(t.TempDir(), "spool")
	again.ExitFlush = 2 * time.Second
	r = wrap(t, again, streamArgs...)
	r.raw("{\"type\":\"assistant\"}\n")
	out = r.exit(3)
	equal(t, "the second run", []any{out.Run, out.Shipped, out.Result.Code}, []any{id, false, 3})
	equal(t, "events", len(r.w.history(t, id)), len(evs))
	equal(t, "exit", *one[event.Exited](t, r.w.history(t, id), event.TypeExited).Code, 0)
	after, err := r.w.bus.Run(t.Context(), id)
	if err != nil || !after.Updated.Equal(before.Updated) {
		t.Errorf("the entry is written again: %+v, %v", after, err)
	}
	if alive, err := r.w.bus.Alive(t.Context(), id); err != nil || alive {
		t.Errorf("alive: %v, %v", alive, err)
	}
}

func TestRunIDForm(t *testing.T) {
	v7 := guuid.Must(guuid.NewV7()).String()
	for id, ok := range map[string]bool{
		"": true, v7: true, strings.ToUpper(v7): false, guuid.NewString(): false, "run-1": false, "{" + v7 + "}": false, v7 + " ": false,
	} {
		c := options(t).Config
		c.RunID = id
		if err := c.Validate(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "CBCAST_RUN_ID") {
			t.Errorf("%q: %v", id, err)
		}
	}
}
