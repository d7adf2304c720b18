package consume_test

import (
	"testing"

	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/test/testbus"
)

// Everything is handled in order, by a process and by the one after it; an entry that
// fails holds its run up and no other, and is a dead letter in the end.
func TestConsume(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	publish(t, b, "r1", 100)
	publish(t, b, "r2", 5)
	dir, h := t.TempDir(), newRecorder()
	h.fail = func(run string, n uint64) error {
		if run == "r2" && n == 3 {
			return errNo
		}
		return nil
	}
	c, stop := start(t, consume.Config{Bus: b, Dir: dir, Pause: 1, MaxPause: 1}, h)
	h.wait(t, 104)
	publish(t, b, "r3", 10)
	h.wait(t, 114)
	stop()
	ids, err := c.Dead().IDs()
	if err != nil || len(ids) != 1 {
		t.Fatalf("letters %v, %v", ids, err)
	}
	d, err := c.Dead().Read(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if e, err := d.Raw().Decode(); err != nil || e.Seq != 3 || d.Tries != 8 || d.Reason != "no" || d.Run != "r2" {
		t.Errorf("letter %+v, %v", d, err)
	}

	publish(t, b, "r4", 10)
	c, stop = start(t, consume.Config{Bus: b, Dir: dir}, h)
	got := h.wait(t, 124)
	stop()
	same(t, "handled", map[string][]uint64{"r1": row(1, 100), "r2": {1, 2, 4, 5}, "r3": row(1, 10), "r4": row(1, 10)}, got)
	if st := c.Status(); st.Redelivered > 0 {
		t.Errorf("status %+v", st)
	}
}
