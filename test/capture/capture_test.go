package capture_test

import (
	"bytes"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

// Every recording's timeline holds exactly its streams, in order, and ends with
// the exit.
func TestTimelineHoldsEveryByte(t *testing.T) {
	names := capture.List()
	if got, want := len(names), 413; got != want {
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

// The events of a recording are numbered without a hole and hold its output.
func TestEvents(t *testing.T) {
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		events := capture.Events(c, "t", "r")
		var out bytes.Buffer
		for i, e := range events {
			if e.Seq != uint64(i+1) || e.Run != "r" || e.Type == "" || e.Kind == "" {
				t.Fatalf("%s: event %d is %+v", name, i, e)
			}
			if e.Stream == event.Out {
				out.Write(e.Data)
				if !e.Cut {
					out.WriteByte('\n')
				}
			}
		}
		if !bytes.Equal(out.Bytes(), c.Stdout) {
			t.Errorf("%s: the events' output differs", name)
		}
		if first, last := events[0].Type, events[len(events)-1].Type; first != event.TypeStarted || last != event.TypeExited {
			t.Errorf("%s: from %s to %s", name, first, last)
		}
	}
}
