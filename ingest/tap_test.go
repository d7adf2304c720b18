package ingest_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// A tap passes on and publishes what goes through it; there is no exit to see.
func TestTap(t *testing.T) {
	for _, bare := range []bool{false, true} {
		o := options(t)
		o.Dialect, o.Source = dialect.CBC, "tap"
		if bare {
			o.SpoolRoot = "/dev/null/spool"
		}
		inR, inW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		outR, outW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		o.Stdin, o.Stdout = inR, outW
		want := cbc.init() + "\n" + cbc.text("x") + "\n" + cbc.result() + "\nhalf"
		if _, err := io.WriteString(inW, want); err != nil {
			t.Fatal(err)
		}
		inW.Close()
		out, err := ingest.Tap(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		outW.Close()
		got, _ := io.ReadAll(outR)
		equal(t, "passed on", string(got), want)
		inR.Close()
		outR.Close()
		if bare {
			continue
		}
		evs := theWorld.history(t, out.Run)
		equal(t, "published", string(rejoin(t, evs, event.Out)), want)
		x := one[event.Exited](t, evs, event.TypeExited)
		equal(t, "exit", []any{x.Reason, x.Code == nil, x.Complete}, []any{"eof", true, true})
		equal(t, "source", one[event.Started](t, evs, event.TypeStarted).Source, "tap")
	}
}

// A recording that cannot be read to its end is a run that is not complete.
func TestImportFails(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Claude
	in := io.MultiReader(strings.NewReader(claude.init()+"\n"), errReader{})
	out, err := ingest.Import(t.Context(), o, in)
	if err == nil {
		t.Fatal("no error")
	}
	equal(t, "complete", one[event.Exited](t, theWorld.history(t, out.Run), event.TypeExited).Complete, false)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A recording larger than the spool's bound waits for the bus: nothing is lost.
func TestImportWaits(t *testing.T) {
	o := options(t)
	o.Dialect, o.SpoolRunMax = dialect.Claude, 1<<20
	in := strings.Repeat(claude.text(strings.Repeat("z", 8000))+"\n", 1000)
	out, err := ingest.Import(t.Context(), o, strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lost", out.Lost, event.Gap{})
	if got := rejoin(t, theWorld.history(t, out.Run), event.Out); string(got) != in {
		t.Errorf("%d bytes of %d", len(got), len(in))
	}
}
