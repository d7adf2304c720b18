package segment_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// day is the day of most records, in the past: its segments are due at once.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// newKey makes a signing key.
func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	private, _, err := segment.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := segment.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// openStore opens a directory as a store.
func openStore(t testing.TB, path string) *segment.Dir {
	t.Helper()
	d, err := segment.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rig is an archive in a directory.
type rig struct {
	testing.TB
	segment.Options
	key ed25519.PrivateKey
	a   *segment.Archive
	seq uint64 // of the stream
	run map[string]uint64
	all []*segment.Record
}

func newRig(t testing.TB) *rig {
	t.Helper()
	key := newKey(t)
	r := &rig{TB: t, key: key, run: map[string]uint64{}}
	r.Options = segment.Options{
		Store: newMem(), Keys: newMem(), Dir: tempDir(t),
		Signer: func() (ed25519.PrivateKey, error) { return r.key, nil },
	}
	return r
}

func (r *rig) open() *segment.Archive {
	r.Helper()
	a, err := segment.Open(r.Context(), r.Options)
	if err != nil {
		r.Fatal(err)
	}
	r.a = a
	r.Cleanup(func() { a.Close() })
	return a
}

// next makes a run's next event as the bus has it.
func (r *rig) next(tenant, run string) *segment.Record {
	r.seq++
	r.run[tenant+"/"+run]++
	seq := r.run[tenant+"/"+run]
	e := &event.Event{
		Tenant: tenant, Run: run, Seq: seq, Time: day.Add(time.Duration(r.seq) * time.Second), Type: "dev.cbcast.claude.assistant",
		Kind: event.Msg, Stream: event.Out, Session: "s-" + run, ContentType: event.JSON,
		Data: fmt.Appendf(nil, `{"type":"assistant","n":%d,"text":"%s"}`, seq, strings.Repeat("word ", int(seq%7))),
	}
	rec := segment.NewRecord(0, e, subject.Event{Tenant: tenant, Run: run, Session: e.Session, Kind: "msg"}.String(),
		headers(e), e.Data, r.seq, e.Time.Add(time.Millisecond))
	r.all = append(r.all, rec)
	return rec
}

func headers(e *event.Event) (h [][2]string) {
	e.Attributes(func(name, value string) { h = append(h, [2]string{"ce-" + name, event.EncodeValue(value)}) })
	return append(h, [2]string{"Nats-Msg-Id", e.ID()})
}

func (r *rig) add(recs ...*segment.Record) {
	r.Helper()
	for _, rec := range recs {
		if got, err := r.a.Append(r.Context(), rec); err != nil || got != segment.New {
			r.Fatalf("append %s/%d: %v, %v", rec.Run, rec.Seq, got, err)
		}
	}
}

func (r *rig) seal() []*segment.Head {
	r.Helper()
	heads, err := r.a.Seal(r.Context(), 0)
	if err != nil {
		r.Fatal(err)
	}
	return heads
}

func (r *rig) reader() *segment.Reader {
	return segment.NewReader(segment.ReaderOptions{
		Store: r.Store, Keys: r.Keys, Wrap: r.Wrap, Trust: []ed25519.PublicKey{public(r.key)},
	})
}

// read collects records.
func (r *rig) read(q segment.Query) []*segment.Record {
	r.Helper()
	var out []*segment.Record
	for rec, err := range r.reader().Records(context.Background(), q) {
		if err != nil {
			r.Fatalf("read %+v: %v", q, err)
		}
		out = append(out, rec)
	}
	return out
}
