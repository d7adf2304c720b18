package kill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// A sealed is an archive under test: a program, or two, and what was published for it.
type sealed struct {
	*world
	dest string
	arch *part
	runs map[string]*bulk
}

// newSealed starts an archive that seals what is old enough.
func newSealed(t *testing.T, age string, env ...string) *sealed {
	w := newWorld(t)
	s := &sealed{world: w, dest: filepath.Join(w.dir, "kept"), runs: map[string]*bulk{}}
	s.arch = w.part("archive", append([]string{"CBCAST_ARCHIVE_ADDR=127.0.0.1:0", "CBCAST_ARCHIVE_DEST=" + s.dest, "CBCAST_ARCHIVE_SEAL_AGE=" + age}, env...)...)
	s.arch.start()
	return s
}

// A bulk is a run of events of a size.
type bulk struct {
	id   string
	n    uint64
	size int
}

func (b *bulk) event(n uint64) *event.Event {
	data := fmt.Appendf(nil, `{"run":%q,"n":%d,"text":"`, b.id, n)
	rnd := rand.New(rand.NewPCG(n, uint64(len(b.id)))) // so that blocks are large, too
	for len(data) < b.size {
		data = strconv.AppendUint(data, rnd.Uint64(), 36)
	}
	return &event.Event{
		Tenant: tenant, Run: b.id, Seq: n, Time: time.Unix(1e9, int64(n)).UTC(), Type: "dev.cbcast.claude.assistant",
		Kind: event.Msg, Stream: event.Out, ContentType: event.JSON, Data: append(data, `"}`...),
	}
}

func (b *bulk) Event(n uint64) (*event.Event, bool, error) {
	if n > b.n {
		return nil, false, nil
	}
	return b.event(n), true, nil
}

func (b *bulk) Wait(_ context.Context, n uint64) error {
	if n > b.n {
		return bus.ErrDone
	}
	return nil
}
func (b *bulk) Acked(uint64) {}

// publish adds events to a run.
func (s *sealed) publish(id string, n uint64, size int) {
	s.t.Helper()
	if s.runs[id] == nil {
		s.runs[id] = &bulk{id: id, size: size}
	}
	s.runs[id].n += n
	s.again(id)
}

// again publishes a run, which costs nothing for what the bus has.
func (s *sealed) again(id string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), long)
	defer cancel()
	for {
		p := &bus.Publisher{Bus: s.bus, Ref: bus.Ref{Tenant: tenant, Run: id}, Source: s.runs[id]}
		err := p.Run(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil {
			s.t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// has waits until the archive has all events of runs.
func (s *sealed) has(ids ...string) {
	s.t.Helper()
	place, err := (&archive.Config{Dest: s.dest}).Open()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range ids {
		for deadline := time.Now().Add(long); ; {
			i, err := place.Reader().Run(s.t.Context(), tenant, id)
			if err == nil && i.LastSeq == s.runs[id].n {
				break
			}
			if time.Now().After(deadline) {
				s.t.Fatalf("%s is not archived: %+v, %v", id, i, err)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
}

// whole compares the archive with what was published: each event once, in order, with its
// bytes; and has it verified by the program.
func (s *sealed) whole() {
	s.t.Helper()
	if out, err := s.run(s.arch.env, "archive", "verify", "--deep"); err != nil {
		s.t.Errorf("the archive is not whole: %v\n%s", err, out)
	}
	place, err := (&archive.Config{Dest: s.dest}).Open()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range sorted(s.runs) {
		n := uint64(0)
		for r, err := range place.Reader().Records(s.t.Context(), segment.Query{Tenant: tenant, Run: id}) {
			if err != nil {
				s.t.Fatal(err)
			}
			if n++; r.Seq != n || !bytes.Equal(r.Data, s.runs[id].event(n).Data) {
				s.t.Errorf("%s has event %d where %d belongs, or another", id, r.Seq, n)
				break
			}
		}
		if n != s.runs[id].n {
			s.t.Errorf("%s has %d events, %d were published", id, n, s.runs[id].n)
		}
	}
}

// The archive is killed again and again while large events are published, most of which are in
// memory only and not sealed for seconds. Nothing that was acked is missing.
func TestArchiveKilledBetweenSeals(t *testing.T) {
	t.Parallel() // it waits most of the time
	rounds := 1
	if os.Getenv("CBCAST_KILL") == "long" {
		rounds = 40
	}
	s := newSealed(t, "6s")
	kills := 0
	for round := range rounds {
		for step := range 5 {
			for r := range 4 {
				s.publish(fmt.Sprintf("r%d-%d", round, r), uint64(1+rand.N(4)), 200_000)
			}
			<-time.After(rand.N(1500 * time.Millisecond))
			if step == 2 {
				<-time.After(5 * time.Second) // so that something is sealed, too
			}
			s.arch.kill()
			s.arch.start()
			kills++
		}
	}
	s.caughtUp(s.arch, "EV_0")
	s.arch.stop()
	t.Logf("%d runs, %d kills", len(s.runs), kills)
	s.whole()
}

// The stream is deleted and made anew under a running archive, or the whole server begins anew;
// then the archive is killed. What comes after is archived, what edges send again is not twice.
func TestArchiveOfAStreamMadeAnew(t *testing.T) {
	for _, what := range []string{"stream", "server"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSealed(t, "1s")
			s.publish("before", 200, 500)
			s.has("before")
			s.caughtUp(s.arch, "EV_0")
			s.publish("open", 20, 100_000) // read perhaps, and not sealed
			switch what {
			case "stream":
				if err := s.js.DeleteStream(t.Context(), subject.EventStream(0)); err != nil {
					t.Fatal(err)
				}
			case "server":
				s.beginAnew()
			}
			for deadline := time.Now().Add(long); ; {
				_, err := s.bus.Ensure(t.Context(), bus.Topology{MaxBytes: 2 << 30})
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
				<-time.After(20 * time.Millisecond)
			}
			s.again("open") // its edge has it in the spool
			s.publish("after", 100, 500)
			<-time.After(rand.N(1500 * time.Millisecond))
			s.arch.kill()
			s.arch.start()
			s.publish("after", 100, 500)
			s.has("before", "open", "after")
			s.caughtUp(s.arch, "EV_0")
			s.arch.stop()
			s.whole()
		})
	}
}

// beginAnew replaces the server by one without anything, at the same address.
func (w *world) beginAnew() {
	w.t.Helper()
	port, err := strconv.Atoi(w.url[strings.LastIndexByte(w.url, ':')+1:])
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Shutdown(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.server, err = natsd.Start(natsd.Options{Dir: filepath.Join(w.dir, "anew"), MaxStore: 4 << 30, Port: port})
	if err != nil {
		w.t.Fatal(err)
	}
}

// Two archives: the second takes over when the first is killed, and when it is stopped; the
// first then goes on where it was, beside the other. Nothing is there twice, and nothing is
// missing.
func TestArchiveTakenOver(t *testing.T) {
	t.Parallel()
	s := newSealed(t, "1s")
	s.publish("a", 100, 2000)
	s.has("a")
	second := s.part("archive", append(slices.Clone(s.arch.env),
		"CBCAST_STATE_DIR="+filepath.Join(s.dir, "second"),
		"CBCAST_ARCHIVE_SIGNING_KEY_FILE="+filepath.Join(s.dir, "archive", "archive", "signing.pem"))...)
	second.start()
	second.get("/livez")
	s.publish("b", 50, 2000)
	if os.Getenv("CBCAST_KILL") == "long" { // the server misses the first after 15 s
		s.arch.kill()
		s.publish("c", 50, 2000)
		s.has("a", "b", "c") // by the second
		s.arch.start()
		s.arch.get("/livez")
		s.arch, second = second, s.arch
	}

	signal := func(p *part, sig syscall.Signal) {
		t.Helper()
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	s.publish("d", 20, 100_000)
	signal(s.arch, syscall.SIGSTOP)
	s.publish("e", 50, 2000)
	s.has(sorted(s.runs)...) // by the second
	signal(s.arch, syscall.SIGCONT)
	for i := range 10 { // the first believes to be the one that reads
		s.publish(fmt.Sprintf("f%d", i), 20, 2000)
		s.publish("d", 1, 100_000)
	}
	signal(second, syscall.SIGSTOP)
	s.publish("g", 50, 2000)
	signal(second, syscall.SIGCONT)
	s.arch.kill()
	s.publish("h", 50, 2000)
	s.has(sorted(s.runs)...)
	s.caughtUp(second, "EV_0")
	second.stop()
	s.whole()
}
