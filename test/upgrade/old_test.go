package upgrade

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/test/program"
)

// oldCommit is the version that a deployment is upgraded from.
const oldCommit = "62e43280bbe987b07268eb69504161141a383c2c"

// old builds that version from the repository's history, once: the program is kept in the
// user's cache. The fixtures are tested without it, too.
func old(t *testing.T) string {
	t.Helper()
	if os.Getenv("CBCAST_UPGRADE") == "" {
		t.Skip("make upgrade builds the version before this one and tests both together")
	}
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", oldCommit+"^{tree}").Run(); err != nil {
		t.Fatalf("commit %.7s is not in this clone (git fetch --unshallow gets it): %v", oldCommit, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	dir := filepath.Join(cache, "cbcast-ci", "old")
	bin := filepath.Join(dir, "cbcast-"+oldCommit)
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	src, err := os.MkdirTemp(dir, "src")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(src)
	script := `git -C "$1" archive "$2" | tar -x -C "$3" && cd "$3" && go build -o cbcast ./cmd/cbcast`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", "../..", oldCommit, src).CombinedOutput(); err != nil {
		t.Fatalf("build %.7s: %v\n%s", oldCommit, err, out)
	}
	if err := os.Rename(filepath.Join(src, "cbcast"), bin); err != nil {
		t.Fatal(err)
	}
	return bin
}

// agent plays claude: it says a line, waits, and gives way to an interrupt.
const agent = `#!/bin/sh
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  case $line in
  *'"subtype":"initialize"'*)
    id=${line#*'"request_id":"'}
    say '{"type":"control_response","response":{"subtype":"success","request_id":"'"${id%%\"*}"'","response":{"commands":[]}}}'
    ;;
  *'"type":"user"'*)
    say '{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220"}'
    say '{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"at work"}]},"session_id":"s1","uuid":"u1"}'
    ;;
  *'"subtype":"interrupt"'*)
    id=${line#*'"request_id":"'}
    say '{"type":"control_response","response":{"subtype":"success","request_id":"'"${id%%\"*}"'"}}'
    say '{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","session_id":"s1","uuid":"r1","num_turns":1}'
    ;;
  esac
done
`

// In a rolling upgrade, and back: the relay of one version shows the runs of the other's
// edge, interrupts them and hears of it, on streams that either has made, and both have the
// same events.
func TestOldAndNew(t *testing.T) {
	was := old(t)
	for _, c := range []struct {
		name, edge, relay, streams string
	}{
		{"old edge, new relay, old streams", was, program.Path, was},
		{"new edge, old relay, old streams", program.Path, was, was},
		{"new edge, old relay, new streams", program.Path, was, program.Path},
		{"old edge, new relay, new streams", was, program.Path, program.Path},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nats := "CBCAST_NATS_URL=" + startServer(t)
			newParty(t, c.streams, t.TempDir(), nats).output("provision")
			relay := newParty(t, c.relay, t.TempDir(), nats)
			edge := newParty(t, c.edge, t.TempDir(), nats)
			tools := t.TempDir()
			if err := os.WriteFile(filepath.Join(tools, "claude"), []byte(agent), 0o700); err != nil {
				t.Fatal(err)
			}
			at := relay.up()
			run := edge.command("run", "--prompt", "go", "--output", "none", "--", filepath.Join(tools, "claude"))
			var stderr strings.Builder
			run.Stderr = &stderr
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			id := ""
			relay.until("a run is listed", func() bool {
				var list struct{ Runs []struct{ Run string } }
				if relay.try(http.MethodGet, at+"/v1/runs", &list) == nil && len(list.Runs) == 1 {
					id = list.Runs[0].Run
				}
				return id != ""
			})
			one := at + "/v1/runs/" + id
			relay.until("the agent works", func() bool {
				var page struct{ Events []struct{ Type string } }
				return relay.try(http.MethodGet, one+"/events", &page) == nil &&
					slices.ContainsFunc(page.Events, func(e struct{ Type string }) bool { return strings.HasSuffix(e.Type, ".assistant") })
			})
			var order struct{ Command string }
			relay.ask(http.MethodPost, one+"/interrupt", &order)
			var v view
			relay.until("the run ends", func() bool {
				v = view{}
				return relay.try(http.MethodGet, one, &v) == nil && v.State.State == "done"
			})
			if v.verdict() != "interrupted" {
				t.Errorf("the verdict is %q\n%s", v.verdict(), &stderr)
			}
			if err := run.Wait(); run.ProcessState.ExitCode() != 5 {
				t.Errorf("the edge: %v\n%s", err, &stderr)
			}
			var facts struct{ State string }
			relay.ask(http.MethodGet, at+"/v1/commands/"+order.Command, &facts)
			if facts.State != "settled" {
				t.Errorf("the command is %q", facts.State)
			}
			if a, b := relay.output("tail", "--raw", "last"), edge.output("tail", "--raw", "last"); a != b || !strings.Contains(a, "at work") {
				t.Errorf("one version reads\n%s\nthe other\n%s", a, b)
			}
		})
	}
}
