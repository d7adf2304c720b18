package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// theBrowser is one process for all tests; each has its own profile in it.
var theBrowser context.Context

func startBrowser(dir string) (stop func(), err error) {
	opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...),
		chromedp.ExecPath(os.Getenv(envBrowser)), chromedp.UserDataDir(filepath.Join(dir, "browser")),
		chromedp.NoSandbox, // tests run as root in containers; the pages are ours
		chromedp.Flag("headless", "new"), chromedp.Flag("disable-dev-shm-usage", true),
	)
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	if err := chromedp.Do(ctx); err != nil {
		cancelAlloc()
		return nil, fmt.Errorf("start %s: %w", os.Getenv(envBrowser), err)
	}
	theBrowser = ctx
	return func() { cancel(); cancelAlloc() }, nil
}

// A tab is one page of the browser, in a profile of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // exceptions, errors on the console, dialogs
}

// open goes to an address and listens for everything that must not happen there.
func (s *site) open(path string) *tab {
	s.t.Helper()
	b := &tab{t: s.t}
	ctx, cancel := chromedp.NewContext(theBrowser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	s.t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		s.t.Fatal(err)
	}
	b.size(1280, 900)
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		globalThis.violations = [];
		document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));
	`})
	if err != nil {
		s.t.Fatal(err)
	}
	b.run(chromedp.Navigate(s.url + path))
	s.t.Cleanup(func() {
		if s.t.Failed() {
			b.shot("failed")
		}
	})
	return b
}

func (b *tab) listen(ev any) {
	var what string
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		what = "exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			what += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError {
			return
		}
		what = "console:"
		for _, a := range e.Args {
			what += fmt.Sprintf(" %s%s", a.Value, a.Description)
		}
	case *page.EventJavascriptDialogOpening:
		what = "dialog: " + e.Message
		go func() { // ends with the answer
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *page.EventFrameNavigated:
		if e.Frame.ParentID != "" {
			what = "a frame: " + e.Frame.URL
		}
	}
	if what == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, what)
}

// clean fails the test if anything happened that must not.
func (b *tab) clean() {
	b.t.Helper()
	violations := eval[[]string](b, `violations`)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range append(violations, b.said...) {
		b.t.Errorf("in the browser: %s", v)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
}

// until waits for a condition in the page. The page's policy lets nothing poll
// inside of it, so it is asked again and again.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; {
		if eval[bool](b, expression) {
			return
		}
		if time.Now().After(end) {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	text := eval[string](b, `document.body.innerText.slice(0, 3000)`)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Fatalf("waited in vain for: %s (%s)\nthe browser said: %q\nthe page shows:\n%s", what, expression, b.said, text)
}

// sees waits for a text in the elements that a selector finds.
func (b *tab) sees(selector, text string) {
	b.t.Helper()
	b.until(selector+" shows "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.offsetParent !== null && e.textContent.includes(%q))`, selector, text))
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// press activates the element that a selector finds and whose text is label, by
// the keyboard alone: it gets the focus and the Enter key.
func (b *tab) press(selector, label string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find((e) => e.offsetParent !== null && !e.disabled && e.textContent.trim().startsWith(%q))`, selector, label)
	b.until("press "+label, `Boolean(`+find+`)`)
	b.run(chromedp.Evaluate[chromedp.Void](find+`.focus()`), chromedp.KeyEvent("\r"))
}

const (
	edgeMore  = `document.querySelector(".edge button") !== null`
	oldestSeq = `Number(document.querySelector(".block").dataset.seq)`
)

// readOlder asks for what was before, by the keyboard. The focus alone scrolls to
// the top, which asks, too: the button may be gone before the key is pressed.
func (b *tab) readOlder() {
	b.t.Helper()
	oldest := eval[int](b, oldestSeq)
	b.run(evaluate(`document.querySelector(".edge button")?.focus()`), keys("\r"))
	b.until("what was before", fmt.Sprintf(`%s < %d || !(%s)`, oldestSeq, oldest, edgeMore))
}

// login gives the page the token.
func (b *tab) login(token string) {
	b.t.Helper()
	b.press(".account button", "Log in")
	b.until("the form", `document.activeElement?.id === "token"`)
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	b.until("logged in", `document.querySelector(".account").textContent.includes("Log out")`)
}

// shot saves a picture where CBCAST_UI_SHOTS says.
func (b *tab) shot(name string) {
	dir := os.Getenv(envShots)
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Logf("no picture %s: %v", name, err)
		return
	}
	name = strings.ReplaceAll(b.t.Name(), "/", "_") + "-" + name + ".png"
	if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
		b.t.Log(err)
	}
}

// scheme makes the page light or dark.
func (b *tab) scheme(s string) {
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s}}})
}

func (b *tab) size(width, height int64) {
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

func command[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, c, params); err != nil {
		b.t.Fatal(err)
	}
}

func focus(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).focus()`, selector))
}

// keys presses keys, one after the other.
func keys(list ...string) chromedp.Action[chromedp.Void] {
	return chromedp.KeyEvent(strings.Join(list, ""))
}

func evaluate(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](expression)
}

// goTo changes the part of the address that the page goes by.
func goTo(hash string) chromedp.Action[chromedp.Void] {
	return evaluate(fmt.Sprintf(`location.hash = %q`, hash))
}

// runID is the run whose page is open.
func (b *tab) runID() string {
	b.t.Helper()
	return eval[string](b, `decodeURIComponent(location.hash.slice("#/run/".length))`)
}
