package ui

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// list is the way from the list of runs to the newest one's page.
func (b *tab) firstRun() {
	b.t.Helper()
	b.until("a run in the list", `document.querySelector("a.run") !== null`)
	b.press("a.run", "")
	b.until("the run's page", `location.hash.startsWith("#/run/")`)
}

// TestLive follows a workflow with many agents while it goes on.
func TestLive(t *testing.T) {
	s := newSite(t)
	p := s.start("cbc")
	start := time.Now().Add(-95 * time.Second).UnixMilli()
	agents := func(n int) []obj {
		var list []obj
		for i := range n {
			phase := []string{"Gather", "Review", "Write"}[min(2, i/24)]
			a := obj{
				"index": i, "label": fmt.Sprintf("%s-%02d", map[string]string{"Gather": "read", "Review": "check", "Write": "draft"}[phase], i), "phaseIndex": min(2, i/24) + 1, "phaseTitle": phase,
				"agentId": fmt.Sprint("a", i), "startedAt": start + int64(i*1200), "tokens": 900 + 37*i, "toolCalls": i % 7, "lastToolName": "Read", "model": "claude-haiku-4",
			}
			switch {
			case i%17 == 5:
				a["state"], a["attempt"], a["error"], a["durationMs"] = "error", 3, "the model's API said 529 three times", 9000
			case i < n-9:
				a["state"], a["durationMs"] = "done", 6000+i%11*1700
				if i%13 == 3 {
					a["attempt"] = 2
				}
			default:
				a["state"] = "progress"
			}
			list = append(list, a)
		}
		return list
	}
	p.say(initFrame(), assistant(words("I start the workflow.")), assistant(call("c1", "Workflow", obj{"script": "export const meta = { name: 'nightly' }"})),
		taskStarted("t1", "nightly review"), workflow("t1", agents(30)...))
	b := s.open("/")
	b.sees(".run .cell-state", "working")
	b.shot("list")
	b.firstRun()
	b.sees(".timeline", "running")
	b.until("30 agents", `document.querySelectorAll(".k-agent").length === 30`)
	p.say(workflow("t1", agents(60)...))
	b.until("60 agents", `document.querySelectorAll(".k-agent").length === 60`)
	b.until("live bars", `document.querySelectorAll(".k-agent.l-run").length === 8`)
	b.sees(".contact", "live")

	// By keyboard: one row is in the tab order, the arrows go on, what is there is told in words.
	b.run(focus(".picture .row[tabindex='0']"), keys(kb.ArrowDown, kb.ArrowDown, kb.ArrowDown, kb.ArrowDown))
	b.sees(".timeline .detail", "Gather")
	b.shot("workflow")

	// A text that is being written is there before it is whole, and once when it is.
	p.say(delta("The review "), delta("finds three "))
	b.sees(".block.draft", "The review finds three")
	p.say(delta("problems."), assistant(words("The review finds three problems.")))
	b.until("the whole text, once", `document.querySelectorAll(".draft").length === 0 && [...document.querySelectorAll(".said")].filter((e) => e.textContent.includes("The review finds three")).length === 1`)

	p.say(assistant(call("c2", "Bash", obj{"command": "go test ./...", "description": "run the tests"})))
	b.sees(".b-tool", "go test ./...")
	p.say(result("c2", "ok  \texample\t0.2s", false))
	b.until("the result's mark", `[...document.querySelectorAll(".b-tool")].some((e) => e.textContent.includes("go test") && e.querySelector(".mark.done"))`)
	b.until("folded", `![...document.querySelectorAll(".b-tool")].some((e) => e.textContent.includes("0.2s"))`)
	b.press(".b-tool:has(.done) summary", "✓")
	b.sees(".b-tool .inside", "0.2s")

	p.say(taskOver("t1", "completed"), done("All done."))
	b.sees(".task .status", "completed")
	b.sees(".b-turn", "turn done")
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	b.sees(".run-head .badge", "success")
	b.sees(".contact", "ended")
	b.shot("ended")
	b.scheme("dark")
	b.shot("dark")
	b.size(390, 844)
	b.shot("narrow")
	b.clean()
}
