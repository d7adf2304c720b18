package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

// away is a bus that never answers.
func away(ctx context.Context) (*bus.Bus, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// flush ships what is under root and returns the reports.
func flush(t testing.TB, root string) (all []ingest.Flushed) {
	t.Helper()
	err := ingest.Flush(t.Context(), root, theBus(t).bus, 0, testLog(t), func(f ingest.Flushed) {
		if f.Err != nil {
			t.Errorf("flush %s: %v", f.Run, f.Err)
		}
		all = append(all, f)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// left runs an agent to its end without a bus.
func left(t testing.TB, change ...func(*ingest.Options)) (root, id string) {
	t.Helper()
	o := options(t)
	o.Dialect, o.Dial, o.ExitFlush, o.Labels = dialect.Claude, away, 20*time.Millisecond, map[string]string{"cirepo": "a/b"}
	for _, f := range change {
		f(&o)
	}
	r := wrap(t, o, streamArgs...)
	r.write(user)
	r.read()
	r.say(claude.init(), claude.text("hello"))
	for i := range 50 {
		r.say(claude.frame(`"type":"stream_event","event":{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 2000)))
	}
	r.say(claude.result())
	start := time.Now()
	if out := r.exit(0); out.Shipped {
		t.Fatal("shipped without a bus")
	}
	if d := time.Since(start); d > patience/2 {
		t.Errorf("the end took %s, with a flush time of %s", d, o.ExitFlush)
	}
	return o.SpoolRoot, r.run
}

// An edge whose bus is away ends in its time and leaves its spool; a flush ships
// it, once.
func TestFlush(t *testing.T) {
	root, id := left(t, func(o *ingest.Options) { o.SyncInterval = time.Hour })
	w := theBus(t)
	if got := flush(t, root); len(got) != 1 || got[0].Run != id {
		t.Fatalf("flushed %+v", got)
	}
	evs := w.history(t, id)
	equal(t, "complete", one[event.Exited](t, evs, event.TypeExited).Complete, true)
	info, err := w.bus.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "registry", []any{info.State, info.Verdict, info.LastSeq, info.Sessions, info.Dialect, info.Labels, info.Host != "", info.First > 0, info.Ended.IsZero()},
		[]any{"done", "success", uint64(len(evs)), []string{"s-main"}, "claude", map[string]string{"cirepo": "a/b"}, true, true, false})
	if got := flush(t, root); len(got) != 0 {
		t.Errorf("flushed again: %+v", got)
	}
	equal(t, "events", len(w.history(t, id)), len(evs))
	if infos, _ := spool.List(root); len(infos) != 0 {
		t.Errorf("%d spools are left", len(infos))
	}
}

// A spool that is shipped is kept while the server may still lose it, and a flush
// does not touch the spool of a living edge.
func TestFlushKeeps(t *testing.T) {
	o := options(t)
	o.Dialect, o.SyncInterval = dialect.Claude, time.Hour
	r := wrap(t, o, streamArgs...)
	hello := claude.text("hello")
	r.say(claude.init(), hello)
	r.seen(hello)
	if got := flush(t, o.SpoolRoot); len(got) != 0 {
		t.Errorf("flushed a living run: %+v", got)
	}
	r.say(claude.result())
	r.exit(0)
	err := ingest.Flush(t.Context(), o.SpoolRoot, r.w.bus, time.Hour, testLog(t), func(f ingest.Flushed) { t.Errorf("reported %+v", f) })
	if err != nil {
		t.Fatal(err)
	}
	if infos, _ := spool.List(o.SpoolRoot); len(infos) != 1 || !infos[0].Shipped() {
		t.Errorf("spools: %+v", infos)
	}
	info, err := r.w.bus.Run(t.Context(), r.run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "registry", []any{info.State, info.Verdict, info.LastSeq, info.Versions["child"]}, []any{"done", "success", r.end().Last, "2.1.220"})
	if p, err := r.w.bus.Presence(t.Context(), r.run); err != nil || p != bus.Absent {
		t.Errorf("presence %v %v", p, err)
	}
}

// Two flushes at once ship each run once.
func TestFlushTogether(t *testing.T) {
	var ids []string
	root := ""
	for range 3 {
		r, id := left(t, func(o *ingest.Options) {
			if root != "" {
				o.SpoolRoot = root
			}
		})
		root, ids = r, append(ids, id)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for range 2 {
		wg.Go(func() {
			got := flush(t, root)
			mu.Lock()
			defer mu.Unlock()
			n += len(got)
		})
	}
	wg.Wait()
	equal(t, "reports", n, 3)
	for _, id := range ids {
		rejoin(t, theWorld.history(t, id), event.Out)
	}
}

// edgeRig is an agent under an edge in a process of its own, so that the test can
// kill it.
func edgeRig(t *testing.T, root string) (*rig, *exec.Cmd) {
	t.Helper()
	r := &rig{TB: t, w: theBus(t), root: root, reports: make(chan report, 1024), halves: make(chan int, 1)}
	l, env := listen(t)
	cmd := exec.Command(exe(t))
	opt, _ := json.Marshal(edgeOptions{Args: streamArgs, Socket: strings.TrimPrefix(env[0], socketEnv+"="), Spool: root, URL: r.w.srv.ClientURL()})
	cmd.Env = append(os.Environ(), roleEnv+"=edge", "INGEST_TEST_OPTIONS="+string(opt))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = in.(*os.File)
	cmd.Stdout, cmd.Stderr = r.collect(&r.out), r.collect(&r.err)
	idR, idW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{idW}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []io.Closer{idW, cmd.Stdout.(*os.File), cmd.Stderr.(*os.File)} {
		f.Close()
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		r.conn.Close()
		r.readers.Wait()
	})
	id, err := io.ReadAll(io.LimitReader(idR, 37))
	idR.Close()
	if err != nil {
		t.Fatal(err)
	}
	r.run = strings.TrimSpace(string(id))
	r.accept(l)
	return r, cmd
}

// An edge that is killed leaves a spool without an end. Its child dies with it;
// the flush says what nobody else can: the end, and that the fate of a command
// is unknown. A run that was shown as lost is back.
func TestKilledEdge(t *testing.T) {
	root := filepath.Join(t.TempDir(), "spool")
	r, cmd := edgeRig(t, root)
	r.write(user)
	r.read()
	hello := claude.text("hello")
	r.say(claude.init(), hello)
	r.seen(hello)
	done := r.command("interrupt", "")
	r.say(ack(r.request().ID), claude.aborted())
	r.final(done)
	again := claude.text("again")
	r.say(again)
	r.seen(again)
	open := r.command("interrupt", "")
	req := r.request()
	r.fact(open, event.Written)
	cmd.Process.Kill()
	cmd.Wait()
	for range r.reports { // ends with the child
	}
	_, err := r.w.bus.PutControl(t.Context(), &event.Event{
		Tenant: "acme", Run: r.run, Ref: "lost-1", Time: time.Now(), Type: event.TypeLost, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON, Data: []byte(`{"reason":"presence"}`),
	}, subject.Liveness, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := flush(t, root); len(got) != 1 {
		t.Fatalf("flushed %+v", got)
	}
	evs := r.w.history(t, r.run)
	rejoin(t, evs, event.Out)
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "exit", []any{x.Reason, x.Complete, x.FlushedLater, x.CommandsOpen, x.Code == nil}, []any{"edge_died", false, true, []string{open}, true})
	equal(t, "open command", facts(evs, open), []string{written, "unknown: the edge died before the effect was seen"})
	equal(t, "settled command", facts(evs, done), []string{written, acked, settled})
	for _, e := range evs {
		var f event.CommandFact
		if json.Unmarshal(e.Data, &f) == nil && f.Fact == event.UnknownF {
			equal(t, "request", f.RequestID, req.ID)
		}
	}
	last, _, err := r.w.bus.Control(t.Context(), "acme", r.run, subject.Liveness)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "liveness", last.Type, event.TypeResumed)
	info, err := r.w.bus.Run(t.Context(), r.run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "registry", []any{info.State, info.Verdict, info.LastSeq}, []any{"done", string(run.Interrupted), uint64(len(evs))})
	if p, _ := r.w.bus.Presence(t.Context(), r.run); p != bus.Absent {
		t.Errorf("presence %v", p)
	}
	if got := flush(t, root); len(got) != 0 {
		t.Errorf("flushed again: %+v", got)
	}
	equal(t, "events", len(r.w.history(t, r.run)), len(evs))
}

// What an earlier run left is shipped beside a later one.
func TestNextRunFlushes(t *testing.T) {
	root, id := left(t)
	o := options(t)
	o.SpoolRoot, o.Dialect = root, dialect.Claude
	r := wrap(t, o, streamArgs...)
	evs := r.w.await(t, id, "exit of the earlier run", func(evs []*event.Event) bool { return slices.ContainsFunc(evs, exited) })
	rejoin(t, evs, event.Out)
	r.exit(0)
}

// segments are the files of a spool, in order.
func segments(t testing.TB, root string) []string {
	t.Helper()
	segs, err := filepath.Glob(filepath.Join(root, "*", "*.seg"))
	if err != nil || len(segs) == 0 {
		t.Fatalf("segments: %v %v", segs, err)
	}
	slices.Sort(segs)
	return segs
}

// cut shortens the last segment of the one spool under root, as a power loss may.
func cut(t testing.TB, root string, keep float64) {
	t.Helper()
	segs := segments(t, root)
	last := segs[len(segs)-1]
	info, err := os.Stat(last)
	if err == nil {
		err = os.Truncate(last, int64(float64(info.Size())*keep))
	}
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(filepath.Dir(last), "cursor"))
}

// After a power loss the bus may have more of a run than its spool.
func TestFlushBehindTheBus(t *testing.T) {
	w := theBus(t)
	for _, ended := range []bool{true, false} {
		for _, keep := range []float64{0, 0.5} {
			t.Run(fmt.Sprintf("ended %v, %v kept", ended, keep), func(t *testing.T) {
				root := filepath.Join(t.TempDir(), "spool")
				r, cmd := edgeRig(t, root)
				r.say(claude.init())
				for range 100 {
					r.say(claude.text("hello"))
				}
				last := claude.result()
				r.say(last)
				r.seen(last)
				if ended {
					r.order(order{Op: "exit"})
					cmd.Wait()
					r.await("exit", exited)
				} else {
					cmd.Process.Kill()
					cmd.Wait()
				}
				before := w.history(t, r.run)
				cut(t, root, keep)
				if keep > 0 { // the mark may be lost, too
					os.Remove(filepath.Join(filepath.Dir(segments(t, root)[0]), "ended"))
				}
				flush(t, root)
				evs := w.history(t, r.run)
				rejoin(t, evs, event.Out)
				x := one[event.Exited](t, evs, event.TypeExited)
				equal(t, "reason", x.Reason, map[bool]string{true: "", false: "edge_died"}[ended])
				equal(t, "events", len(evs), len(before)+map[bool]int{true: 0, false: 1}[ended])
				if infos, _ := spool.List(root); len(infos) != 0 {
					t.Errorf("%d spools are left", len(infos))
				}
			})
		}
	}
}

// What a damaged spool has before the damage is shipped; the rest is told as a
// gap, and the run has an end.
func TestFlushDamaged(t *testing.T) {
	t.Run("first segment", func(t *testing.T) { flushDamaged(t, func(segs []string) string { return segs[0] }) })
	t.Run("last segment", func(t *testing.T) { flushDamaged(t, func(segs []string) string { return segs[len(segs)-1] }) })
}

func flushDamaged(t *testing.T, which func(segs []string) string) {
	root, id := left(t, func(o *ingest.Options) { o.SpoolRunMax = 1 << 18 })
	segs := segments(t, root)
	if len(segs) < 2 {
		t.Fatalf("%d segments", len(segs))
	}
	name := which(segs)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := flush(t, root); len(got) != 1 {
		t.Fatalf("flushed %+v", got)
	}
	evs := theWorld.history(t, id)
	rejoin(t, evs, event.Out)
	g := one[event.Gap](t, evs, event.TypeGap)
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "reason", g.Reason, "damaged")
	if g.Frames == 0 || g.Bytes == 0 || x.SpoolDamage == "" || x.Complete || !bytes.Contains(evs[2].Data, []byte("init")) && len(evs) < 5 {
		t.Errorf("gap %+v, exit %+v, %d events", g, x, len(evs))
	}
	equal(t, "exit reason", x.Reason, "spool_damaged")
	equal(t, "last", evs[len(evs)-1].Type, event.TypeExited)
	if got := flush(t, root); len(got) != 0 {
		t.Errorf("flushed again: %+v", got)
	}
}

// A bus that cannot be reached at all is not waited for.
func TestNoBus(t *testing.T) {
	o := options(t)
	o.Dial = func(context.Context) (*bus.Bus, error) { return nil, io.ErrUnexpectedEOF }
	r := wrap(t, o, streamArgs...)
	r.say(claude.init())
	start := time.Now()
	if out := r.exit(0); out.Shipped {
		t.Error("shipped")
	}
	if d := time.Since(start); d > patience/2 {
		t.Errorf("the end took %s", d)
	}
}
