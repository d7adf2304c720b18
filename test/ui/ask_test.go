package ui

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestAsks answers what an agent asks from the page, by keyboard, each way there is.
// (Cases 060 and 062.)
func TestAsks(t *testing.T) {
	s := newSite(t)
	policy := filepath.Join(s.dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"rules":[{"name":"reads","tool":"Read","then":"allow"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := s.start("claude", "CBCAST_POLICY="+policy)
	p.say(initFrame(), assistant(words("I read first."), call("c0", "Read", obj{"file_path": "/etc/hosts"})), ask("q0", "c0", "Read", obj{"file_path": "/etc/hosts"}))
	p.hear(`"request_id":"q0"`) // the policy says yes
	p.say(result("c0", "127.0.0.1 localhost", false), assistant(call("c1", "Bash", obj{"command": "make deploy ENV=staging", "description": "deploy to staging"})),
		ask("q1", "c1", "Bash", obj{"command": "make deploy ENV=staging", "description": "deploy to staging"}))

	b := s.open("/")
	b.sees("a.run.waits .why", "asks for approval")
	b.until("the title counts it", `document.title.startsWith("(1)")`)
	b.shot("waiting")
	b.firstRun()
	b.sees(".ask.card", "make deploy ENV=staging")
	b.until("one is open, not the one that the policy decided", `document.querySelectorAll(".ask.card").length === 1`)
	b.sees(".fate", "Log in to answer")
	b.until("no button acts", `[...document.querySelectorAll(".ask [data-act]")].every((x) => x.disabled)`)

	// Somebody who reloads the page while it is open sees it again.
	b.run(chromedp.Reload())
	b.sees(".ask.card", "make deploy ENV=staging")
	b.login(s.token)
	b.sees(".ask.card", "make deploy ENV=staging")
	b.shot("approval")
	b.press(".ask button", "Allow")
	if got := p.hear(`"request_id":"q1"`); !strings.Contains(got, `"behavior":"allow"`) {
		t.Errorf("the agent was told %s, want a yes", got)
	}
	b.sees(".ask .fate", "Decided: allow")
	p.say(result("c1", "deployed", false))
	b.until("the form goes", `document.querySelectorAll(".ask.card").length === 0`)
	b.sees(".history", "asks before")

	// Questions with options, one and several, and an answer of one's own.
	p.say(assistant(call("c2", "AskUserQuestion", obj{})), ask("q2", "c2", "AskUserQuestion", obj{"questions": []any{
		obj{"question": "Which library?", "header": "Lib", "multiSelect": false, "options": []any{obj{"label": "React", "description": "the usual one"}, obj{"label": "Vue", "description": "the other"}}},
		obj{"question": "Which checks?", "header": "Checks", "multiSelect": true, "options": []any{obj{"label": "lint", "description": ""}, obj{"label": "test", "description": ""}}},
		obj{"question": "Anything else?", "header": "More", "multiSelect": false, "options": []any{obj{"label": "No", "description": ""}, obj{"label": "Yes", "description": ""}}},
	}}))
	b.sees(".question legend", "Which library?")
	b.press(".ask button", "Answer")
	b.sees(".ask .trouble", "Every question needs an answer")
	b.run(focus("#a3-0-1"), keys(" "), focus("#a3-1-0"), keys(" "), focus("#a3-1-1"), keys(" "), focus("#a3-2-other"), keys("mind the docs"))
	b.shot("questions")
	b.press(".ask button", "Answer")
	got := p.hear(`"request_id":"q2"`)
	for _, want := range []string{`"Which library?":"Vue"`, `"Which checks?":"lint, test"`, `"Anything else?":"mind the docs"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the agent was told %s, want %s in it", got, want)
		}
	}
	p.say(result("c2", "thanks", false))
	b.sees(".b-ask", "answered: Vue; lint, test; mind the docs")

	// A no with a message. What somebody types stays while the run goes on.
	p.say(assistant(call("c3", "Bash", obj{"command": "rm -rf build"})), ask("q3", "c3", "Bash", obj{"command": "rm -rf build"}))
	b.sees(".ask.card", "rm -rf build")
	b.press(".ask button", "Deny")
	b.run(keys("not on this "))
	p.say(assistant(words("meanwhile")))
	b.sees(".said", "meanwhile")
	b.run(keys("branch"))
	b.shot("deny")
	b.press(".ask .no button", "Deny")
	if got := p.hear(`"request_id":"q3"`); !strings.Contains(got, "not on this branch") || !strings.Contains(got, `"behavior":"deny"`) {
		t.Errorf("the agent was told %s, want a no with the message", got)
	}
	p.say(result("c3", "not on this branch", true))

	// A plan; somebody else is first.
	p.say(assistant(call("c4", "ExitPlanMode", obj{"plan": "1. read\n2. write"})), ask("q4", "c4", "ExitPlanMode", obj{"plan": "1. read\n2. write"}))
	b.sees(".ask.card .plan", "1. read")
	s.post("/v1/runs/"+b.runID()+"/asks/a5", `{"decision":"deny","message":"no"}`, http.StatusAccepted)
	p.hear(`"request_id":"q4"`)
	p.say(result("c4", "no", true))
	b.until("its form goes, too", `document.querySelectorAll(".ask.card").length === 0`)
	b.run(focus(".history summary"), keys("\r"))
	b.sees(".past li", "deny through cbcast")
	b.until("that a question was answered is said once", `[...document.querySelectorAll(".past li, .b-ask")].some((e) => e.textContent.includes("answered")) && ![...document.querySelectorAll(".past li, .b-ask")].some((e) => e.textContent.split("answered").length > 2)`)
	b.sees(".past li", "allow by the policy")

	// A form of an MCP server.
	p.say(frame(obj{"type": "control_request", "request_id": "q5", "session_id": session, "request": obj{
		"subtype": "elicitation", "mcp_server_name": "tickets", "message": "Which ticket?", "mode": "form",
		"requested_schema": obj{"type": "object", "required": []any{"title"}, "properties": obj{
			"title": obj{"type": "string", "title": "Title"}, "points": obj{"type": "integer", "minimum": 1}, "urgent": obj{"type": "boolean"}, "kind": obj{"type": "string", "enum": []any{"bug", "chore"}},
		}},
	}}))
	b.sees(".ask.card", "Which ticket?")
	b.press(".ask button", "Send")
	b.sees(".ask .trouble", "is needed")
	b.run(chromedp.SendKeys(chromedp.CSS(`.ask input[type=text]`), "Crash"), chromedp.SendKeys(chromedp.CSS(`.ask input[type=number]`), "3"), focus(".ask input[type=checkbox]"), keys(" "))
	b.shot("elicitation")
	b.press(".ask button", "Send")
	if got := p.hear(`"request_id":"q5"`); !strings.Contains(got, `"title":"Crash"`) || !strings.Contains(got, `"points":3`) || !strings.Contains(got, `"urgent":true`) {
		t.Errorf("the agent was told %s, want what was filled in", got)
	}
	p.say(done("ok"))
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "ended")
	b.clean()
}
