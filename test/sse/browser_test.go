package sse

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/chromedp/chromedp"
)

// plainSource is an EventSource as it stands in every introduction.
const plainSource = `{
	const source = new EventSource("/v1/runs/%[1]s/stream");
	for (const kind of ["life", "msg", "task", "end", "ask", "cmd", "raw", "gap", "reset", "lost", "resumed"]) {
		source.addEventListener(kind, (e) => lines.push([kind, e.lastEventId || "-", e.data.length, JSON.parse(e.data).id ?? "-"].join(" ")));
	}
	source.onerror = () => source.readyState === EventSource.CLOSED && lines.push("end");
}`

// recipeSource is the one of docs/clients.md, which follows.
const recipeSource = `follow("%[1]s", (kind, event, e) =>
	lines.push(kind === "over" ? "end" : [kind, e.lastEventId || "-", e.data.length, event.id ?? "-"].join(" ")));`

// browse follows in a tab of the browser, a page of the road's own address.
func (s *site) browse(name, script, run string, r road) *stream {
	s.t.Helper()
	st := newStream(name, r)
	ctx, cancel := chromedp.NewContext(theBrowser)
	s.t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		s.t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, patience)
	defer stop()
	recipe, err := os.ReadFile("clients/browser.js")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := chromedp.Do(short, chromedp.Navigate("http://"+r.addr+"/login")); err != nil {
		s.t.Fatalf("%s: %v", st.name, err)
	}
	if err := chromedp.Do(short, chromedp.Evaluate[chromedp.Void]("globalThis.lines = [];"+string(recipe)+fmt.Sprintf(script, run))); err != nil {
		s.t.Fatalf("%s: %v", st.name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for { // a page cannot call: it is asked, over and over
			lines, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`lines.splice(0)`))
			if err != nil {
				return
			}
			for _, l := range lines {
				st.tell(l)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return st
}

// logIn gives the browser a session. Its cookie is good for all ports of an address.
func (s *site) logIn() {
	s.t.Helper()
	ctx, cancel := chromedp.NewContext(theBrowser)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate("http://"+s.addr+"/login")); err != nil {
		s.t.Fatal(err)
	}
	token, _ := json.Marshal(map[string]string{"token": s.token})
	ask := fmt.Sprintf(`{
		const init = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(%s)};
		globalThis.answered = 0;
		fetch("/v1/session", init).then((r) => { globalThis.answered = r.status; });
	}`, token)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](ask)); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		status, err := chromedp.Run(ctx, chromedp.Evaluate[int](`answered`))
		switch {
		case err != nil || status >= 300 || time.Now().After(end):
			s.t.Fatalf("log in: %d %v", status, err)
		case status > 0:
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}
