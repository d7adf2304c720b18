package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cb "github.com/cbcast/cbcast/internal/event"
)

// A liveHost is a host that answers asks and interrupts.
type liveHost struct {
	agent    func(*testing.T, *model, ...string) program
	sdk      string
	options  map[string]any
	messages []string
	// wrap puts cbcast between the host and the agent p: with more options, or with
	// more of an environment.
	wrap func(t *testing.T, p program) (options map[string]any, env []string)
}

var liveHosts = map[string]liveHost{
	"claude-agent-sdk for TypeScript": {
		agent: claude, sdk: "@anthropic-ai/claude-agent-sdk/sdk.mjs", messages: []string{"run it, and talk", "talk on"},
		options: map[string]any{"permissionMode": "default", "pathToClaudeCodeExecutable": cli("claude")},
		wrap: func(_ *testing.T, p program) (map[string]any, []string) {
			return map[string]any{"pathToClaudeCodeExecutable": cbcast(), "executableArgs": []string{"run", "--", p.path}}, nil
		},
	},
	// This SDK closes at the first result.
	"codebuddy agent-sdk as executable": {
		agent: cbc117, sdk: "@tencent-ai/agent-sdk/lib/index.js", messages: []string{"run it, and talk"},
		options: map[string]any{"permissionMode": "default", "model": "mock-model"},
		wrap: func(_ *testing.T, p program) (map[string]any, []string) {
			return map[string]any{"executable": cbcast(), "executableArgs": []string{"run", "--", p.path}}, nil
		},
	},
	"codebuddy agent-sdk as cbc.exe": {
		agent: cbc117, sdk: "@tencent-ai/agent-sdk/lib/index.js", messages: []string{"run it, and talk"},
		options: map[string]any{"permissionMode": "default", "model": "mock-model"},
		wrap: func(t *testing.T, _ program) (map[string]any, []string) {
			link := filepath.Join(scratch(t), "cbc.exe")
			if err := os.Symlink(cbcast(), link); err != nil {
				t.Fatal(err)
			}
			return nil, []string{"CODEBUDDY_CODE_PATH=" + link, "CBCAST_CHILD=" + sdk("@tencent-ai/agent-sdk/cli/bin/codebuddy")}
		},
	},
}

// A host with a callback for tools, whose first turn is cut: bare by itself, and
// wrapped by cbcast. It cannot tell, and sees nothing of the other's interrupt. Then
// its own interrupts work as ever.
func TestLiveHosts(t *testing.T) {
	for name, hs := range liveHosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, bare := hs.play(t, nil)
			h := up(t)
			got, wrapped := hs.play(t, h)
			if d := cmp.Diff(normal(t, want, filepath.Dir(bare.dir)), normal(t, got, filepath.Dir(wrapped.dir))); d != "" {
				t.Errorf("messages (-bare +wrapped):\n%s", d)
			}
			if len(want) < 6 {
				t.Errorf("the bare host got %d messages: %q", len(want), want)
			}
			run := h.theRun()
			v := h.show(run)
			if v.Dialect != string(bare.dialect) || len(v.Asks) != 1 || v.Asks[0].Decided == nil || v.Asks[0].Decided.By != "host" {
				t.Errorf("the run is one of %s, with the asks %+v", v.Dialect, v.Asks)
			}
		})
	}
}

// play runs the host to its end and returns its messages.
func (hs *liveHost) play(t *testing.T, h *hub) ([]string, program) {
	t.Helper()
	m := newModel(t)
	p := hs.agent(t, m)
	m.Add(
		turn("tool", p.shell("touch made && echo it-ran")),
		turn("talk", talk, gate("cut")),
		turn("talk on", talk, gate("own")),
	)
	options, env := map[string]any{}, []string{}
	for k, v := range hs.options {
		options[k] = v
	}
	if h != nil {
		more, vars := hs.wrap(t, p)
		for k, v := range more {
			options[k] = v
		}
		env = append(h.env(), vars...)
	}
	b, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"node", filepath.Join(here, "testdata/hosts/live.mjs"), sdk(hs.sdk), string(b)}, hs.messages...)
	s := start(t, p, argv, env...)
	m.await("at cut", 1)
	if h == nil {
		s.write([]byte("cut\n"))
	} else {
		run := h.theRun()
		w := &wrap{hub: h, run: run, events: h.follow(run)}
		if facts := w.facts(h.interrupt(run)); !slices.Contains(facts, string(cb.Settled)) {
			t.Errorf("the interrupt came to %q", facts)
		}
	}
	m.await("left cut", 1)
	if len(hs.messages) > 1 {
		m.await("at own", 1)
		s.write([]byte("own\n"))
	}
	s.wait()
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d of the host", code)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "made")); err != nil {
		t.Error("the allowed tool did not run:", err)
	}
	checkHidden(t, s)
	return hostLines(s.output(), h == nil), p
}

// hostLines are the messages of a host, without those that only say that it
// interrupted the first turn.
func hostLines(out []byte, own bool) []string {
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if i := slices.Index(lines, `{"class":"interrupted"}`); own && i >= 0 {
		lines = slices.Delete(lines, i, i+1)
	}
	return lines
}

// inject gives a command that changes nothing while the agent is held at a gate of
// the model, and waits until it is settled.
func inject(t *testing.T, h *hub, m *model) {
	t.Helper()
	m.await("at hold", 1)
	run := h.theRun()
	var res struct{ Command string }
	body := map[string]any{"name": "set_permission_mode", "args": map[string]any{"mode": "bypassPermissions"}}
	h.call(http.MethodPost, "/v1/runs/"+run+"/commands", body, &res)
	w := &wrap{hub: h, run: run, events: h.follow(run)}
	if facts := w.facts(res.Command); !slices.Contains(facts, string(cb.Settled)) {
		t.Errorf("%s came to %q", res.Command, facts)
	}
	m.Open("hold")
}
