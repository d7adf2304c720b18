package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestAccess looks at what the page shows and offers without a token, with one that
// may only read, with the relay's own, and after logging out.
func TestAccess(t *testing.T) {
	const reader = "a-token-that-reads-and-nothing-else"
	sum := sha256.Sum256([]byte(reader))
	s := newSite(t, "CBCAST_RELAY_CLOSED=true", fmt.Sprintf(`CBCAST_RELAY_TOKENS=[{"name":"reader","sha256":%q,"scopes":["read"]}]`, hex.EncodeToString(sum[:])))
	p := s.start("claude")
	p.say(initFrame(), assistant(words("a secret plan")), ask("q1", "c1", "Bash", obj{"command": "make deploy"}))

	b := s.open("/")
	b.sees(".login", "This relay wants a token")
	b.until("and no run is seen", `document.querySelector("a.run") === null`)
	b.shot("closed")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"))
	b.sees(".login .trouble", "does not know this token")

	b.run(chromedp.SendKeys(chromedp.CSS("#token"), reader+"\r"))
	b.sees("a.run", "asks for approval")
	b.firstRun()
	b.sees(".said", "a secret plan")
	b.sees(".ask .fate", "Log in to answer")
	b.until("nothing can be done", `document.querySelector(".interrupt > button").disabled && document.querySelector(".composer textarea").disabled && [...document.querySelectorAll(".ask [data-act]")].every((x) => x.disabled)`)
	b.until("no script reads the cookie", `document.cookie === "" && localStorage.length === 0 && sessionStorage.length === 0`)

	b.press(".account button", "Log out")
	b.sees(".login", "This relay wants a token")
	b.until("what was seen is gone", `!document.body.textContent.includes("a secret plan")`)

	b.run(chromedp.SendKeys(chromedp.CSS("#token"), s.token+"\r"))
	b.sees(".ask.card", "make deploy")
	b.press(".ask button", "Allow")
	p.hear(`"request_id":"q1"`)
	b.clean()
}

// TestNothing opens what is not there.
func TestNothing(t *testing.T) {
	s := newSite(t)
	b := s.open("/")
	b.sees(".empty", "No runs yet")
	b.shot("empty")
	b.run(goTo("#/run/nothing"))
	b.sees(".empty", "There is no such run")
	b.run(goTo("#/run/%E0%A4%A"))
	b.sees(".empty", "No runs yet")
	b.clean()
}
