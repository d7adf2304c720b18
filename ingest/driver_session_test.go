package ingest_test

import (
	"errors"
	"regexp"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A driven run refuses a conversation that another live run uses; any other run
// says so and goes on.
func TestSessionLease(t *testing.T) {
	const session = "5f0c2f46-95a1-4c12-9f7c-3a2c3d1d9a10"
	w := theBus(t)
	key := subject.Conversation{Tenant: "acme", Dialect: "claude", Session: session}
	resume := func(d *ingest.Drive) { d.Resume.Session = session }

	first := drive(t, options(t), dialect.Claude, resume, "go")
	first.hello()
	first.prompted("go")
	h, err := w.bus.LeaseHolder(t.Context(), key)
	if err != nil || h.Run != first.run {
		t.Fatalf("holder %+v %v, want %s", h, err, first.run)
	}

	o := options(t)
	o.Dialect, o.Drive = dialect.Claude, &ingest.Drive{Prompts: []string{"go"}, Resume: event.Resume{Session: session}}
	if o.Argv, err = o.Drive.Plan([]string{exe(t)}, o.Dialect); err != nil {
		t.Fatal(err)
	}
	started := false
	o.OnStart = func(string) { started = true }
	var held *bus.HeldError
	if _, err := ingest.Run(t.Context(), o); !errors.As(err, &held) || held.Holder.Run != first.run || started {
		t.Fatalf("a second driven run: %v, started %v", err, started)
	}

	o = options(t)
	o.Dialect = dialect.Claude
	second := wrap(t, o, append(streamArgs, "--resume", session)...)
	evs := second.await("conflict", func(e *event.Event) bool { return e.Type == event.TypeConflict })
	equal(t, "conflict", one[event.Conflict](t, evs, event.TypeConflict), event.Conflict{Session: session, Run: first.run})
	st := one[event.Started](t, evs, event.TypeStarted)
	equal(t, "resume", st.Resume, &event.Resume{Session: session})
	equal(t, "shown", second.exit(0).State.View().Resume, &event.Resume{Session: session})
	info, err := w.bus.Run(t.Context(), second.run)
	if err != nil || info.Resume == nil || info.Resume.Session != session {
		t.Errorf("registry: %+v %v", info.Resume, err)
	}

	first.say(claude.init(), claude.text("x"), claude.result())
	first.eof()
	first.exit(0)
	if _, err := w.bus.LeaseHolder(t.Context(), key); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("after the run: %v", err)
	}
	sess := one[event.Started](t, w.history(t, first.run), event.TypeStarted)
	equal(t, "resume", sess.Resume, &event.Resume{Session: session})
}

// Without a bus a driven run goes on, and says that nothing was checked.
func TestSessionWithoutBus(t *testing.T) {
	o := options(t)
	o.Dial = nil
	var said []string
	o.Say = func(s string) { said = append(said, s) }
	r := drive(t, o, dialect.Claude, func(d *ingest.Drive) { d.Resume.Session = "s-1" }, "go")
	r.hello()
	r.prompted("go")
	r.say(claude.init(), claude.text("x"), claude.result())
	r.eof()
	r.exit(0)
	if len(said) != 1 || !regexp.MustCompile(`no bus: .*s-1`).MatchString(said[0]) {
		t.Errorf("said %q", said)
	}
}
