package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// watchedRun is a recorder of a Claude child, without a bus.
func watchedRun(t testing.TB, limit int64) (*ingest.Watched, ingest.Options) {
	o := options(t)
	o.Dialect, o.Argv, o.Dial, o.SpoolRunMax = dialect.Claude, append([]string{"claude"}, streamArgs...), nil, limit
	return ingest.NewWatched(t, o, &leaver{exited: make(chan struct{})}), o
}

// shape is what is compared of an event: all but its time.
type shape struct{ Type, Kind, Session, Task, Notes, Data string }

func shapes(evs []*event.Event) (all []shape) {
	for _, e := range evs {
		s := shape{e.Type, string(e.Kind), e.Session, e.Task, fmt.Sprint(e.Ext, e.Cut, e.Chunk, e.Redacted), string(e.Data)}
		if e.Type == event.TypeStarted || e.Type == event.TypeExited {
			s.Data = "" // durations
		}
		all = append(all, s)
	}
	return all
}

// However the output is cut into reads, the same is recorded and folded as when
// each line comes alone; facts of others and of the lines themselves stand where
// they belong.
func TestBatchIsLineByLine(t *testing.T) {
	big := `{"type":"user","x":"` + strings.Repeat("y", 600_000) + `"}`
	lines := []string{
		claude.text("before the session is known"), "no frame", claude.init(), claude.text("one"), claude.started("t-1", "local_agent"),
		"", "sk-ant-REDACTED", claude.notified("t-1", "completed"), big, claude.text("two"),
		`{"type":"conversation_reset","new_conversation_id":"s-other"}`, claude.text("three"), `{"type":"user","type":"user"}`, claude.result(),
	}
	for i := range 3 * ingest.BatchLines {
		lines = append(lines, claude.text(fmt.Sprint("more ", i)))
	}
	lines = append(lines, claude.text(strings.Repeat("z", ingest.BatchBytes)), claude.result(), "tail")
	all := strings.Join(lines, "\n") + "\n"
	record := func(reads []string) ([]shape, string) {
		w, o := watchedRun(t, 1<<30)
		read := w.Reader()
		rest := len(all) / 2
		for _, r := range reads {
			read(r)
			if rest -= len(r); rest <= 0 && rest+len(r) > 0 {
				w.Fact("between")
			}
		}
		st := w.State()
		folded, err := json.Marshal([]any{st.Open(), st.TurnsEnded(), st.OpenTasks(), st.TaskStatus("t-1"), st.LastTurnAborted()})
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		return shapes(kept(t, o.SpoolRoot, w.Run())), string(folded)
	}
	cut := strings.Index(all[len(all)/2:], "\n") + 1 + len(all)/2
	var single []string
	for l := range strings.SplitAfterSeq(all, "\n") {
		single = append(single, l)
	}
	want, wantState := record(single)
	if n := len(want); n < len(lines)+6 {
		t.Fatalf("%d events of %d lines", n, len(lines))
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, most := range []int{len(all), 256 << 10, 20_000, 300} {
		var reads []string
		for _, half := range []string{all[:cut], all[cut:]} {
			for len(half) > 0 {
				n := min(len(half), 1+rnd.IntN(most))
				reads, half = append(reads, half[:n]), half[n:]
			}
		}
		got, gotState := record(reads)
		// The fact stands behind the line that was complete when it came.
		between := func(s shape) bool { return s.Type == event.TypeStalled }
		if !slices.ContainsFunc(got, between) {
			t.Errorf("reads of up to %d: no fact", most)
		}
		if d := cmp.Diff(slices.DeleteFunc(slices.Clone(want), between), slices.DeleteFunc(got, between)); d != "" {
			t.Errorf("reads of up to %d: %.2000s", most, d)
		}
		equal(t, "state", gotState, wantState)
	}
}

// A batch that does not fit is kept as far as it does: each gap says exactly
// which lines are missing where it stands.
func TestBatchFull(t *testing.T) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w, o := watchedRun(t, 512<<10)
		read := w.Reader()
		var lines []string
		for i := range 1500 {
			size := rnd.IntN(1500)
			if i > 900 {
				size = rnd.IntN(60) // some fit where others do not
			}
			lines = append(lines, fmt.Sprintf(`{"type":"user","n":%d,"x":"%s"}`, i, strings.Repeat("y", size)))
		}
		for part := range slices.Chunk(lines, 1+rnd.IntN(200)) {
			read(strings.Join(part, "\n") + "\n")
		}
		w.Close()
		next, whole := 0, 0
		var gone event.Gap
		for _, e := range kept(t, o.SpoolRoot, w.Run()) {
			if e.Type == event.TypeGap {
				var g event.Gap
				if err := json.Unmarshal(e.Data, &g); err != nil {
					t.Fatal(err)
				}
				if gone.Frames != 0 {
					t.Fatalf("two gaps in a row: %+v, %+v", gone, g)
				}
				gone = g
				continue
			}
			if e.Stream != event.Out && e.Type != event.TypeExited {
				continue
			}
			n := len(lines)
			if e.Stream == event.Out {
				var f struct{ N int }
				if err := json.Unmarshal(e.Data, &f); err != nil || string(e.Data) != lines[f.N] {
					t.Fatalf("line %d is not what was read, %v", f.N, err)
				}
				n = f.N
				whole++
			}
			var missing event.Gap
			for _, l := range lines[next:n] {
				missing.Frames++
				missing.Bytes += int64(len(l) + 1)
			}
			if gone.Frames != missing.Frames || gone.Bytes != missing.Bytes {
				t.Fatalf("before line %d: gap of %d lines, %d bytes; missing are %d, %d", n, gone.Frames, gone.Bytes, missing.Frames, missing.Bytes)
			}
			next, gone = n+1, event.Gap{}
		}
		if whole < 300 || whole == len(lines) {
			t.Errorf("%d lines of %d kept", whole, len(lines))
		}
	}
}

// Who watches sees a line when it is kept, and sees the run as of this line where
// it may act on it.
func TestBatchKeepsFirst(t *testing.T) {
	const n = 10
	for _, busy := range []bool{false, true} {
		w, _ := watchedRun(t, 1<<30)
		var seen []string
		first := uint64(2) // behind the start
		w.Watch(func() bool { return busy }, func(data string, keptTo, folded uint64) {
			at := first + uint64(len(seen))
			equal(t, "folded", folded, at)
			if want := map[bool]uint64{false: first + n - 1, true: at}[busy]; keptTo != want {
				t.Errorf("busy %t, line %d: %d events kept, want %d", busy, len(seen), keptTo, want)
			}
			seen = append(seen, data)
		})
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf(`{"type":"user","n":%d}`, i))
		}
		w.Reader()(strings.Join(lines, "\n") + "\n")
		if d := cmp.Diff(lines, seen); d != "" {
			t.Error(d)
		}
		w.Watch(nil, func(string, uint64, uint64) {})
		w.Close()
	}
}
