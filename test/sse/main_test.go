// Package sse lets other people's SSE clients follow a run: a browser's EventSource,
// libraries for Node and Go, and our own, straight and through nginx, while the relay
// is killed and connections are cut.
//
// `make sse` fetches the libraries and sets CBCAST_SSE_TOOLS to where they are, and
// CBCAST_UI_BROWSER to the browser; without them these tests are skipped. The clients
// are in clients; what docs/clients.md shows is taken from there.
package sse

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cbcast/cbcast/test/program"
)

const (
	envTools   = "CBCAST_SSE_TOOLS"
	envBrowser = "CBCAST_UI_BROWSER"
	envAgent   = "SSE_AGENT" // the socket of the test that speaks for this process

	// patience bounds the wait for what must come.
	patience = 90 * time.Second
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(envAgent); socket != "" {
		os.Exit(agent(socket))
	}
	if os.Getenv(envTools) == "" {
		os.Exit(m.Run()) // what needs the tools skips itself and says how to run it
	}
	os.Exit(program.Main(m, startBrowser))
}

// theBrowser is one process for all tests, nil without one.
var theBrowser context.Context

func startBrowser(dir string) (stop func(), err error) {
	path := os.Getenv(envBrowser)
	if path == "" {
		return func() {}, nil
	}
	opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...),
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dir, "browser")),
		chromedp.NoSandbox, // tests run as root in containers; the pages are ours
		chromedp.Flag("headless", "new"), chromedp.Flag("disable-dev-shm-usage", true),
	)
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	if err := chromedp.Do(ctx); err != nil {
		cancelAlloc()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	theBrowser = ctx
	return func() { cancel(); cancelAlloc() }, nil
}
