package archive

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

// What is published is archived, acked when it is sealed, and still there after a
// restart; nothing is kept twice.
func TestArchive(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 500)
	u := r.start()
	u.until("r1", r.has())
	r.publish("other/tenant", "r2", 300)
	r.publish(tenant, "r1", 200)
	u.until("more", r.has())
	u.until("acked", func() bool { return u.Status().Unacked == 0 })
	if err := u.Ready(); err != nil {
		t.Errorf("Ready = %v", err)
	}
	if err := u.close(); err != nil {
		t.Errorf("Run = %v", err)
	}
	r.check()

	r.publish(tenant, "r1", 10)
	u = r.start()
	u.until("after a restart", r.has())
	if err := u.close(); err != nil {
		t.Errorf("Run = %v", err)
	}
	r.check()
}

// Headers, subject and data of every message of every log are kept as they were,
// also of messages that are no events.
func TestEveryMessage(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 3, func(n uint64) *event.Event {
		return &event.Event{
			Type: "dev.cbcast.claude.raw", Kind: event.Raw, Stream: event.Err, Session: "s/1", Task: "t 1",
			Ext: map[string]string{"ciref": "ä b", "n": fmt.Sprint(n)}, Data: []byte{0, 0xff, '\r', '\n'},
		}
	})
	r.audit(tenant, "r1", "c1", event.Audit{Command: "c1", Name: "interrupt", Actor: "alice", From: "10.0.0.1"})
	c := bus.Command{
		ID: "c1", Tenant: tenant, Run: "r1", Name: "interrupt", Data: []byte(`{}`), Actor: "alice", From: "10.0.0.1",
		Time: r.now(), DeliverBy: r.now().Add(long),
	}
	if _, err := r.bus.SendCommand(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	want := map[segment.Log]int{0: 3, segment.Control: 1, segment.Command: 1}
	got := map[segment.Log]int{}
	u := r.start()
	u.until("all logs", func() bool {
		clear(got)
		for rec, err := range r.place().Reader().Records(t.Context(), segment.Query{Tenant: tenant, Run: "r1"}) {
			if err != nil {
				return false
			}
			got[rec.Log]++
			e, err := rec.Event()
			if err != nil {
				t.Fatal(err)
			}
			if rec.Log == 0 && (e.Ext["ciref"] != "ä b" || e.Task != "t 1" || !bytes.Equal(e.Data, []byte{0, 0xff, '\r', '\n'})) {
				t.Errorf("event %d is not as it was: %+v", e.Seq, e)
			}
		}
		return cmp.Equal(want, got)
	})
	_ = u.close()
	r.check()
}

// Case 086: a message fails once. Its run is kept in order all the same, nothing twice,
// and others are not held up for good.
func TestCase086OrderAfterFailure(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 6)
	r.publish(tenant, "r2", 6)
	var once sync.Once
	u := r.start(func(o *Options) {
		o.before = func(e *consume.Entry) (err error) {
			if e.Event != nil && e.Event.Run == "r1" && e.Event.Seq == 2 {
				once.Do(func() { err = errors.New("fails once") })
			}
			return err
		}
	})
	u.until("all", r.has())
	_ = u.close()
	r.check()
}

// Case 088: a panic, and errors of unknown kind, end in a new try and then in a dead
// letter with the reason; the rest is archived, and nothing was acked too early.
func TestCase088Panic(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("poison") }} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.publish(tenant, "r1", 50)
			u := r.start(func(o *Options) {
				o.before = func(e *consume.Entry) error {
					if e.Event != nil && e.Event.Seq == 20 {
						fail()
					}
					return nil
				}
			})
			u.until("the rest", r.has())
			u.until("acked", func() bool { return u.Status().Unacked == 0 && u.Status().Lag == 0 })
			_ = u.close()
			ids, err := u.Dead().IDs()
			if err != nil || len(ids) != 1 {
				t.Fatalf("dead letters %v, %v", ids, err)
			}
			d, err := u.Dead().Read(ids[0])
			if err != nil {
				t.Fatal(err)
			}
			if d.Event != 20 || d.Tries != maxFaults || !strings.Contains(d.Reason, "poison") || len(d.Header) == 0 || len(d.Data) == 0 {
				t.Errorf("letter %+v", d)
			}
			var seqs []uint64
			for rec, err := range r.place().Reader().Records(t.Context(), segment.Query{Tenant: tenant, Run: "r1"}) {
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, rec.Seq)
			}
			if len(seqs) != 49 || seqs[18] != 19 || seqs[19] != 21 {
				t.Errorf("archived %v", seqs)
			}
		})
	}
}

// Case 121: what comes after a run was called lost, or after its end, is kept behind it.
func TestCase121Late(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 2)
	lost := &event.Event{
		Tenant: tenant, Run: "r1", Ref: "lost", Time: r.now(), Type: event.TypeLost, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON, Data: []byte(`{"reason":"presence"}`),
	}
	if _, err := r.bus.PutControl(t.Context(), lost, "liveness", 0); err != nil {
		t.Fatal(err)
	}
	u := r.start()
	u.until("the end", r.has())
	r.publish(tenant, "r1", 20)
	u.until("what came late", r.has())
	_ = u.close()
	r.check()
}

// Two archives at once: one stands by, and takes over where the other ended.
func TestStandby(t *testing.T) {
	r := newRig(t)
	first := r.start()
	r.publish(tenant, "r1", 100)
	first.until("first", r.has())
	second := r.start(func(o *Options) {
		o.Bus, o.Dir = r.connect(), filepath.Join(t.TempDir(), "second")
		o.SigningKeyFile = r.cfg.SigningFile(r.dir)
	})
	second.until("standby", second.standsBy)
	second.until("ready, though it stands by", func() bool { return second.Ready() == nil && second.standsBy() })
	r.publish(tenant, "r1", 100)
	first.until("first again", r.has())
	if err := first.close(); err != nil {
		t.Error(err)
	}
	r.publish(tenant, "r1", 100)
	second.until("second", r.has())
	_ = second.close()
	r.check()
}

// The destination goes away: nothing more is acked, the cause is shown, and all goes on
// by itself when it is back.
func TestDestinationAway(t *testing.T) {
	r := newRig(t)
	u := r.start()
	r.publish(tenant, "r1", 100)
	u.until("before", r.has())
	away := r.cfg.Dest + ".away"
	if err := os.Rename(r.cfg.Dest, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.cfg.Dest, nil, 0o600); err != nil { // nothing can be put below it
		t.Fatal(err)
	}
	r.publish(tenant, "r1", 500)
	u.until("not ready", func() bool { return u.Ready() != nil })
	if err := u.Ready(); err == nil || !strings.Contains(err.Error(), "archive") {
		t.Errorf("Ready = %v", err)
	}
	if err := os.Remove(r.cfg.Dest); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, r.cfg.Dest); err != nil {
		t.Fatal(err)
	}
	u.until("after", r.has())
	u.until("ready again", func() bool { return u.Ready() == nil })
	_ = u.close()
	r.check()
}

// The catalogue knows who decided what, whose run it was and what was masked; cat and
// export give what the agent wrote.
func TestCatalogueAndExport(t *testing.T) {
	r := newRig(t)
	big := bytes.Repeat([]byte("x"), 1000)
	lines := r.publish(tenant, "r1", 6, func(n uint64) *event.Event {
		e := &event.Event{Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, ContentType: event.JSON}
		switch n {
		case 1:
			e.Type, e.Kind, e.Stream = event.TypeStarted, event.Life, event.Edge
			e.Data = []byte(`{"argv":["claude"],"dialect":"claude","ci":{"cirepo":"acme/shop","ciworkflow":"ci"}}`)
		case 2:
			e.Data = []byte(`{"token": "[redacted:jwt]" , "n":2}`)
			e.Redacted, e.RawLen, e.RawHash = []event.Span{{Rule: "jwt", Off: 11, Len: 14, RawLen: 200}}, 220, "h"
		case 3:
			e.Type, e.Kind, e.ContentType, e.Data = "dev.cbcast.claude.raw", event.Raw, event.Binary, []byte("no json")
		case 4:
			e.Chunk, e.Data = event.Part{I: 1, N: 2}, append([]byte(`{"big":"`), big...)
		case 5:
			e.Chunk, e.Data = event.Part{I: 2, N: 2}, []byte(`"}`)
		case 6:
			e.Type, e.Kind, e.ContentType, e.Cut, e.Data = "dev.cbcast.claude.raw", event.Raw, event.Binary, true, []byte("tail")
		}
		return e
	})
	r.publish(tenant, "r2", 1)
	r.audit(tenant, "r1", "c1", event.Audit{
		Command: "c1", Name: "answer", Actor: "slack", For: "slack:U1", From: "10.0.0.1",
		Args: &event.CommandArgs{Answer: &event.Answer{Ask: "a1", Decision: event.Allow}},
	})
	u := r.start()
	u.until("all", r.has())
	decided := func() bool {
		n := 0
		err := List(t.Context(), r.place(), Filter{Actor: "slack:U1"}, func(Listed) error { n++; return nil })
		return err == nil && n == 1
	}
	u.until("the decision", decided)
	_ = u.close()
	r.check()
	p := r.place()

	want := Note{
		Run: "r1", Repo: "acme/shop", Workflow: "ci", Dialect: "claude", Masked: map[string]int64{"jwt": 1},
		Decisions: []Decision{{Command: "c1", Name: "answer", Ask: "a1", Decision: "allow", Actor: "slack", For: "slack:U1", From: "10.0.0.1"}},
	}
	ignore := cmpopts.IgnoreFields(Decision{}, "Time")
	for name, f := range map[string]Filter{"repo": {Repo: "acme/shop"}, "actor": {Actor: "slack"}, "all": {Tenant: tenant, Repo: "acme/shop", Actor: "slack:U1"}} {
		var got []Note
		if err := List(t.Context(), p, f, func(l Listed) error { got = append(got, l.Note); return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Note{want}, got, ignore); diff != "" {
			t.Errorf("list by %s (-want +got):\n%s", name, diff)
		}
	}
	for name, f := range map[string]Filter{"repo": {Repo: "acme/other"}, "actor": {Actor: "bob"}, "since": {Since: r.now().Add(long)}} {
		if err := List(t.Context(), p, f, func(l Listed) error { return fmt.Errorf("run %s", l.Run) }); err != nil {
			t.Errorf("list by another %s: %v", name, err)
		}
	}
	n, err := NoteOf(t.Context(), p, tenant, "r1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, n, ignore); diff != "" {
		t.Errorf("NoteOf (-want +got):\n%s", diff)
	}
	rebuilt(t, p, want, ignore)

	var out bytes.Buffer
	x, err := Cat(t.Context(), p, tenant, "r1", []event.Stream{event.Out}, &out)
	wire := string(lines.ev(2).Data) + "\nno json\n" + `{"big":"` + string(big) + "\"}\ntail"
	if out.String() != wire || err != nil {
		t.Errorf("Cat = %q, %+v, %v", out.String(), x, err)
	}
	out.Reset()
	x, err = Export(t.Context(), p, tenant, "r1", NDJSON, &out)
	wire = string(lines.ev(2).Data) + "\n" + `{"big":"` + string(big) + "\"}\n"
	if out.String() != wire || err != nil || x.NotJSON != 2 {
		t.Errorf("ndjson = %q, %+v, %v", out.String(), x, err)
	}
	out.Reset()
	if x, err = Export(t.Context(), p, tenant, "r1", CloudEvents, &out); err != nil || x.Events != 7 {
		t.Errorf("cloudevents: %+v, %v", x, err)
	}
	for l := range strings.Lines(out.String()) {
		e, err := event.ParseJSON([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq > 0 && !bytes.Equal(e.Data, lines.ev(e.Seq).Data) {
			t.Errorf("event %d has data %q", e.Seq, e.Data)
		}
	}
	out.Reset()
	if x, err = Export(t.Context(), p, tenant, "r1", Parquet, &out); err != nil || x.Events != 7 {
		t.Errorf("parquet: %+v, %v", x, err)
	}
}

// rebuilt has the catalogue made again from the segments.
func rebuilt(t *testing.T, p Place, want Note, opts ...cmp.Option) {
	t.Helper()
	got := Note{Run: want.Run}
	for h, err := range p.Reader().Heads(t.Context(), tenant, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if h.Segment == nil {
			continue
		}
		pg, err := rebuildPage(t.Context(), p, h)
		if err != nil {
			t.Fatal(err)
		}
		if i, ok := pg.find(want.Run); ok {
			got.merge(&pg.Notes[i])
		}
	}
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
}

// Case 115: a masked token is nowhere in the archive, and that it was masked is.
func TestCase115Masked(t *testing.T) {
	const secret = "eyJhbGciOi.secret.jwt"
	r := newRig(t)
	r.publish(tenant, "r1", 1, func(uint64) *event.Event {
		return &event.Event{
			Type: "dev.cbcast.cbc.control_response.success", Kind: event.Cmd, Stream: event.Out, ContentType: event.JSON,
			Data:     []byte(`{"response":{"account":{"token":"[redacted:account]"}}}`),
			Redacted: []event.Span{{Rule: "account", Off: 33, Len: 18, RawLen: len(secret)}}, RawLen: 60, RawHash: "keyed",
		}
	})
	u := r.start()
	u.until("all", r.has())
	_ = u.close()
	r.check()
	var out bytes.Buffer
	if _, err := Export(t.Context(), r.place(), tenant, "r1", CloudEvents, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"rawlength":"60"`) || !strings.Contains(out.String(), `"redacted":"account:33:18:21"`) {
		t.Errorf("the event does not say what was masked: %s", out.String())
	}
	nowhere(t, r.cfg.Dest, secret)
	nowhere(t, r.dir, secret)
}

func nowhere(t *testing.T, dir, secret string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(secret)))) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A hold forbids erasure; erasure takes a run out of everything but the chain.
func TestEraseHoldRetention(t *testing.T) {
	r := newRig(t)
	r.publish(tenant, "r1", 50)
	r.publish(tenant, "r2", 50)
	r.audit(tenant, "r1", "c1", event.Audit{Command: "c1", Name: "interrupt", Actor: "alice"})
	u := r.start()
	u.until("all", r.has())
	u.until("the decision", func() bool {
		n, err := NoteOf(t.Context(), r.place(), tenant, "r1")
		return err == nil && len(n.Decisions) == 1
	})
	write := func(fn func(Place, *segment.Archive) error) {
		t.Helper()
		if err := Write(t.Context(), &r.cfg, r.dir, fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(p Place, ar *segment.Archive) error {
		_, err := ar.Hold(t.Context(), tenant, "r1", "case-7", "bob", "claim")
		return err
	})
	err := Write(t.Context(), &r.cfg, r.dir, func(p Place, ar *segment.Archive) error {
		_, err := Erase(t.Context(), p, ar, tenant, "r1", "bob", "asked to")
		return err
	})
	if !errors.Is(err, segment.ErrHeld) {
		t.Errorf("Erase under a hold = %v", err)
	}
	holds, err := Holds(t.Context(), r.place(), "")
	if err != nil || len(holds) != 1 || holds[0].ID != "case-7" || holds[0].Run != "r1" {
		t.Errorf("Holds = %+v, %v", holds, err)
	}
	write(func(p Place, ar *segment.Archive) error {
		_, err := ar.Release(t.Context(), tenant, "case-7", "bob", "settled")
		return err
	})
	write(func(p Place, ar *segment.Archive) error {
		_, err := Erase(t.Context(), p, ar, tenant, "r1", "bob", "asked to")
		return err
	})
	var gone *segment.ErasedError
	if _, err := Cat(t.Context(), r.place(), tenant, "r1", []event.Stream{event.Out}, io.Discard); !errors.As(err, &gone) {
		t.Errorf("Cat of an erased run = %v", err)
	}
	err = List(t.Context(), r.place(), Filter{Actor: "alice"}, func(l Listed) error { return fmt.Errorf("listed %s", l.Run) })
	if err != nil {
		t.Error(err)
	}
	// The service goes on beside what others state, and what comes of the run stays erased.
	r.publish(tenant, "r1", 10)
	r.publish(tenant, "r2", 10)
	u.until("r2 after the erasure", r.has())
	_ = u.close()
	delete(r.sent, "r1")
	r.check()
	if _, err := Cat(t.Context(), r.place(), tenant, "r1", []event.Stream{event.Out}, io.Discard); !errors.As(err, &gone) {
		t.Errorf("Cat of what came after the erasure = %v", err)
	}
	c := r.cfg
	c.Retention = "acme=1h"
	err = Write(t.Context(), &c, r.dir, func(p Place, ar *segment.Archive) error {
		done, err := Retain(t.Context(), &c, p, ar, "bob")
		if len(done) != 1 || done[0].Segments != 0 {
			t.Errorf("retention of what is young: %+v", done)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Heads go to a second place, in order, also those of others; one that is away holds
// nothing up before the bound, and then everything.
func TestHeadCopies(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	heads := filepath.Join(dir, "heads.ndjson")
	r.cfg.Heads, r.cfg.HeadsBehind = heads, 3
	u := r.start()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.publish(tenant, fmt.Sprint("r", i), 1)
		u.until("sealed, or the bound", func() bool { return r.has()() || errors.Is(u.Ready(), errCopiesBehind) })
	}
	if err := u.Ready(); !errors.Is(err, errCopiesBehind) || !strings.Contains(err.Error(), heads) {
		t.Errorf("Ready = %v", err)
	}
	if st := u.copies.state(); st.Waiting != 3 || st.Failures == 0 {
		t.Errorf("%+v", st)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	u.until("all, again", r.has())
	u.until("copied", func() bool { return u.copies.state().Waiting == 0 })
	if err := Write(t.Context(), &r.cfg, r.dir, func(p Place, ar *segment.Archive) error {
		_, err := ar.Hold(t.Context(), tenant, "", "h", "bob", "claim")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.publish(tenant, "last", 1)
	u.until("after another's head", r.has())
	u.until("copied", func() bool { return u.copies.state().Waiting == 0 })
	_ = u.close()
	r.check()
	got, err := r.cfg.LoadHeads(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for h, err := range r.place().Reader().Heads(t.Context(), tenant, 0) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, h.Hash())
	}
	for _, h := range got {
		have = append(have, h.Hash())
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("copies (-chain +copies):\n%s", diff)
	}
}

// A new signing key takes over while the service runs.
func TestRotate(t *testing.T) {
	r := newRig(t)
	u := r.start()
	r.publish(tenant, "r1", 10)
	u.until("before", r.has())
	s, err := Rotate(t.Context(), &r.cfg, r.dir, "bob")
	if err != nil || s.Number != 2 {
		t.Fatalf("Rotate = %+v, %v", s, err)
	}
	r.publish(tenant, "r1", 10)
	u.until("after", r.has())
	_ = u.close()
	r.check()
	_ = context.Canceled
}
