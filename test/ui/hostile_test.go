package ui

import (
	"strings"
	"testing"
)

// wide names elements that reach beyond the window.
const wide = `[...document.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.getAttribute("class")).slice(0, 20).join(" ")`

// TestHostile has an agent say everywhere what would run, redraw, forge or break
// in a page that trusts it.
func TestHostile(t *testing.T) {
	s := newSite(t)
	p := s.start("claude", "GITHUB_ACTIONS=true", "GITHUB_REPOSITORY=<img src=x onerror=alert(1)>", "GITHUB_RUN_ID=1", "GITHUB_SERVER_URL=javascript:alert(2)//")
	evil := []string{
		`<script>alert("script")</script><img src=x onerror=alert("img")><svg onload=alert("svg")>`,
		`<a href="javascript:alert(1)">javascript:alert(1)</a> [x](javascript:alert(2)) https://evil.example/`,
		"\u202egnp.exe\u202c and \u2066isolated\u2069 \u200b\ufeff\u00ad",
		"\x1b[31mred\x1b[0m \x00 \x7f \u0085 \u2028 \u2029 ",
		"\n\ndata: {\"forged\":true}\nid: 999999\nevent: ask\n\n",
		"`</style></textarea></pre><iframe srcdoc=\"<script>alert(3)</script>\"></iframe>`",
		strings.Repeat("W", 20_000),
		"__proto__", "constructor", "%s%n${7*7}{{7*7}}",
		strings.Repeat("Z\u0300\u0301\u0302\u0303\u0304", 200),
	}
	all := strings.Join(evil, " ")
	p.say(
		frame(obj{"type": "system", "subtype": "init", "session_id": session, "claude_code_version": "2.1.220", "model": all[:200], "permissionMode": evil[0], "cwd": evil[2]}),
		frame(obj{"type": "<script>", "subtype": "x\nid: 999999\nevent: ask", "session_id": session}),
	)
	for i, e := range evil {
		id := "c" + string(rune('a'+i))
		p.say(assistant(words(e), call(id, e, obj{"command": e, e: e})), result(id, e, i%2 == 0), delta(e), assistant(words(e)),
			frame(obj{"type": "user", "session_id": session, "message": obj{"role": "user", "content": e}}),
			frame(obj{"type": "system", "subtype": "informational", "content": e, "session_id": session}),
			frame(obj{"type": "error", "error": obj{"message": e}}))
	}
	p.say(`{"type":"assistant","session_id":"`+session+`","message":{"role":"assistant","content":[{"type":"text","text":"lone \ud800 surrogate"},null,7,{"type":["x"]},{"type":"text","text":{"a":1}}]}}`,
		`{"type":"assistant","message":"not an object"}`, `{"type":"user","message":null}`, `{"type":"stream_event","event":null}`, `{"type":"result","result":{"x":[1]},"session_id":"`+session+`"}`,
		"no json at all <b>bold</b> \x1b[2J", `["an array"]`, `"a string"`, `{"type":{"a":1}}`)
	p.say(taskStarted("t<1>", evil[0]), taskStarted("__proto__", evil[1]))
	agents := []obj{}
	for i, e := range evil {
		agents = append(agents, obj{"index": i, "phaseIndex": 1, "phaseTitle": e, "label": e, "agentId": e, "state": e, "error": e, "resultPreview": e, "lastToolName": e, "model": e, "startedAt": 1.7e12, "durationMs": -5})
	}
	p.say(workflow("t<1>", agents...))
	p.say(ask("q1", "cz", evil[0], obj{"command": all, "old_string": evil[0], "new_string": evil[1], "file_path": evil[2]}),
		ask("q2", "cy", "AskUserQuestion", obj{"questions": []any{obj{"question": evil[0], "header": evil[1], "multiSelect": true, "options": []any{obj{"label": evil[2], "description": evil[0]}, obj{"label": evil[5], "description": evil[6]}}}}}),
		frame(obj{"type": "control_request", "request_id": "q3", "session_id": session, "request": obj{"subtype": "elicitation", "message": evil[0], "requested_schema": obj{
			"type": "object", "properties": obj{"__proto__": obj{"type": "string"}, evil[0]: obj{"type": "string", "title": evil[1], "description": evil[5], "default": evil[2]}, "e": obj{"enum": []any{evil[0], evil[4]}}},
		}}}),
		assistant(words("the last word")))

	b := s.open("/")
	b.sees("a.run .sub", "<img src=x onerror=alert(1)>")
	b.login(s.token)
	b.firstRun()
	b.until("everything was read", `[...document.querySelectorAll(".said")].some((e) => e.textContent === "the last word")`)
	b.until("the asks are there", `document.querySelectorAll(".ask.card").length === 3`)
	b.until("the timeline is", `document.querySelectorAll(".k-agent").length > 0`)
	b.run(evaluate(`for (const d of document.querySelectorAll("details")) d.open = true; for (const r of document.querySelectorAll(".row")) r.focus();`))
	b.sees(".said", `<script>alert("script")</script>`)
	b.sees(".said", "⟨U+202E⟩gnp.exe")
	b.sees(".said", "␛[31mred")
	b.shot("hostile")
	for what, expression := range map[string]string{
		"scripts":      `document.querySelectorAll("script").length === 1`,
		"pictures":     `document.querySelectorAll("img").length === 1`,
		"frames":       `document.querySelectorAll("iframe, object, embed, base, meta[http-equiv], style, form[action]").length === 0`,
		"links":        `[...document.querySelectorAll("a")].every((a) => a.getAttribute("href").startsWith("#"))`,
		"handlers":     `[...document.querySelectorAll("*")].every((e) => [...e.attributes].every((a) => !a.name.startsWith("on") && a.name !== "srcdoc" && !a.value.startsWith("javascript:")))`,
		"inputs":       `[...document.querySelectorAll("input, textarea")].every((e) => !/[\u202a-\u202e\u2066-\u2069]/.test(e.value + e.placeholder))`,
		"direction":    `!/[\u202a-\u202e\u2066-\u2069\u200b\ufeff]/.test(document.body.textContent)`,
		"the title":    `!/[\u202a-\u202e\u0000-\u001f]/.test(document.title)`,
		"width":        `document.documentElement.scrollWidth <= innerWidth`,
		"forged event": `![...document.querySelectorAll(".block")].some((e) => Number(e.dataset.seq) >= 999999)`,
		"prototype":    `({}).forged === undefined && Object.prototype.hasOwnProperty("type") === false`,
	} {
		if !eval[bool](b, expression) {
			t.Errorf("%s: %s does not hold; beyond the edge: %s", what, expression, eval[string](b, wide))
		}
	}
	b.size(390, 844)
	b.until("narrow: nothing runs out at the side", `document.documentElement.scrollWidth <= innerWidth`)
	b.shot("narrow")
	b.run(goTo("#/"))
	b.until("the list, too", `document.querySelector("a.run") !== null && document.documentElement.scrollWidth <= innerWidth`)
	b.clean()
}
