package ingest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// idle ends the turn that session has begun.
func (r *rig) idle(s speaker) {
	r.Helper()
	last := s.result()
	r.say(last)
	r.seen(last)
}

// respond is the child's answer with a body, or an error where body begins
// otherwise.
func respond(id, body string) string {
	if !strings.HasPrefix(body, "{") {
		return `{"type":"control_response","response":{"subtype":"error","request_id":"` + id + `","error":"` + body + `"}}`
	}
	return `{"type":"control_response","response":{"subtype":"success","request_id":"` + id + `","response":` + body + `}}`
}

// last is the detail of a command's last fact.
func last(evs []*event.Event, id string) map[string]string {
	all := details(evs, id)
	return all[len(all)-1]
}

// Each command that is one request and its answer. The answers are those of the
// recordings controls, rewind, steer, f0 and 21, and of the vendor's description
// of a partial success.
func TestRequests(t *testing.T) {
	none := "No checkpoint associated with user message m-1"
	tests := []struct {
		name, command, args string
		s                   speaker
		request, answer     string
		want                []string
		detail              map[string]string
	}{
		{
			name: "mode cbc", s: cbc, command: "set_permission_mode", args: `{"mode":"plan"}`,
			request: `"subtype":"set_permission_mode","session_id":"s-main","mode":"plan"`,
			answer:  `{"session_id":"s-main","mode":"plan","previous_mode":"default","plan_file_path":"/h/p.md"}`,
			want:    []string{written, acked, settled}, detail: map[string]string{"mode": "plan", "previous_mode": "default"},
		},
		{
			name: "mode claude", s: claude, command: "set_permission_mode", args: `{"mode":"acceptEdits"}`,
			request: `"subtype":"set_permission_mode","mode":"acceptEdits"`, answer: `{"mode":"acceptEdits"}`,
			want: []string{written, acked, settled}, detail: map[string]string{"mode": "acceptEdits"},
		},
		{
			name: "mode refused", s: claude, command: "set_permission_mode", args: `{"mode":"bypassPermissions"}`,
			request: `"subtype":"set_permission_mode","mode":"bypassPermissions"`,
			answer:  `Cannot set permission mode to bypassPermissions because the session was not launched with --dangerously-skip-permissions`,
			want: []string{
				written, "refused: the child said: Cannot set permission mode to bypassPermissions because the session was not launched with --dangerously-skip-permissions",
			},
		},
		{
			name: "another mode", s: claude, command: "set_permission_mode", args: `{"mode":"plan"}`,
			request: `"subtype":"set_permission_mode","mode":"plan"`, answer: `{"mode":"bypassPermissions"}`,
			want:   []string{written, acked, "refused: the child is in another mode than was asked for"},
			detail: map[string]string{"mode": "bypassPermissions"},
		},
		{
			name: "model cbc", s: cbc, command: "set_model", args: `{"model":"no-such"}`,
			request: `"subtype":"set_model","session_id":"s-main","model":"no-such"`, answer: `{"session_id":"s-main","model":"no-such","previous_model":"mock-model"}`,
			want: []string{written, acked, settled}, detail: map[string]string{"model": "no-such", "previous_model": "mock-model"},
		},
		{
			name: "dry run cbc", s: cbc, command: "rewind", args: `{"checkpoint":"m-1","scope":"Code","dry_run":true}`,
			request: `"subtype":"rewind","user_message_id":"m-1","dry_run":true,"scope":"Code"`,
			answer:  `{"canRewind":true,"filesChanged":["/w/a.txt","/w/b.txt"],"insertions":3,"deletions":1,"historyRewound":false}`,
			want:    []string{written, acked, settled},
			detail: map[string]string{
				"canRewind": "true", "checkpoint": "m-1", "dry_run": "true", "filesChanged": "2", "files": "/w/a.txt\n/w/b.txt", "insertions": "3", "deletions": "1",
				"historyRewound": "false",
			},
		},
		{
			name: "rewind in part", s: cbc, command: "rewind", args: `{"checkpoint":"m-1"}`,
			request: `"subtype":"rewind","user_message_id":"m-1","dry_run":false`,
			answer:  `{"canRewind":true,"filesChanged":[],"insertions":0,"deletions":0,"historyRewound":true,"fileRewindError":"EACCES: permission denied"}`,
			want:    []string{written, acked, settled},
			detail: map[string]string{
				"canRewind": "true", "checkpoint": "m-1", "filesChanged": "0", "insertions": "0", "deletions": "0", "historyRewound": "true",
				"fileRewindError": "EACCES: permission denied",
			},
		},
		{
			name: "a success that is none", s: cbc, command: "rewind_files", args: `{"checkpoint":"m-1"}`,
			request: `"subtype":"rewind_files","user_message_id":"m-1","dry_run":false`, answer: `{"canRewind":false,"error":"` + none + `"}`,
			want: []string{written, acked, "refused: the child said: " + none}, detail: map[string]string{"canRewind": "false", "checkpoint": "m-1"},
		},
		{
			name: "claude done", s: claude, command: "rewind_files", args: `{"checkpoint":"m-1"}`,
			request: `"subtype":"rewind_files","user_message_id":"m-1","dry_run":false`, answer: `{"canRewind":true,"skippedLinks":0}`,
			want: []string{written, acked, settled}, detail: map[string]string{"canRewind": "true", "checkpoint": "m-1"},
		},
		{
			name: "claude error", s: claude, command: "rewind_files", args: `{"checkpoint":"m-1","dry_run":true}`,
			request: `"subtype":"rewind_files","user_message_id":"m-1","dry_run":true`, answer: `No file checkpoint found for this message.`,
			want: []string{written, "refused: the child said: No file checkpoint found for this message."},
		},
		{
			name: "steer", s: cbc, command: "steer", args: `{"content":"also this"}`,
			request: `"subtype":"steer","session_id":"s-main","content_blocks":[{"type":"text","text":"also this"}]`,
			answer:  `{"session_id":"s-main","steered":true}`, want: []string{written, acked, settled},
		},
		{
			name: "steer while idle", s: cbc, command: "steer", args: `{"content":[{"type":"text","text":"x"}]}`,
			request: `"subtype":"steer","session_id":"s-main","content_blocks":[{"type":"text","text":"x"}]`,
			answer:  `{"session_id":"s-main","steered":false,"reason":"idle"}`, want: []string{written, acked, "no_effect: idle: no turn runs"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := session(t, tt.s)
			id := r.command(tt.command, tt.args)
			req := r.request()
			if want := `"request":{` + tt.request + `}}` + "\n"; !strings.HasSuffix(req.line, want) {
				t.Errorf("request:\n%s\nwant at its end\n%s", req.line, want)
			}
			r.say(respond(req.ID, tt.answer))
			equal(t, "facts", r.final(id), tt.want)
			evs := r.await("an end", func(*event.Event) bool { return true })
			if d := last(evs, id); tt.detail != nil || d != nil {
				equal(t, "detail", d, tt.detail)
			}
			r.exit(0)
			if strings.Contains(r.stdout(), req.ID) {
				t.Error("the parent saw the answer")
			}
		})
	}
}

// A child that does not know a request says so once: from then on it is refused
// with the child's words, and the registry no longer offers it.
func TestUnknownSubtype(t *testing.T) {
	r := session(t, cbc)
	said := "Unknown control request subtype: rewind"
	id := r.command("rewind", `{"checkpoint":"m"}`)
	r.say(respond(r.request().ID, said))
	equal(t, "first", r.final(id), []string{written, "refused: the child said: " + said})
	equal(t, "second", r.final(r.command("rewind", `{"checkpoint":"m"}`)), []string{"refused: unsupported: the child said: " + said})
	id = r.command("rewind_files", `{"checkpoint":"m"}`)
	r.say(respond(r.request().ID, `{"canRewind":true}`))
	equal(t, "another", r.final(id), []string{written, acked, settled})
	out := r.exit(0)
	equal(t, "commands", out.State.Summary().Commands, []string{"interrupt", "message", "steer", "set_permission_mode", "set_model", "rewind_files"})
}

// What cannot be done is refused before anything is written.
func TestCommandRefusals(t *testing.T) {
	for _, tt := range []struct {
		s                speaker
		name, args, want string
	}{
		{claude, "steer", `{"content":"x"}`, "unsupported: a claude child has no steer"},
		{claude, "rewind", `{"checkpoint":"m"}`, "unsupported: a claude child has no rewind"},
		{cbc, "end_session", ``, "unsupported: a cbc child has no end_session"},
		{cbc, "rewind", `{"checkpoint":"m","scope":"Everything"}`, "bad_arguments: scope is one of CodeAndConversation, Code, Conversation"},
		{cbc, "rewind", `{}`, "bad_arguments: rewind needs a checkpoint, the id of a user message"},
		{claude, "rewind_files", `{"checkpoint":"m","scope":"Code"}`, "bad_arguments: rewind_files has no scope; rewind has one"},
		{claude, "set_model", `{}`, "bad_arguments: set_model needs a model of at most 256 bytes"},
		{claude, "set_permission_mode", `{"mode":""}`, "bad_arguments: set_permission_mode needs a mode of at most 256 bytes"},
		{claude, "message", `{}`, "bad_arguments: content is no JSON"},
		{claude, "message", `{"content":[]}`, "bad_arguments: content is empty"},
		{claude, "message", `{"content":"x","uuid":"` + strings.Repeat("u", 65) + `"}`, "bad_arguments: a uuid has at most 64 bytes"},
		{cbc, "steer", `{"content":7}`, "bad_arguments: content must be a text or a list of content blocks"},
	} {
		t.Run(tt.name+" "+tt.args[:min(20, len(tt.args))], func(t *testing.T) {
			r := session(t, tt.s)
			equal(t, "facts", r.final(r.command(tt.name, tt.args)), []string{"refused: " + tt.want})
			r.stdin.Close()
			if line, err := r.read(); err == nil {
				t.Errorf("it was written: %s", line)
			}
			r.exit(0)
		})
	}
}

// end_session is settled by the exit, not by its answer.
func TestEndSession(t *testing.T) {
	r := session(t, claude)
	r.idle(claude)
	id := r.command("end_session", "")
	r.say(`{"type":"control_response","response":{"subtype":"success","request_id":"` + r.request().ID + `"}}`)
	r.fact(id, event.Acked)
	r.exit(0)
	evs := r.await("exit", exited)
	equal(t, "facts", facts(evs, id), []string{written, acked, settled})
	equal(t, "detail", last(evs, id), map[string]string{"child": "ended"})

	r = session(t, claude) // it leaves, but not for us
	id = r.command("end_session", "")
	r.request()
	r.exit(0)
	equal(t, "facts", facts(r.await("exit", exited), id), []string{written, "unknown: the run ended first"})
}

// sent is a user message that the agent read.
type sent struct {
	Type    string `json:"type"`
	UUID    string `json:"uuid"`
	Session string `json:"session_id"`
	Message struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

func (r *rig) userMessage() (m sent) {
	r.Helper()
	line, err := r.read()
	if err != nil || json.Unmarshal([]byte(line), &m) != nil || m.Type != "user" {
		r.Fatalf("want a user message, got %q %v", line, err)
	}
	return m
}

// life is Claude Code's acknowledgement of a message.
func life(uuid, state string) string {
	return claude.frame(`"type":"command_lifecycle","command_uuid":%q,"state":%q`, uuid, state)
}

// Claude Code says what becomes of each message (recordings 06, j9, 58).
func TestMessageClaude(t *testing.T) {
	tests := []struct {
		name string
		say  func(uuid string) []string
		want []string
		last map[string]string
	}{
		{
			name: "a turn of its own",
			say: func(u string) []string {
				return []string{claude.result(), life(u, "started"), claude.init(), claude.text("two"), claude.result(), life(u, "completed")}
			},
			want: []string{written, acked, settled}, last: map[string]string{"turn": "2"},
		},
		{
			name: "folded into the turn that runs",
			say: func(u string) []string {
				return []string{life(u, "started"), claude.text("both"), life(u, "completed"), claude.result()}
			},
			want: []string{written, acked, settled}, last: map[string]string{"turn": "1"},
		},
		{
			name: "cancelled in the queue", say: func(u string) []string { return []string{life(u, "cancelled")} },
			want: []string{written, acked, "no_effect: cancelled"}, last: map[string]string{},
		},
		{
			name: "its turn interrupted",
			say: func(u string) []string {
				return []string{claude.result(), life(u, "started"), claude.init(), claude.text("tw"), claude.aborted(), life(u, "cancelled")}
			},
			want: []string{written, acked, settled}, last: map[string]string{"turn": "2", "outcome": "aborted"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := session(t, claude)
			id := r.command("message", `{"content":[{"type":"text","text":"look é"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}`)
			m := r.userMessage()
			equal(t, "uuid", m.UUID, id)
			equal(t, "session", m.Session, "s-main")
			var blocks []map[string]any
			if err := json.Unmarshal(m.Message.Content, &blocks); err != nil || len(blocks) != 2 || blocks[0]["text"] != "look é" || blocks[1]["type"] != "image" {
				t.Errorf("content: %s", m.Message.Content)
			}
			r.say(life(m.UUID, "queued"))
			r.say(tt.say(m.UUID)...)
			equal(t, "facts", r.final(id), tt.want)
			tt.last["uuid"] = id
			equal(t, "detail", last(r.await("an end", func(*event.Event) bool { return true }), id), tt.last)
			r.exit(0)
		})
	}
}

// A uuid that the child has already would run nothing, and nobody would say so
// (recording 05): it is not written.
func TestMessageRepeated(t *testing.T) {
	r := session(t, claude)
	equal(t, "the host's", r.final(r.command("message", `{"content":"x","uuid":"c-1"}`)), []string{"no_effect: the child has a message with this uuid"})
	id := r.command("message", `{"content":"x","uuid":"mine"}`)
	r.userMessage()
	r.say(life("mine", "queued"), life("mine", "completed"))
	equal(t, "first", r.final(id), []string{written, acked, settled})
	equal(t, "again", r.final(r.command("message", `{"content":"x","uuid":"mine"}`)), []string{"no_effect: the child has a message with this uuid"})
	r.exit(0)
}

// CodeBuddy would lose a message that comes before its first turn has ended, or
// during a later one: it waits at the edge, in order, one at a time.
func TestMessageCBC(t *testing.T) {
	r := session(t, cbc)
	first := r.command("message", `{"content":"one"}`)
	second := r.command("message", `{"content":"two"}`)
	third := r.command("interrupt", "") // commands of another kind do not wait for them
	r.say(ack(r.request().ID))
	r.fact(third, event.Acked)
	equal(t, "facts while a turn runs", len(facts(r.await("x", func(*event.Event) bool { return true }), first)), 0)
	for i, id := range []string{first, second} {
		r.say(cbc.result(), cbc.init()) // an init follows a result
		m := r.userMessage()
		equal(t, "uuid", m.UUID, id)
		r.fact(id, event.Written)
		r.say(cbc.init(), cbc.frame(`"type":"system","subtype":"status","status":null`))
		r.fact(id, event.Acked)
		r.say(cbc.text("answer"))
		if i == 1 {
			r.say(cbc.result())
		}
	}
	equal(t, "first", r.final(first), []string{written, acked, settled})
	evs := r.await("x", func(*event.Event) bool { return true })
	equal(t, "first detail", last(evs, first), map[string]string{"uuid": first, "turn": "2"})
	equal(t, "second", r.final(second), []string{written, acked, settled})
	r.exit(0)
}

// Messages that wait are bounded, expire in their own time and make room.
func TestMessageWaits(t *testing.T) {
	r := session(t, cbc)
	var ids []string
	waits := func() {
		ids = append(ids, r.command("message", fmt.Sprintf(`{"content":"m%d"}`, len(ids))))
	}
	for range 15 {
		waits()
	}
	// Commands are taken in their order: the second of these two comes after all
	// others. On a slow machine the first has expired by then, and it waits itself.
	var early, past []string
	for d := 200 * time.Millisecond; d < patience; d *= 3 {
		a := r.command("message", `{"content":"early"}`, func(c *bus.Command) { c.DeliverBy = c.Time.Add(d) })
		b := r.command("message", `{"content":"x"}`, func(c *bus.Command) { c.DeliverBy = c.Time.Add(2 * d) })
		if early, past = r.final(a), r.final(b); len(past) != 1 || !strings.HasPrefix(past[0], "expired: ") {
			break
		}
	}
	equal(t, "past the bound", past, []string{"refused: too_many_messages"})
	if len(early) != 1 || !strings.HasPrefix(early[0], "expired: not written: the child would lose the line") {
		t.Errorf("early: %v", early)
	}
	waits()
	r.say(cbc.result())
	for i := range ids {
		if m := r.userMessage(); string(m.Message.Content) != fmt.Sprintf(`"m%d"`, i) {
			t.Fatalf("message %d is %s", i, m.Message.Content)
		}
		r.say(cbc.init(), cbc.text("answer"), cbc.result())
	}
	for _, id := range ids {
		if got := r.final(id); got[len(got)-1] != settled {
			t.Errorf("facts: %v", got)
		}
	}
	r.exit(0)
}

// Once the host has ended its side nothing of ours follows, also not what waited,
// and also where the EOF is held back.
func TestMessageAfterEOF(t *testing.T) {
	for name, hold := range map[string]bool{"passed on": false, "held": true} {
		t.Run(name, func(t *testing.T) {
			r := session(t, cbc, func(o *ingest.Options) { o.HoldStdin = hold })
			waits := r.command("message", `{"content":"waits"}`)
			mark := cbc.text("mark")
			r.say(mark)
			r.seen(mark)
			r.stdin.Close()
			equal(t, "that waited", r.final(waits), []string{"refused: stdin_closed"})
			equal(t, "later", r.final(r.command("message", `{"content":"x"}`)), []string{"refused: stdin_closed"})
			r.say(cbc.result())
			if line, err := r.read(); !errors.Is(err, io.EOF) {
				t.Errorf("after the EOF: %q %v", line, err)
			}
			r.exit(0)
		})
	}
}

// The text of a message is recorded where prompts are, and nowhere else.
func TestMessageCapture(t *testing.T) {
	for _, capture := range []string{"control", "all"} {
		t.Run(capture, func(t *testing.T) {
			r := session(t, claude, func(o *ingest.Options) { o.CaptureStdin = capture })
			id := r.command("message", `{"content":"a private matter"}`)
			r.userMessage()
			r.say(life(id, "queued"), life(id, "completed"))
			r.final(id)
			r.exit(0)
			evs := r.await("exit", exited)
			got := slices.ContainsFunc(evs, func(e *event.Event) bool { return strings.Contains(string(e.Data), "a private matter") })
			equal(t, "recorded", got, capture == "all")
			n := 0
			for _, e := range evs {
				var in event.Input
				if e.Type == event.TypeInput && json.Unmarshal(e.Data, &in) == nil && in.UUID == id {
					n++
				}
			}
			equal(t, "noted", n, map[string]int{"control": 1, "all": 0}[capture])
		})
	}
}

// So is that of a steer, whoever sent it.
func TestSteerCapture(t *testing.T) {
	r := session(t, cbc)
	r.write(`{"type":"control_request","request_id":7,"request":{"subtype":"steer","content_blocks":[{"type":"text","text":"a private matter"}]}}` + "\n")
	r.read()
	r.say(`{"type":"control_response","response":{"subtype":"success","request_id":7,"response":{"steered":true}}}`)
	id := r.command("steer", `{"content":"a private matter"}`)
	r.say(respond(r.request().ID, `{"steered":true}`))
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	out := r.exit(0)
	for _, e := range r.await("exit", exited) {
		if strings.Contains(string(e.Data), "a private matter") {
			t.Errorf("it is on event %d: %s", e.Seq, e.Data)
		}
	}
	if c := out.State.View().Counts; c.AcksUnknown != 0 {
		t.Errorf("%d answers are strange", c.AcksUnknown)
	}
}

// A message that the child has taken is awaited for as long as its turn takes.
func TestMessagePatient(t *testing.T) {
	r := session(t, claude)
	var id string
	var by time.Time
	soon := func(c *bus.Command) { c.EffectBy = by }
	for d := 200 * time.Millisecond; d < patience; d *= 3 {
		by = time.Now().Add(d)
		id = r.command("message", `{"content":"long"}`, soon)
		r.userMessage()
		r.say(life(id, "queued"))
		evs := r.w.await(r, r.run, "what became of "+id, func(evs []*event.Event) bool { return len(facts(evs, id)) > 1 })
		if facts(evs, id)[1] == acked {
			break // it was taken in its time
		}
	}
	by = by.Add(100 * time.Millisecond)
	lost := r.command("message", `{"content":"lost"}`, soon)
	r.userMessage()
	equal(t, "not taken", r.final(lost), []string{written, "unknown: no effect seen in time"})
	r.say(life(id, "started"), life(id, "completed"))
	equal(t, "taken", r.final(id), []string{written, acked, settled})
	r.exit(0)
}
