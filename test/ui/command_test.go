package ui

import (
	"strings"
	"testing"
)

// TestInterrupt stops an agent from the page and watches the facts as they come.
func TestInterrupt(t *testing.T) {
	s := newSite(t)
	p := s.start("claude")
	p.say(initFrame(), taskStarted("t1", "nightly"), assistant(words("A long story.")), assistant(call("c1", "Bash", obj{"command": "sleep 600"})))
	b := s.open("/")
	b.login(s.token)
	b.firstRun()
	b.sees(".b-tool", "sleep 600")
	b.press(".interrupt > button", "Interrupt")
	b.run(keys("it goes ", "nowhere"))
	b.shot("panel")
	b.run(keys("\r"))
	line := p.hear(`"subtype":"interrupt"`)
	b.sees(".command .fact", "accepted")
	b.sees(".command .fact", "written")
	b.until("not acked yet", `![...document.querySelectorAll(".command .fact")].some((f) => f.textContent === "acked")`)
	p.say(frame(obj{"type": "control_response", "response": obj{"subtype": "success", "request_id": field(line, "request_id")}}))
	b.sees(".command .fact", "acked")
	b.shot("facts")
	p.say(frame(obj{"type": "user", "session_id": session, "message": obj{"role": "user", "content": []any{words("[Request interrupted by user]")}}}),
		frame(obj{"type": "system", "subtype": "task_notification", "task_id": "t1", "status": "stopped", "session_id": session}),
		frame(obj{"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": session, "terminal_reason": "aborted_streaming", "errors": []any{}}))
	b.sees(".command .state", "settled")
	order := eval[string](b, `[...document.querySelectorAll(".command .fact")].map((f) => f.textContent).join(" ")`)
	if order != "accepted written acked settled" {
		t.Errorf("the facts were shown as %q", order)
	}

	// One fact each in the transcript, too, and a message that reaches the agent.
	b.sees(".b-command", "interrupt: written → acked → settled")
	b.run(focus(".composer textarea"), keys("and now ", "the docs", "\r"))
	if got := p.hear("and now the docs"); !strings.Contains(got, `"type":"user"`) {
		t.Errorf("the agent was told %s", got)
	}
	b.sees(".command", "message")
	p.say(assistant(words("The docs.")), taskStarted("t2", "second"))
	b.press(".task[data-task=t2] button", "Stop")
	stop := p.hear(`"subtype":"stop_task"`)
	p.say(frame(obj{"type": "control_response", "response": obj{"subtype": "success", "request_id": field(stop, "request_id")}}),
		frame(obj{"type": "system", "subtype": "task_notification", "task_id": "t2", "status": "stopped", "session_id": session}))
	b.sees(".task .status", "stopped by")
	p.say(done("ok"))
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	b.sees(".contact", "ended")
	b.until("nothing can be commanded", `document.querySelector(".interrupt > button").disabled && document.querySelector(".composer").hidden`)
	b.clean()
}
