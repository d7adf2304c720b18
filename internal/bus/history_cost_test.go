package bus_test

import (
	"testing"

	"github.com/cbcast/cbcast/internal/natsd"
)

// What a replay costs is the number of questions, however many other runs there
// are: the run's end, a few events so that the first is there soon, and the rest.
func TestHistoryQuestions(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	fill(t, b, 20, 100)
	for _, c := range []struct {
		after uint64
		want  uint64
	}{{0, 3}, {90, 3}, {100, 1}} {
		r := ref("r7")
		_, first, err := b.FirstKept(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.First = first
		before := b.Conn().Stats().OutMsgs
		n := uint64(0)
		for _, err := range b.History(t.Context(), r, c.after) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if got := b.Conn().Stats().OutMsgs - before; got > c.want || n != 100-c.after {
			t.Errorf("after %d: %d events with %d questions, want %d", c.after, n, got, c.want)
		}
	}
}
