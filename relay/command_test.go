package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// The arguments of a command are checked by its name before anything is on the bus.
func TestCommandForm(t *testing.T) {
	r := newRig(t, small())
	r.asking("run-1")
	s := r.relay(relay.Config{})
	order := func(name, args string) string { return fmt.Sprintf(`{"name":%q,"args":%s}`, name, args) }
	for _, body := range []string{
		``, `{}`, `[]`, `{"name":"interrupt","extra":1}`, `{"name":"interrupt","name":"interrupt"}`, `{"Name":"interrupt"}`, `{"name":1}`,
		`{"name":"fly"}`, `{"name":"answer","args":{"ask":"a1","decision":"allow"}}`, `{"name":"interrupt","id":"answer-run-1-a1-1"}`,
		`{"name":"interrupt","id":"a b"}`, `{"name":"interrupt","deliver_within":90000}`, `{"name":"interrupt","effect_within":-1}`,
		order("interrupt", `[]`), order("interrupt", `{"task":"t1"}`), order("interrupt", `{"turn":"now"}`), order("interrupt", `{"escalate":"yes"}`),
		order("interrupt", `{"turn":"keep","escalate":true}`), order("interrupt", `{"Reason":"x"}`), order("interrupt", `{"reason":"x","reason":"y"}`),
		order("interrupt", `{"reason":"`+strings.Repeat("x", 4097)+`"}`),
		order("stop_task", `{}`), order("stop_task", `{"task":""}`), order("stop_task", `{"task":1}`), order("stop_task", `{"task":"a\nb"}`),
		order("message", `{}`), order("message", `{"content":""}`), order("message", `{"content":" \n"}`), order("message", `{"content":[]}`),
		order("message", `{"content":{}}`), order("message", `{"content":[{"type":"tool_result"}]}`), order("message", `{"content":[{"text":"x"}]}`), order("message", `{"content":[{"type":"text"}]}`),
		order("message", `{"content":"x","uuid":"a\u0000"}`), order("message", `{"content":null}`), order("message", `{"content":["x"]}`),
		order("message", `{"content":{"bytes":1,"sha256":"x"}}`), order("message", "{\"content\":\"\xff\"}"),
		order("steer", `{}`), order("steer", `{"content":"x","uuid":"6f0f5c9e-0000-4000-8000-000000000000"}`),
		order("set_permission_mode", `{}`), order("set_permission_mode", `{"mode":"a\u0000"}`), order("set_model", `{"model":""}`),
		order("set_model", `{"model":"`+strings.Repeat("x", 257)+`"}`), order("rewind_files", `{}`), order("rewind_files", `{"checkpoint":"u1","scope":"x"}`),
		order("rewind", `{"scope":"code"}`), order("rewind", `{"checkpoint":"u1","dry_run":1}`), order("end_session", `{"reason":"x"}`),
	} {
		if got := s.post("/v1/runs/run-1/commands", body, nil); got.status != http.StatusBadRequest {
			t.Errorf("%.120s: %d %s", body, got.status, got.body)
		}
	}
	if sent, audited := r.on("run-1"); len(sent)+len(audited) != 0 {
		t.Fatalf("on the bus: %q %q", sent, audited)
	}
	if got := s.post("/v1/runs/none/commands", order("interrupt", `{}`), nil); got.status != http.StatusNotFound {
		t.Errorf("a run that is none: %d", got.status)
	}
	if got := s.do("POST", "/v1/runs/run-1/commands", order("interrupt", `{}`), nil); got.status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", got.status)
	}
	for name, args := range map[string]string{
		"interrupt": `{"reason":"x","turn":"end","escalate":true}`, "stop_task": `{"task":"t1","reason":"x"}`,
		"message": `{"content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","data":"AA=="}}],"uuid":"6f0f5c9e-0000-4000-8000-000000000000"}`,
		"steer":   `{"content":"left"}`, "set_permission_mode": `{"mode":"plan"}`, "set_model": `{"model":"opus"}`,
		"rewind_files": `{"checkpoint":"u1","dry_run":true}`, "rewind": `{"checkpoint":"u1","scope":"both","dry_run":true}`, "end_session": `{}`,
	} {
		got := s.post("/v1/runs/run-1/commands", fmt.Sprintf(`{"id":%q,"name":%q,"args":%s}`, name, name, args), nil)
		var c relay.CommandAccepted
		if got.into(t, &c); got.status != http.StatusAccepted || c.Command != name || c.Name != name || got.header.Get("Location") != "/v1/commands/"+name {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		cmd, err := r.bus.FindCommand(t.Context(), name)
		var have, want any
		if err != nil || json.Unmarshal(cmd.Data, &have) != nil || json.Unmarshal([]byte(args), &want) != nil || cmd.Name != name {
			t.Fatalf("%s: %+v, %v", name, cmd, err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := s.post("/v1/runs/run-1/interrupt", `{"id":"i2","escalate":true}`, nil); got.status != http.StatusAccepted {
		t.Errorf("an interrupt that climbs: %d %s", got.status, got.body)
	}
	if got := s.post("/v1/runs/run-1/stop_task", `{"task":"t1","escalate":true}`, nil); got.status != http.StatusBadRequest {
		t.Errorf("stop_task does not climb: %d", got.status)
	}
}

// The audit fact and the API name every argument but the text of a message.
func TestCommandAudit(t *testing.T) {
	r := newRig(t, small())
	r.asking("run-1")
	s := r.relay(relay.Config{})
	const secret = "the key is under the mat"
	for id, args := range map[string]string{"m1": `{"content":"` + secret + `"}`, "m2": `{"content":[{"type":"text","text":"` + secret + `"}]}`} {
		if got := s.post("/v1/runs/run-1/commands", fmt.Sprintf(`{"id":%q,"name":"message","args":%s}`, id, args), nil); got.status != http.StatusAccepted {
			t.Fatalf("%d %s", got.status, got.body)
		}
		e, _, err := r.bus.Control(t.Context(), tenant, "run-1", subject.Audit(id))
		if err != nil {
			t.Fatal(err)
		}
		shown := s.get("/v1/commands/"+id, nil)
		for what, data := range map[string][]byte{"audit": e.Data, "api": shown.body} {
			var doc struct {
				Args struct{ Content event.Digest }
			}
			if strings.Contains(string(data), "mat") || json.Unmarshal(data, &doc) != nil || doc.Args.Content.Bytes < len(secret) || len(doc.Args.Content.SHA256) != 64 {
				t.Errorf("%s of %s: %s", what, id, data)
			}
		}
	}
}

// What no message can carry is refused, not tried for ever.
func TestCommandTooLarge(t *testing.T) {
	r := newRigOn(t, small(), natsd.Options{MaxPayload: 128 << 10})
	r.asking("run-1", bash(1))
	s := r.relay(relay.Config{})
	long := strings.Repeat("x", 120<<10)
	for path, body := range map[string]string{
		"commands": `{"name":"message","args":{"content":"` + long + `"}}`,
		"asks/a1":  `{"decision":"allow","updated_input":{"command":"` + long + `"}}`,
	} {
		if got := s.post("/v1/runs/run-1/"+path, body, nil); got.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if _, audited := r.on("run-1"); len(audited) != 0 {
		t.Errorf("audited: %q", audited)
	}
	if g := s.reply("run-1", "a1", allow); g != "202 answer-run-1-a1-1" {
		t.Errorf("afterwards: %s", g)
	}
}
