package segment_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// TestMidnight is case 119: the day is that of the stream's clock in UTC, wherever the machine
// is, and the names say so.
func TestMidnight(t *testing.T) {
	was := time.Local
	time.Local = time.FixedZone("Asia/Shanghai", 8*3600)
	defer func() { time.Local = was }()
	r := newRig(t)
	a := r.open()
	for _, at := range []string{"2026-03-01T15:59:59Z", "2026-03-01T16:00:00Z", "2026-03-01T23:59:59.999999999Z", "2026-03-02T00:00:00Z"} {
		rec := r.next("acme", "r1")
		// The edge's clock is two seconds behind; the stream's decides.
		rec.Stored = must(time.Parse(time.RFC3339Nano, at)).In(time.Local)
		r.add(rec)
	}
	heads := r.seal()
	var got []string
	for _, h := range heads {
		got = append(got, h.Segment.Day, strings.TrimPrefix(h.Segment.Name, "t/acme/segments/")[:32])
	}
	want := []string{
		"2026-03-01Z", "2026-03-01Z/155959.000000000Z-"[:30],
		"2026-03-02Z", "2026-03-02Z/000000.000000000Z-"[:30],
	}
	for i := 1; i < len(got); i += 2 {
		got[i] = got[i][:30]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if heads[0].Segment.Records != 3 || heads[1].Segment.Records != 1 {
		t.Errorf("got %+v, %+v", heads[0].Segment, heads[1].Segment)
	}
	recs := r.read(segment.Query{Run: "r1", Since: day.Add(16 * time.Hour), Until: day.Add(24 * time.Hour)})
	if len(recs) != 2 || recs[0].Stored.Location() != time.UTC || recs[1].Stored.Nanosecond() != 999999999 {
		t.Errorf("got %d records", len(recs))
	}
	if segment.Day(r.all[3].Stored) != "2026-03-02Z" || segment.Day(time.Unix(-1, 0)) != "1969-12-31Z" {
		t.Error("days")
	}
	if s := a.Stats(); s.Records != 4 || s.Sealed != 2 || s.Open != 0 || s.Held != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestAgain: what comes again from the bus is told apart from what is new.
func TestAgain(t *testing.T) {
	r := newRig(t)
	a := r.open()
	for range 5 {
		r.add(r.next("acme", "a"))
	}
	try := func(want segment.Added, rec *segment.Record) {
		t.Helper()
		if got, err := a.Append(t.Context(), rec); err != nil || got != want {
			t.Errorf("seq %d at %d: got %v, %v, want %v", rec.Seq, rec.StreamSeq, got, err, want)
		}
	}
	try(segment.Already, r.all[2])
	r.seal()
	try(segment.Already, r.all[4])
	for range 2 { // the stream lost its end, and the edge sent it again
		lost := *r.all[3]
		lost.StreamSeq, lost.Stored = 3, r.all[4].Stored.Add(time.Hour)
		try(segment.Again, &lost)
		a = r.open() // another process finds out in the index
	}
	r.run["acme/a"] += 2
	gap := r.next("acme", "a")
	gap.Stored = gap.Stored.Add(2 * time.Hour)
	try(segment.New, gap)
	part := r.next("acme", "a")
	part.Stored = part.Stored.Add(2 * time.Hour)
	part.Part = event.Part{I: 1, N: 2}
	try(segment.New, part)
	second := *part
	second.StreamSeq++
	second.Part.I = 2
	try(segment.New, &second)
	if s := a.Stats(); s.Holes != 1 || s.Again != 0 {
		t.Errorf("got %+v", s)
	}
	r.seal()
	rep := verifyDeep(r)
	if len(rep.Findings) != 1 || rep.Findings[0].Code != segment.Hole || rep.Findings[0].First != 6 || rep.Findings[0].Last != 7 {
		t.Errorf("got %+v", rep.Findings)
	}
}

// TestBounds: what is past a bound is refused, or makes a new segment.
func TestBounds(t *testing.T) {
	r := newRig(t)
	r.Runs, r.Open = 2, 3
	a := r.open()
	for _, run := range []string{"a", "b", "c", "d", "e", "f"} {
		r.add(r.next("acme", run))
	}
	if _, err := a.Append(t.Context(), r.next("acme", "g")); !errors.Is(err, segment.ErrFull) {
		t.Errorf("got %v", err)
	}
	if s := a.Stats(); s.Open != 3 || s.Oldest.IsZero() || s.Held == 0 {
		t.Errorf("got %+v", s)
	}
	if got := a.Through(); len(got) != 0 {
		t.Errorf("sealed up to %v", got)
	}
	if heads := must(a.Seal(t.Context(), time.Hour)); len(heads) != 3 {
		t.Errorf("sealed %d", len(heads))
	}
	r.add(r.all[6])
	p := a.Through()[0]
	if p.Seq != 6 {
		t.Errorf("sealed up to %v", p)
	}
	bad := func(change func(rec *segment.Record)) {
		t.Helper()
		rec := *r.all[0]
		change(&rec)
		if _, err := a.Append(t.Context(), &rec); !errors.Is(err, segment.ErrRecord) {
			t.Errorf("got %v", err)
		}
	}
	bad(func(rec *segment.Record) { rec.Log = -3 })
	bad(func(rec *segment.Record) { rec.Run = strings.Repeat("x", 5000) })
	bad(func(rec *segment.Record) { rec.Subject = strings.Repeat("x", 70000) })
	bad(func(rec *segment.Record) { rec.Data = make([]byte, segment.MaxRecord) })
	bad(func(rec *segment.Record) { rec.Stored = time.Time{} })
	bad(func(rec *segment.Record) { rec.Part.I = -1 })
	bad(func(rec *segment.Record) { rec.Header = [][2]string{{strings.Repeat("x", 70000), ""}} })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), r.all[0]); err == nil {
		t.Error("append after close")
	}
	if a.Sync(t.Context()) == nil {
		t.Error("sync after close")
	}
	if _, err := a.Seal(t.Context(), 0); err == nil {
		t.Error("seal after close")
	}
}

// TestRolledBack: an archiver does not go on behind a chain that is shorter than it was, or
// another one.
func TestRolledBack(t *testing.T) {
	r := newRig(t)
	r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	early := r.Store.(*mem).clone()
	r.add(r.next("acme", "a"))
	r.seal()
	r.Store.(*mem).m = early.m
	next := r.next("acme", "a")
	r.add(next)
	if _, err := r.a.Seal(t.Context(), 0); !errors.Is(err, segment.ErrRolledBack) {
		t.Errorf("got %v", err)
	}
	r.a.Close()
	// The next process has it in its files, and finds out at once.
	if err := r.open().Aside()["acme"]; !errors.Is(err, segment.ErrRolledBack) {
		t.Errorf("got %v", err)
	}
	if _, err := r.a.Append(t.Context(), next); !errors.Is(err, segment.ErrRolledBack) {
		t.Errorf("got %v", err)
	}
	r.a.Close()
	r.Dir = tempDir(t)
	r.seq, r.run = 1, map[string]uint64{"acme/a": 1}
	r.open()
	r.add(r.next("acme", "a"))
	r.seal()
}

// TestAnother: two archivers, of which one took over. What the other has unsealed is dropped,
// whether it finds out while it runs or when it starts again.
func TestAnother(t *testing.T) {
	r := newRig(t)
	first := r.open()
	firstDir := r.Dir
	r.add(r.next("acme", "a"), r.next("acme", "a"))
	if err := first.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Dir = tempDir(t)
	second := r.open()
	for _, rec := range r.all {
		r.add(rec)
	}
	r.seal()
	if _, err := first.Seal(t.Context(), 0); !errors.Is(err, segment.ErrAnother) {
		t.Errorf("got %v", err)
	}
	if _, err := first.Append(t.Context(), r.all[0]); !errors.Is(err, segment.ErrAnother) {
		t.Errorf("got %v", err)
	}
	first.Close()
	r.Dir = firstDir
	third := r.open()
	if got := must(third.Append(t.Context(), r.all[1])); got != segment.Already {
		t.Errorf("got %v", got)
	}
	r.add(r.next("acme", "a"))
	if err := third.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	third.Close()
	r.a = second
	r.add(r.all[2])
	r.seal()
	r.Dir = firstDir
	r.open() // with a file that the chain has by another archiver
	r.add(r.next("acme", "a"))
	r.seal()
	r.whole("at the end")
}

// TestEraseBeside: a run is erased by another process while its segment is being sealed.
func TestEraseBeside(t *testing.T) {
	r := newRig(t)
	r.open()
	r.add(r.next("acme", "a"), r.next("acme", "b"))
	r.seal()
	r.add(r.next("acme", "a"), r.next("acme", "b"))
	o := r.Options
	o.Dir = tempDir(t)
	other := must(segment.Open(t.Context(), o))
	defer other.Close()
	erased := false
	r.Store.(*mem).fail = func(op, key string) error {
		if op == "create" && strings.HasSuffix(key, ".seg") && !erased {
			erased = true
			st := r.Store.(*mem)
			st.mu.Unlock()
			defer st.mu.Lock()
			_, err := other.Erase(context.Background(), "acme", "a", "dpo", "request")
			return err
		}
		return nil
	}
	r.seal()
	r.Store.(*mem).fail = nil
	rep := verifyDeep(r)
	if !erased || !rep.OK() || len(rep.Findings) != 1 || rep.Findings[0].Code != segment.FromErased {
		t.Errorf("got %+v", rep.Findings)
	}
	if _, err := other.Erase(t.Context(), "acme", "a", "dpo", "again"); err != nil {
		t.Error(err)
	}
}

// TestHolds: what is held is neither erased nor deleted.
func TestHolds(t *testing.T) {
	r := newRig(t)
	a := r.open()
	for _, run := range []string{"a", "b", "c"} {
		r.add(r.next("acme", run))
		r.seal()
	}
	end := r.all[2].Stored.Add(time.Hour)
	must(a.Hold(t.Context(), "acme", "b", "one", "counsel", "lawsuit"))
	if _, err := a.Hold(t.Context(), "acme", "b", "one", "counsel", "lawsuit"); err == nil {
		t.Error("a second hold of the name")
	}
	if _, err := a.Hold(t.Context(), "acme", "b", "", "counsel", "lawsuit"); err == nil {
		t.Error("a hold without a name")
	}
	h := must(a.Retain(t.Context(), "acme", end, "archive", "time"))
	if d := cmp.Diff([]uint64{1, 3}, h.Statement.Segments); d != "" {
		t.Error(d)
	}
	must(a.Hold(t.Context(), "acme", "", "all", "counsel", "audit"))
	if _, err := a.Retain(t.Context(), "acme", end, "archive", "time"); !errors.Is(err, segment.ErrHeld) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Erase(t.Context(), "acme", "c", "dpo", "x"); !errors.Is(err, segment.ErrHeld) {
		t.Errorf("got %v", err)
	}
	holds := must(a.Holds(t.Context(), "acme"))
	if len(holds) != 2 || holds[0].Hold != "all" || holds[1].Run != "b" {
		t.Errorf("got %+v", holds)
	}
	for _, id := range []string{"all", "one"} {
		must(a.Release(t.Context(), "acme", id, "counsel", "over"))
	}
	if _, err := a.Release(t.Context(), "acme", "one", "counsel", "over"); !errors.Is(err, segment.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	// Another process knows the same.
	a.Close()
	r.Dir = tempDir(t)
	a = r.open()
	if h := must(a.Retain(t.Context(), "acme", end, "archive", "time")); len(h.Statement.Segments) != 1 {
		t.Errorf("got %+v", h)
	}
	if h := must(a.Retain(t.Context(), "acme", end, "archive", "time")); h != nil {
		t.Errorf("got %+v", h)
	}
	var gone *segment.GoneError
	for _, err := range r.reader().Records(t.Context(), segment.Query{Tenant: "acme"}) {
		if !errors.As(err, &gone) || gone.Head == nil || !strings.Contains(err.Error(), "deleted") {
			t.Errorf("got %v", err)
		}
	}
	rep := must(segment.Verify(t.Context(), segment.VerifyOptions{Store: r.Store, Trust: []ed25519.PublicKey{public(r.key)}}))
	if !rep.OK() {
		t.Errorf("got %+v", rep.Findings)
	}
}

// TestRotation: heads are signed by the new key after the change, and the first public key
// verifies all.
func TestRotation(t *testing.T) {
	r := newRig(t)
	r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	old, next := r.key, newKey(t)
	if _, err := segment.Rotate(t.Context(), r.Store, next, old, "me"); !errors.Is(err, segment.ErrSigner) {
		t.Errorf("got %v", err)
	}
	s := must(segment.Rotate(t.Context(), r.Store, old, next, "me"))
	if s.Number != 2 || !s.Public().Equal(public(next)) {
		t.Errorf("got %+v", s)
	}
	r.add(r.next("acme", "a"))
	if _, err := r.a.Seal(t.Context(), 0); !errors.Is(err, segment.ErrSigner) {
		t.Errorf("got %v", err)
	}
	r.key = next
	r.seal()
	for _, tt := range []struct {
		trust ed25519.PublicKey
		want  []segment.Code
	}{
		{public(old), nil},
		{public(next), []segment.Code{segment.SignerUnknown}},
		{public(newKey(t)), []segment.Code{segment.SignersBad, segment.SignerUnknown, segment.SignerUnknown}},
	} {
		rep := must(segment.Verify(t.Context(), segment.VerifyOptions{Store: r.Store, Trust: []ed25519.PublicKey{tt.trust}}))
		var got []segment.Code
		for _, f := range rep.Findings {
			got = append(got, f.Code)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Error(d)
		}
	}
	r.key = old
	if got := r.read(segment.Query{Run: "a"}); len(got) != 2 {
		t.Errorf("got %d", len(got))
	}
	r.key = newKey(t)
	for _, err := range r.reader().Records(t.Context(), segment.Query{Run: "a", Tenant: "acme"}) {
		if err == nil {
			t.Error("read what an unknown key signed")
		}
	}
}

// TestWrapped: keys that are wrapped need the wrapping key.
func TestWrapped(t *testing.T) {
	r := newRig(t)
	r.Wrap = slices.Repeat([]byte{7}, 32)
	a := r.open()
	r.add(r.next("acme", "a"), r.next("acme", "b"))
	r.seal()
	if got := r.read(segment.Query{Run: "a"}); len(got) != 1 {
		t.Errorf("got %d", len(got))
	}
	must(a.Erase(t.Context(), "acme", "a", "me", "test"))
	if got := r.read(segment.Query{Run: "b"}); len(got) != 1 {
		t.Errorf("got %d", len(got))
	}
	for _, wrap := range [][]byte{nil, make([]byte, 32), make([]byte, 7)} {
		rd := segment.NewReader(segment.ReaderOptions{Store: r.Store, Keys: r.Keys, Wrap: wrap})
		for _, err := range rd.Records(t.Context(), segment.Query{Run: "b"}) {
			if err == nil {
				t.Errorf("read with %v", wrap)
			}
		}
	}
	rd := segment.NewReader(segment.ReaderOptions{Store: r.Store})
	for _, err := range rd.Records(t.Context(), segment.Query{Run: "b"}) {
		if err == nil {
			t.Error("read without keys")
		}
	}
	r.Wrap = r.Wrap[:5]
	if _, err := segment.Open(t.Context(), r.Options); err == nil {
		t.Error("a short wrapping key")
	}
	if _, err := segment.Open(t.Context(), segment.Options{}); err == nil {
		t.Error("no options")
	}
}

// TestEvents: records become events again, as the bus has them.
func TestEvents(t *testing.T) {
	at := day
	e := &event.Event{
		Tenant: "acme", Run: "r 1", Seq: 7, Time: at, Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out,
		Session: "s", ContentType: event.JSON, Ext: map[string]string{"cirepo": "a/b"}, Data: []byte(`{"a":1}`),
	}
	subj := subject.Event{Tenant: e.Tenant, Run: e.Run, Session: "s", Kind: "msg"}.String()
	rec := segment.NewRecord(0, e, subj, headers(e), e.Data, 5, at)
	got, err := rec.Event()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, got); d != "" {
		t.Error(d)
	}
	structured := segment.NewRecord(0, e, subj, [][2]string{{"Content-Type", "application/cloudevents+json"}}, e.AppendJSON(nil), 5, at)
	if got, err := structured.Event(); err != nil || got.Seq != 7 || got.Kind != event.Msg {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, tt := range []struct {
		log  segment.Log
		subj string
		typ  string
		ref  string
		kind event.Kind
	}{
		{segment.Control, subject.Control("acme", "r 1", "lost"), event.TypeLost, "lost", event.Life},
		{segment.Control, subject.Control("acme", "r 1", "audit-1"), event.TypeAudit, "audit-1", event.Cmd},
		{segment.Command, subject.Command("acme", "r 1", "c1"), event.TypeCmd, "c1", event.Cmd},
	} {
		rec := segment.NewRecord(tt.log, nil, tt.subj, [][2]string{{"ce-type", tt.typ}, {"ce-time", "2026-03-01T00:00:00Z"}}, nil, 1, at)
		e, err := rec.Event()
		if err != nil || e.Ref != tt.ref || e.Kind != tt.kind || e.Run != "r 1" || rec.Tenant != "acme" {
			t.Errorf("%s: got %+v, %v", tt.subj, e, err)
		}
	}
	for _, rec := range []*segment.Record{
		segment.NewRecord(0, nil, subj, nil, []byte("x"), 1, at),
		segment.NewRecord(0, nil, subj, [][2]string{{"ce-type", "x"}}, nil, 1, at),
		segment.NewRecord(0, nil, subj, [][2]string{{"ce-sequence", "x"}}, nil, 1, at),
		segment.NewRecord(0, nil, subj, [][2]string{{"content-type", "application/cloudevents+json"}}, []byte("x"), 1, at),
		segment.NewRecord(0, nil, "other", [][2]string{{"ce-type", "x"}}, nil, 1, at),
	} {
		if e, err := rec.Event(); err == nil {
			t.Errorf("%+v became %+v", rec, e)
		}
	}
	if l := []string{segment.Log(3).String(), segment.Control.String(), segment.Command.String()}; !slices.Equal(l, []string{"EV_3", "CTL", "CMD"}) {
		t.Error(l)
	}
}

// TestReader: queries choose, and what is not there is said.
func TestReader(t *testing.T) {
	r := newRig(t)
	r.open()
	r.fill(30)
	for i, rec := range r.all {
		r.add(rec)
		if i%10 == 9 {
			r.seal()
		}
	}
	count := func(q segment.Query, want func(*segment.Record) bool) {
		t.Helper()
		n := 0
		for _, rec := range r.all {
			if want(rec) {
				n++
			}
		}
		if got := r.read(q); len(got) != n || n == 0 {
			t.Errorf("%+v: got %d, want %d", q, len(got), n)
		}
	}
	count(segment.Query{Tenant: "beta"}, func(rec *segment.Record) bool { return rec.Tenant == "beta" })
	count(segment.Query{Logs: []segment.Log{segment.Control}}, func(rec *segment.Record) bool { return rec.Log == segment.Control })
	mid := day.Add(24 * time.Hour)
	count(segment.Query{Since: mid}, func(rec *segment.Record) bool { return !rec.Stored.Before(mid) })
	count(segment.Query{Until: mid}, func(rec *segment.Record) bool { return rec.Stored.Before(mid) })
	count(segment.Query{Run: "a", Tenant: "acme", After: 2}, func(rec *segment.Record) bool {
		return rec.Tenant == "acme" && rec.Run == "a" && (rec.Seq == 0 || rec.Seq > 2)
	})
	if tenants := must(r.reader().Tenants(t.Context())); !slices.Equal(tenants, []string{"acme", "beta"}) {
		t.Error(tenants)
	}
	n := 0
	for h, err := range r.reader().Heads(t.Context(), "acme", 1) {
		if err != nil || h.Number != uint64(n+2) {
			t.Errorf("got %+v, %v", h, err)
		}
		n++
	}
	if n == 0 {
		t.Error("no heads")
	}
	for _, err := range r.reader().Records(t.Context(), segment.Query{Run: "none"}) {
		if !errors.Is(err, segment.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := r.reader().Run(t.Context(), "", "none"); !errors.Is(err, segment.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	var late []string
	for info, err := range r.reader().Runs(t.Context(), "", mid.Add(14*time.Second), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		late = append(late, info.Tenant+"/"+info.Run)
	}
	if len(late) != 1 {
		t.Errorf("got %v", late)
	}
	// One reader sees what is added, and keeps little.
	rd := segment.NewReader(segment.ReaderOptions{Store: r.Store, Keys: r.Keys, Memory: 1})
	before := must(rd.Run(t.Context(), "acme", "a")).Records
	r.add(r.next("acme", "a"))
	r.seal()
	if got := must(rd.Run(t.Context(), "acme", "a")).Records; got != before+1 {
		t.Errorf("got %d after %d", got, before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range rd.Records(ctx, segment.Query{Run: "a", Tenant: "acme"}) {
		if err == nil {
			t.Error("read after the end")
		}
	}
}

// TestTornWrite: what a failed write left in a file is cut before the next one.
func TestTornWrite(t *testing.T) {
	r := newRig(t)
	a := r.open()
	r.add(r.next("acme", "a"))
	for range 2 {
		if err := a.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Tear(); err != nil {
			t.Fatal(err)
		}
		r.add(r.next("acme", "a"), r.next("acme", "b"))
	}
	r.seal()
	r.whole("torn")
}

// TestHeadForm: a head has one form.
func TestHeadForm(t *testing.T) {
	r := newRig(t)
	r.open()
	r.add(r.next("acme", "a"))
	h := r.seal()[0]
	for name, change := range map[string]func(h *segment.Head){
		"version":   func(h *segment.Head) { h.Version = 2 },
		"number":    func(h *segment.Head) { h.Number = 2 },
		"no number": func(h *segment.Head) { h.Number = 0 },
		"previous":  func(h *segment.Head) { h.Number, h.Prev = 2, "xx" },
		"nothing":   func(h *segment.Head) { h.Segment = nil },
		"both":      func(h *segment.Head) { h.Statement = &segment.Statement{} },
		"tenant":    func(h *segment.Head) { h.Tenant = strings.Repeat("x", 5000) },
		"signature": func(h *segment.Head) { h.Sig = h.Sig[1:] },
		"root":      func(h *segment.Head) { h.Segment.Root = "AA" },
		"bytes":     func(h *segment.Head) { h.Segment.Bytes = -1 },
		"name":      func(h *segment.Head) { h.Segment.Name = "../x" },
		"segments": func(h *segment.Head) {
			h.Segment, h.Statement = nil, &segment.Statement{Segments: make([]uint64, 20000)}
		},
		"run": func(h *segment.Head) {
			h.Segment, h.Statement = nil, &segment.Statement{Run: strings.Repeat("x", 5000)}
		},
		"a local time": func(h *segment.Head) { h.Time = h.Time.Round(0).In(time.FixedZone("x", 25*3600)) },
	} {
		c, s := *h, *h.Segment
		c.Segment = &s
		change(&c)
		b, err := json.Marshal(&c)
		if err != nil {
			continue // it cannot be written
		}
		if _, err := segment.ParseHead(b); !errors.Is(err, segment.ErrHead) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := h.Encode()
	for _, b := range [][]byte{
		nil, []byte("{}"), append([]byte(" "), good...), bytes.Replace(good, []byte(`"v":1`), []byte(`"v":1,"v":1`), 1),
		bytes.Replace(good, []byte(`"v":1`), []byte(`"V":1`), 1), bytes.Replace(good, []byte(`"v":1`), []byte(`"v":1,"x":1`), 1),
		bytes.Repeat([]byte(" "), 2<<20),
	} {
		if _, err := segment.ParseHead(b); !errors.Is(err, segment.ErrHead) {
			t.Errorf("%.40q: %v", b, err)
		}
	}
	if again := must(segment.ParseHead(append(good, '\n'))); again.Hash() != h.Hash() || !again.SignedBy(public(r.key)) || again.SignedBy(nil) {
		t.Error("another head")
	}
	if _, err := segment.ParseSigner(bytes.Repeat([]byte("x"), 5000)); err == nil {
		t.Error("a long signer")
	}
	if s := (&segment.Signer{Key: "x"}); s.Public() != nil {
		t.Error("a key")
	}
}
