package capture_test

import (
	"bytes"
	"testing"

	"github.com/cbcast/cbcast/test/capture"
)

// Every recording's timeline holds exactly its streams, in order, and ends with
// the exit.
func TestTimelineHoldsEveryByte(t *testing.T) {
	names := capture.List()
	if got, want := len(names), 346; got != want {
		t.Errorf("%d recordings, want %d", got, want)
	}
	for _, name := range names {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		streams := map[capture.Dir]*bytes.Buffer{capture.In: {}, capture.Out: {}, capture.Err: {}}
		for i, e := range c.Timeline {
			if i > 0 && e.At < c.Timeline[i-1].At {
				t.Errorf("%s: entry %d goes back in time", name, i)
			}
			if b := streams[e.Dir]; b != nil {
				b.Write(e.Data)
				if !e.Cut {
					b.WriteByte('\n')
				}
			}
		}
		for dir, want := range map[capture.Dir][]byte{capture.In: c.Stdin, capture.Out: c.Stdout, capture.Err: c.Stderr} {
			if !bytes.Equal(streams[dir].Bytes(), want) {
				t.Errorf("%s: %s differs from the recording", name, dir)
			}
		}
		if last := c.Timeline[len(c.Timeline)-1]; last.Dir != capture.Exit {
			t.Errorf("%s ends with %s", name, last.Dir)
		}
		if len(c.Argv) == 0 {
			t.Errorf("%s has no argv", name)
		}
	}
}
