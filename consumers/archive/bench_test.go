package archive

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
)

// BenchmarkKeep is what the archive adds to reading: an event of 4 KiB appended and
// sealed in a directory.
func BenchmarkKeep(b *testing.B) {
	r := &rig{dir: b.TempDir(), sent: map[string]*run{}}
	r.cfg = Config{
		Dest: b.TempDir() + "/archive", SealBytes: 64 << 20, SealAge: time.Minute, HeadsBehind: 100, OpenSegments: 64,
		Memory: 32 << 20, Window: 50_000,
	}
	if err := NewKey(r.cfg.SigningFile(r.dir)); err != nil {
		b.Fatal(err)
	}
	k := r.keeperOf(b, "a")
	text := bytes.Repeat([]byte(`{"type":"assistant","message":{"content":[{"type":"text","text":"line of some words and numbers 123456"}]}}`), 40)[:4096]
	runs := make([]*run, 200)
	for i := range runs {
		runs[i] = &run{tenant: tenant, id: fmt.Sprintf("01890a5d-ac96-774b-bcce-b302099a%04d", i)}
		runs[i].data = func(n uint64) *event.Event {
			return &event.Event{
				Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, ContentType: event.JSON,
				Session: "01890a5d-ac96-774b-bcce-b302099a8057", Data: append(fmt.Appendf(nil, "%d", n), text...),
			}
		}
	}
	at := bus.Place{Time: time.Now().UTC()}
	entries := make([]*consume.Entry, b.N)
	for i := range entries {
		at.Seq, at.Time = at.Seq+1, at.Time.Add(time.Microsecond)
		entries[i] = entryOf(bus.Entry{Event: runs[i%len(runs)].ev(uint64(i/len(runs) + 1)), At: at})
	}
	b.SetBytes(4096)
	b.ReportAllocs()
	b.ResetTimer()
	for i, e := range entries {
		if err := k.Handle(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		if i%2000 == 1999 {
			if _, err := k.Commit(b.Context(), false); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := k.Commit(b.Context(), true); err != nil {
		b.Fatal(err)
	}
}
