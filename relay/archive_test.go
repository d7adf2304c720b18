package relay_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// A vault is an archive to which a test gives what a server has, as the archiver does.
type vault struct {
	*rig
	*segment.Archive
	store *segment.Dir
	next  map[string]uint64 // by stream
}

func (r *rig) vault() *vault { return r.vaultAt(r.t.TempDir()) }

func (r *rig) vaultAt(dir string) *vault {
	r.t.Helper()
	private, _, err := segment.GenerateKey()
	if err != nil {
		r.t.Fatal(err)
	}
	store, err := segment.OpenDir(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := segment.Open(r.t.Context(), segment.Options{
		Store: store, Keys: store, Dir: r.t.TempDir(),
		Signer: func() (ed25519.PrivateKey, error) { return segment.ParsePrivateKey(private) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { a.Close() })
	return &vault{r, a, store, map[string]uint64{}}
}

// keep archives everything that the streams have and the vault has not.
func (v *vault) keep() {
	v.t.Helper()
	js, done := v.jetStream()
	defer done()
	for stream, log := range map[string]segment.Log{subject.EventStream(0): 0, subject.ControlStream: segment.Control} {
		s, err := js.Stream(v.t.Context(), stream)
		if err != nil {
			v.t.Fatal(err)
		}
		for last := s.CachedInfo().State.LastSeq; v.next[stream] < last; {
			v.next[stream]++
			m, err := s.GetMsg(v.t.Context(), v.next[stream])
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				v.t.Fatal(err)
			}
			var h [][2]string
			for name, values := range m.Header {
				h = append(h, [2]string{name, values[0]})
			}
			slices.SortFunc(h, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
			e, err := segment.NewRecord(log, nil, m.Subject, h, m.Data, m.Sequence, m.Time).Event()
			if err != nil {
				v.t.Fatal(err)
			}
			if _, err := v.Append(v.t.Context(), segment.NewRecord(log, e, m.Subject, h, m.Data, m.Sequence, m.Time)); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	if _, err := v.Seal(v.t.Context(), 0); err != nil {
		v.t.Fatal(err)
	}
}

func (v *vault) reader() *segment.Reader {
	return segment.NewReader(segment.ReaderOptions{Store: v.store, Keys: v.store})
}

// with is a relay that has an archive.
func (r *rig) with(cfg relay.Config, a relay.Archive) *served {
	r.t.Helper()
	r.archive = a
	defer func() { r.archive = nil }()
	return r.relay(cfg)
}

// TestArchive: a run whose beginning, and then all of it, only the archive has, is read as before:
// pages, streams and the state, with the same cursors.
func TestArchive(t *testing.T) {
	r := newRig(t, small())
	v := r.vault()
	e := r.asking("run-1", bash(1))
	e.emit(notes(10)...)
	big := frameOf(string(make([]byte, 700<<10))) // three chunks
	big.ContentType = event.Binary
	e.emit(big)
	e.emit(notes(4)...)
	last := e.emit(exited())
	e.shipped()
	live := r.relay(relay.Config{})
	want := live.get("/v1/runs/run-1/events", nil)
	stream := live.stream("/v1/runs/run-1/stream", nil).all()
	var doc relay.RunDoc
	live.get("/v1/runs/run-1", nil).into(t, &doc)
	v.keep()
	check := func(name string) {
		t.Helper()
		s := r.with(relay.Config{}, v.reader())
		if got := s.get("/v1/runs/run-1/events", nil); string(got.body) != string(want.body) {
			t.Errorf("%s: page (%d)\n%.300s\nwant\n%.300s", name, got.status, got.body, want.body)
		}
		if got := s.stream("/v1/runs/run-1/stream", nil).all(); !slices.Equal(stream, got) {
			t.Errorf("%s: stream %s, want %s", name, ids(got), ids(stream))
		}
		for _, after := range []uint64{3, 12, last - 1} {
			p := s.page(fmt.Sprintf("/v1/runs/run-1/events?after=%d", after))
			if p.Gap != nil || p.Reset != nil || !p.Ended || p.Next != last || len(p.Events) == 0 || p.Events[0].Seq != after+1 {
				t.Errorf("%s: behind %d: %+v", name, after, p)
			}
			c := s.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": fmt.Sprint(after)})
			if got := c.all(); len(got) == 0 || got[0].seq(t) != after+1 || got[len(got)-1].seq(t) != last {
				t.Errorf("%s: stream behind %d: %s", name, after, ids(got))
			}
		}
		if got := s.get("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": fmt.Sprint(last)}); got.status != http.StatusNoContent {
			t.Errorf("%s: at the end: %d", name, got.status)
		}
		if p := s.page("/v1/runs/run-1/events?after=999"); p.Reset == nil || p.Reset.First != 1 || p.Reset.Last != last {
			t.Errorf("%s: beyond the end: %+v", name, p.Reset)
		}
		var got relay.RunDoc
		s.get("/v1/runs/run-1", nil).into(t, &got)
		if d := cmp.Diff(doc.State, got.State); d != "" || got.First != 1 || got.Info.Verdict != doc.Info.Verdict && doc.Info.Verdict != "" {
			t.Errorf("%s: first %d, %+v, state:\n%s", name, got.First, got.Info, d)
		}
	}
	check("all on the bus")
	r.purge(0, 8)
	check("the beginning purged")
	r.purge(0, last+100)
	check("all purged")
	r.dropRun("run-1")
	check("not in the registry")
	s := r.with(relay.Config{}, v.reader())
	for path, want := range map[string]int{
		"/v1/runs/run-2": 404, "/v1/runs/run-2/events": 404, "/v1/runs/run-2/stream": 404, "/v1/runs/run-1/asks": 200,
	} {
		if got := s.get(path, nil); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
}

// said is the code of an error, with its status and reason.
func (a answer) said(t *testing.T) string {
	t.Helper()
	var e relay.ErrorBody
	a.into(t, &e)
	return fmt.Sprint(a.status, " ", e.Code, " ", e.Details["reason"])
}

// TestArchiveCommands: a run that only the archive has answers as one that has ended, whether
// the list has it or not; it takes nothing, and nothing is put on the bus for it.
func TestArchiveCommands(t *testing.T) {
	r := newRig(t, small())
	r.silent = true
	v := r.vault()
	e := r.asking("run-1", bash(1))
	e.emit(exited())
	e.shipped()
	posts := [][2]string{
		{"/v1/runs/run-1/interrupt", `{}`},
		{"/v1/runs/run-1/stop_task", `{"task":"t1"}`},
		{"/v1/runs/run-1/commands", `{"name":"message","args":{"content":"hello"}}`},
		{"/v1/runs/run-1/asks/a1", `{"decision":"allow"}`},
		{"/v1/runs/run-1/asks/none", `{"decision":"allow"}`},
		{"/api/workflows/runs/run-1/cancel", `{}`},
	}
	live := r.relay(relay.Config{})
	want := map[string]string{}
	for _, p := range posts {
		want[p[0]] = live.post(p[0], p[1], nil).said(t)
	}
	for _, i := range []int{0, 1, 2, 5} {
		if want[posts[i][0]] != "409 already_ended <nil>" {
			t.Errorf("on the bus: %s: %s", posts[i][0], want[posts[i][0]])
		}
	}
	if !strings.HasPrefix(want[posts[3][0]], "410 ask_closed") {
		t.Errorf("on the bus: %v", want)
	}
	v.keep()
	r.purge(0, 100)
	for _, listed := range []bool{true, false} {
		if !listed {
			r.dropRun("run-1")
		}
		s := r.with(relay.Config{}, v.reader())
		sent, audited := r.on("run-1")
		for _, p := range posts {
			if got := s.post(p[0], p[1], nil).said(t); got != want[p[0]] {
				t.Errorf("listed %v: %s: %s, on the bus %s", listed, p[0], got, want[p[0]])
			}
		}
		if sent2, audited2 := r.on("run-1"); len(sent2) != len(sent) || len(audited2) != len(audited) {
			t.Errorf("listed %v: on the bus: %v %v", listed, sent2, audited2)
		}
		if got := s.post("/v1/runs/run-9/interrupt", `{}`, nil); got.status != 404 {
			t.Errorf("a run that is nowhere: %d", got.status)
		}
	}
}

// TestArchiveNoEnd: the stream of a run that only the archive has ends with the last event there,
// also where that is no end, and who comes back has everything.
func TestArchiveNoEnd(t *testing.T) {
	r := newRig(t, small())
	r.silent = true
	v := r.vault()
	e := r.edge("run-1")
	last := e.emit(notes(5)...)
	e.shipped()
	v.keep()
	r.purge(0, 100)
	for _, listed := range []bool{true, false} {
		if !listed {
			r.dropRun("run-1")
		}
		s := r.with(relay.Config{}, v.reader())
		for _, after := range []uint64{0, 3} {
			c := s.stream(fmt.Sprintf("/v1/runs/run-1/stream?after=%d", after), nil)
			if got := c.all(); len(got) == 0 || got[0].seq(t) != after+1 || got[len(got)-1].seq(t) != last {
				t.Errorf("listed %v: behind %d: %s", listed, after, ids(got))
			}
		}
		if got := s.get("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": fmt.Sprint(last)}); got.status != http.StatusNoContent {
			t.Errorf("listed %v: at the end: %d", listed, got.status)
		}
	}
	// An edge that is there may have more to say.
	e.register()
	e.present(time.Minute)
	s := r.with(relay.Config{}, v.reader())
	s.until(func() bool { return s.entry("run-1").Alive })
	c := s.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": fmt.Sprint(last)})
	e.emit(notes(1)...)
	e.shipped()
	if got := c.take(1); len(got) != 1 || got[0].seq(t) != last+1 {
		t.Errorf("from an edge that is there: %s", ids(got))
	}
	c.close()
}

// TestArchiveRights: an archived run is there for those who might see it on the bus.
func TestArchiveRights(t *testing.T) {
	r := newRig(t, small())
	v := r.vault()
	e := r.edge("run-1")
	e.emit(notes(3)...)
	e.emit(exited())
	e.shipped()
	v.keep()
	r.purge(0, 100)
	r.dropRun("run-1")
	k := newKeyring(t,
		relay.Token{Name: "mine", Scopes: []relay.Scope{relay.ScopeRead}, Tenants: []string{e.ref.Tenant}},
		relay.Token{Name: "theirs", Scopes: []relay.Scope{relay.ScopeRead}, Tenants: []string{"other"}},
		relay.Token{Name: "runs", Scopes: []relay.Scope{relay.ScopeRead}, Runs: []string{"run-2*"}},
	)
	s := r.with(relay.Config{Closed: true, Tokens: k.json()}, v.reader())
	for _, path := range []string{"/v1/runs/run-1", "/v1/runs/run-1/events", "/v1/runs/run-1/stream"} {
		for name, want := range map[string]int{"mine": 200, "theirs": 404, "runs": 404} {
			if got := s.get(path, k.header(name)); got.status != want {
				t.Errorf("%s for %s: %d, want %d", path, name, got.status, want)
			}
		}
		if got := s.get(path, nil); got.status != 401 {
			t.Errorf("%s without a token: %d", path, got.status)
		}
	}
}

// TestArchiveErased: what was erased is not found, and what is gone from the archive is a gap.
func TestArchiveErased(t *testing.T) {
	r := newRig(t, small())
	v := r.vault()
	e := r.edge("run-1")
	e.emit(notes(3)...)
	e.shipped()
	v.keep()
	e.emit(notes(2)...)
	e.emit(exited())
	e.shipped()
	v.keep()
	r.purge(0, 5)
	if h, err := v.Retain(t.Context(), e.ref.Tenant, time.Now().Add(time.Hour), "test", "test"); err != nil || h == nil {
		t.Fatal(h, err)
	}
	s := r.with(relay.Config{}, v.reader())
	if p := s.page("/v1/runs/run-1/events"); p.Gap == nil || p.Gap.First != 5 || p.Next != 6 {
		t.Errorf("got %+v", p)
	}
	f := r.edge("run-3")
	f.emit(notes(3)...)
	f.emit(exited())
	f.shipped()
	v.keep()
	if _, err := v.Erase(t.Context(), f.ref.Tenant, "run-3", "test", "test"); err != nil {
		t.Fatal(err)
	}
	r.purge(0, 1000)
	r.dropRun("run-3")
	s = r.with(relay.Config{}, v.reader()) // one that never had the entry
	for _, path := range []string{"/v1/runs/run-3", "/v1/runs/run-3/events", "/v1/runs/run-3/stream"} {
		if got := s.get(path, nil); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

// A broken archive cannot be read.
type broken struct{}

func (broken) Run(context.Context, string, string) (*segment.RunInfo, error) {
	return nil, errors.New("away")
}

func (broken) Records(context.Context, segment.Query) iter.Seq2[*segment.Record, error] {
	return func(yield func(*segment.Record, error) bool) { yield(nil, errors.New("away")) }
}

// TestArchiveAway: while the archive cannot be read nobody is told that something is not kept.
func TestArchiveAway(t *testing.T) {
	r := newRig(t, bus.Topology{MaxBytes: 256 << 20})
	e := r.edge("run-1")
	e.emit(notes(6)...)
	e.shipped()
	r.purge(0, 4)
	s := r.with(relay.Config{}, broken{})
	for path, want := range map[string]int{"/v1/runs/run-1/events": 503, "/v1/runs/run-1/events?after=3": 200, "/v1/runs/run-9": 503} {
		if got := s.get(path, nil); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
}

// TestArchiveDamaged: of a run with a damaged segment everything else is read, and the rest is a
// gap; a run that is nowhere may be in it, and is not said to be nowhere.
func TestArchiveDamaged(t *testing.T) {
	for n := range 3 { // which segment
		r := newRig(t, small())
		r.silent = true
		dir := filepath.Join(t.TempDir(), "archive")
		v := r.vaultAt(dir)
		e := r.edge("run-1")
		for i := range 3 {
			e.emit(notes(2)...)
			if i == 2 {
				e.emit(exited())
			}
			e.shipped()
			v.keep()
		}
		r.purge(0, 1000)
		names, err := filepath.Glob(filepath.Join(dir, "t/*/segments/*/*"))
		if err != nil || len(names) != 3 {
			t.Fatal(names, err)
		}
		slices.Sort(names)
		if err := os.Truncate(names[n], 100); err != nil {
			t.Fatal(err)
		}
		s := r.with(relay.Config{}, v.reader())
		p := s.page("/v1/runs/run-1/events")
		var seqs []uint64
		for _, e := range p.Events {
			seqs = append(seqs, e.Seq)
		}
		want := [][]uint64{{3, 4, 5, 6, 7}, {1, 2, 5, 6, 7}, {1, 2, 3, 4}}[n]
		if !slices.Equal(seqs, want) || (p.Gap != nil) != (n < 2) {
			t.Errorf("segment %d: %v, gap %+v", n, seqs, p.Gap)
		}
		var told []uint64
		gaps := 0
		for _, ev := range s.stream("/v1/runs/run-1/stream", nil).all() {
			if ev.name == "gap" {
				gaps++
				continue
			}
			told = append(told, ev.seq(t))
		}
		if !slices.Equal(told, want) || gaps != []int{1, 1, 0}[n] {
			t.Errorf("segment %d: streamed %v with %d gaps", n, told, gaps)
		}
		if got := s.get("/v1/runs/run-9", nil); got.status != http.StatusServiceUnavailable {
			t.Errorf("segment %d: a run that is nowhere: %d", n, got.status)
		}
	}
}

// TestArchiveGone: a run whose archive is gone, or not mounted, is not said to be nowhere.
func TestArchiveGone(t *testing.T) {
	r := newRig(t, small())
	dir := filepath.Join(t.TempDir(), "archive")
	v := r.vaultAt(dir)
	e := r.edge("run-1")
	e.emit(notes(6)...)
	e.shipped()
	v.keep()
	r.purge(0, 1000)
	s := r.with(relay.Config{}, v.reader())
	want := func(what string, status int) {
		t.Helper()
		for _, fresh := range []*served{s, r.with(relay.Config{}, v.reader())} {
			for _, path := range []string{"/v1/runs/run-1/events", "/v1/runs/run-9"} {
				w := status
				if w == 200 && strings.HasSuffix(path, "run-9") {
					w = 404
				}
				if got := fresh.get(path, nil); got.status != w {
					t.Errorf("%s: %s: %d, want %d", what, path, got.status, w)
				}
			}
		}
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	want("gone", 503)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want("empty", 503)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	want("there again", 200)
}
