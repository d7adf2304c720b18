package child_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/child"
)

func TestTapOrder(t *testing.T) {
	tap := child.NewTap(0)
	buf := []byte("a1") // the pump's, used again
	tap.Add(child.Out, buf)
	copy(buf, "b2")
	tap.Add(child.In, buf)
	copy(buf, "c3")
	tap.Add(child.Err, buf)
	tap.EOF(child.Out)
	tap.CloseAll()
	var got []string
	for {
		c, err := tap.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if c.At.IsZero() {
			t.Error("chunk without a time")
		}
		got = append(got, string(c.Stream)+" "+string(c.Data))
	}
	if diff := cmp.Diff([]string{"out a1", "in b2", "err c3", "out "}, got); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

func TestTapNextContext(t *testing.T) {
	why := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := child.NewTap(0).Next(ctx); !errors.Is(err, why) {
		t.Errorf("Next = %v, want the cause", err)
	}
}

// Past the bound bytes are dropped and counted, until the queue is half empty;
// another stream is not touched.
func TestTapBound(t *testing.T) {
	const limit = 100 << 10
	tap := child.NewTap(limit)
	p := append(bytes.Repeat([]byte("x"), 1023), '\n')
	kept := 0
	for tap.Add(child.Out, p) {
		kept++
	}
	dropped := int64(1)
	for range 9 {
		tap.Add(child.Out, p)
		dropped++
	}
	if !tap.Add(child.Err, p) {
		t.Error("stderr was dropped with stdout")
	}
	if kept < 80 || kept > 100 {
		t.Errorf("kept %d KiB of a bound of 100", kept)
	}
	for range 3 { // not yet half empty
		tap.Next(t.Context())
	}
	if tap.Add(child.Out, p) {
		t.Error("taken before the queue was half empty")
	}
	dropped++
	for range kept - 3 {
		tap.Next(t.Context())
	}
	tap.Add(child.Out, []byte("later\n"))
	tap.Next(t.Context()) // stderr's
	c, err := tap.Next(t.Context())
	if string(c.Data) != "later\n" || c.Dropped != dropped<<10 || c.DroppedLines != dropped || err != nil {
		t.Errorf("chunk = %q, Dropped %d, lines %d, %v; want %d KiB", c.Data, c.Dropped, c.DroppedLines, err, dropped)
	}
	tap.Add(child.Out, []byte("and on\n"))
	if c, _ := tap.Next(t.Context()); c.Dropped != 0 {
		t.Errorf("Dropped = %d again", c.Dropped)
	}
}

// One-byte chunks are bounded by what they cost, not by their bytes.
func TestTapSmallChunks(t *testing.T) {
	tap := child.NewTap(100 << 10)
	n := 0
	for tap.Add(child.Out, []byte{'x'}) {
		n++
	}
	if n > 1000 {
		t.Errorf("took %d chunks of one byte in 100 KiB", n)
	}
}

// What was dropped last is told with EOF.
func TestTapDropAtEnd(t *testing.T) {
	tap := child.NewTap(1000)
	tap.Add(child.Out, make([]byte, 500))
	tap.Add(child.Out, make([]byte, 700))
	tap.EOF(child.Out)
	tap.Next(t.Context())
	if c, _ := tap.Next(t.Context()); !c.EOF || c.Dropped != 700 {
		t.Errorf("last chunk: EOF %v, Dropped %d; want true, 700", c.EOF, c.Dropped)
	}
}

// Nobody reads the tap: the child and its parent notice nothing.
func TestTapNotRead(t *testing.T) {
	t.Parallel()
	cfg := config("cat")
	cfg.TapMax = 256 << 10
	p := launch(t, cfg)
	want := bytes.Repeat([]byte("0123456789abcde\n"), 4<<20/16)
	go func() { p.stdin.Write(want); p.stdin.Close() }()
	if got := p.rest(); got != string(want) {
		t.Errorf("parent got %d bytes, want %d", len(got), len(want))
	}
	res := p.Wait()
	var got, dropped int64
	for {
		c, err := p.Tap().Next(t.Context())
		if err != nil {
			break
		}
		if c.Stream == child.Out {
			got, dropped = got+int64(len(c.Data)), dropped+c.Dropped
		}
	}
	if got+dropped != int64(len(want)) || dropped == 0 || dropped != res.Out.Dropped {
		t.Errorf("tap: %d bytes, %d dropped, Result says %d; want %d in all", got, dropped, res.Out.Dropped, len(want))
	}
}
