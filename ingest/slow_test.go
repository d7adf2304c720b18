package ingest_test

import "testing"

// A command that waits for the child's stdin holds up no other: what is refused
// or expires does so at once, and the rest is written in order.
func TestSlowCommand(t *testing.T) {
	r := session(t, claude)
	r.half(`{"type":"user","message":`) // nothing of ours may be written
	first := r.command("interrupt", "")
	bad := r.command("interrupt", `{"turn":"half"}`)
	equal(t, "refused behind it", r.final(bad), []string{"refused: bad_arguments: turn is end or keep"})
	equal(t, "expired behind it", r.brief("interrupt", ""), []string{"expired: not written: a line before it still waits: context deadline exceeded"})
	last := r.command("interrupt", "")
	r.write(`{"role":"user","content":"x"}}` + "\n")
	r.read()
	a, b := r.request(), r.request()
	r.say(ack(a.ID))
	r.fact(first, "acked")
	r.say(ack(b.ID))
	r.fact(last, "acked")
	r.say(claude.aborted())
	equal(t, "first", r.final(first), []string{written, acked, settled})
	equal(t, "last", r.final(last), []string{written, acked, settled})
	r.exit(0)
}
