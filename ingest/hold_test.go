package ingest_test

import (
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// A parent that closes stdin at once does not cut the run off from commands: the
// EOF waits until nothing is open.
func TestHoldStdin(t *testing.T) {
	o := options(t)
	o.Dialect, o.HoldStdin = dialect.Claude, true
	r := wrap(t, o, streamArgs...)
	r.write(strings.TrimSuffix(user, "\n")) // not even its LF
	r.stdin.Close()
	line, err := r.read()
	if err != nil || line != user {
		t.Fatalf("the message came as %q %v", line, err)
	}
	last := claude.started("w1", "local_workflow")
	r.say(claude.init(), claude.text("hello"), claude.background("w1"), last)
	r.seen(last)
	id := r.command("interrupt", "")
	req := r.request()
	r.say(claude.background(), claude.updated("w1", "killed"), claude.notified("w1", "stopped"), ack(req.ID), claude.aborted())
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	if line, err := r.read(); err == nil {
		t.Fatalf("got %q, want EOF", line)
	}
	equal(t, "after EOF", r.final(r.command("interrupt", "")), []string{allOver})
	r.exit(0)
	st := one[event.Started](t, r.w.history(t, r.run), event.TypeStarted)
	equal(t, "hold_stdin", st.HoldStdin, true)
}

// A host that is silent at first does not lose the hold: only its EOF counts.
func TestHoldWaitsForTheParent(t *testing.T) {
	o := options(t)
	o.Dialect, o.HoldStdin = dialect.Claude, true
	r := wrap(t, o, streamArgs...)
	r.write(initialize)
	r.read()
	r.say(ready)
	ingest.AwaitQuiet(t)
	r.write(user)
	r.stdin.Close()
	r.read()
	hello := claude.text("hello")
	r.say(claude.init(), hello)
	r.seen(hello)
	ingest.AwaitQuiet(t)
	id := r.command("interrupt", "")
	r.say(ack(r.request().ID), claude.aborted())
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	if line, err := r.read(); err == nil {
		t.Fatalf("got %q, want EOF", line)
	}
	r.exit(0)
}

// Without any line of the parent, its EOF shows that no initialize can come.
func TestHoldWithoutInput(t *testing.T) {
	o := options(t)
	o.Dialect, o.HoldStdin = dialect.Claude, true
	r := wrap(t, o, streamArgs...)
	hello := claude.text("hello")
	r.say(claude.init(), hello) // it works on what argv said
	r.seen(hello)
	r.stdin.Close()
	id := r.command("interrupt", "")
	r.say(ack(r.request().ID), claude.aborted())
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	r.exit(0)
}

// An agent that reads its prompt as text waits for EOF: it is not kept from it.
func TestHoldNotForText(t *testing.T) {
	for _, args := range [][]string{
		{"-p", "--output-format", "stream-json"},
		{"-p", "--output-format", "text"},
		{"-p", "--output-format=json"},
	} {
		o := options(t)
		o.Dialect, o.HoldStdin, o.Dial = dialect.Claude, true, nil
		r := wrap(t, o, args...)
		r.write("fix it")
		r.stdin.Close()
		if line, err := r.read(); err != nil || line != "fix it" {
			t.Fatalf("the prompt came as %q %v", line, err)
		}
		if line, err := r.read(); err == nil {
			t.Fatalf("got %q, want EOF", line)
		}
		r.exit(0)
	}
}
