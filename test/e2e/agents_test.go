package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
)

const path = "PATH=/usr/local/bin:/usr/bin:/bin"

// claude is Claude Code on model m, on stream-json unless args say otherwise.
func claude(t *testing.T, m *model, args ...string) program {
	t.Helper()
	home, dir := home(t)
	if args == nil {
		args = []string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"}
	}
	return program{
		dialect: dialect.Claude, path: cli("claude"), dir: dir,
		args: append(args, "--permission-mode", "bypassPermissions"),
		env: []string{
			path, "HOME=" + home, "TMPDIR=" + home, "CLAUDE_CODE_TMPDIR=" + home, "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/bash",
			"ANTHROPIC_API_KEY=sk-ant-dummy-not-a-key", "ANTHROPIC_BASE_URL=http://" + m.addr, "IS_SANDBOX=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
			"DISABLE_ERROR_REPORTING=1", "DISABLE_BUG_COMMAND=1",
		},
	}
}

// cbc is cbc 2.163.0 on model m, on stream-json unless args say otherwise.
func cbc(t *testing.T, m *model, args ...string) program {
	t.Helper()
	return codebuddy(t, m, []string{cli("cbc")}, args)
}

// cbc117 is cbc 2.117.0, which knows no task frames.
func cbc117(t *testing.T, m *model, args ...string) program {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	m.Pace(700 * time.Millisecond)
	return codebuddy(t, m, []string{node, sdk("@tencent-ai/agent-sdk/cli/dist/codebuddy-headless.js")}, args)
}

// sdk is a file of a fetched package of node.
func sdk(name string) string { return filepath.Join(cli("node"), "node_modules", name) }

func codebuddy(t *testing.T, m *model, argv, args []string) program {
	t.Helper()
	home, dir := home(t)
	conf, err := json.Marshal(map[string]any{
		"models": []map[string]any{{
			"id": "mock-model", "name": "Mock", "vendor": "Local", "url": "http://" + m.addr + "/v1/chat/completions",
			"apiKey": "dummy", "maxInputTokens": 200000, "maxOutputTokens": 8192, "supportsToolCall": true,
		}},
		"availableModels": []string{"mock-model"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".codebuddy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".codebuddy", "models.json"), conf, 0o600); err != nil {
		t.Fatal(err)
	}
	if args == nil {
		args = []string{"--input-format", "stream-json", "--output-format", "stream-json", "--verbose"}
	}
	return program{
		dialect: dialect.CBC, path: argv[0], dir: dir,
		args: append(append(argv[1:], args...), "--model", "mock-model", "--setting-sources", "none", "--permission-mode", "bypassPermissions"),
		env: []string{
			path, "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/bash",
			"CODEBUDDY_API_KEY=dummy", "CODEBUDDY_REMOTE_CONFIG_DISABLED=1", "DISABLE_AUTOUPDATER=1",
		},
	}
}

// codex is the app-server of Codex on model m.
func codex(t *testing.T, m *model, args ...string) program {
	t.Helper()
	home, dir := home(t)
	conf := fmt.Sprintf(`model = "gpt-5.5"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = "http://%s/v1"
wire_api = "responses"
env_key = "MOCK_API_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
[features]
default_mode_request_user_input = true
multi_agent_v2 = true
`, m.addr)
	if err := os.Mkdir(filepath.Join(home, ".codex"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".codex", "config.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if args == nil {
		args = []string{"app-server"}
	}
	return program{
		dialect: dialect.Codex, path: cli("codex/bin/codex"), args: args, dir: dir,
		env: []string{
			path, "HOME=" + home, "CODEX_HOME=" + filepath.Join(home, ".codex"), "TMPDIR=" + home, "LANG=C.UTF-8", "TERM=dumb",
			"SHELL=/bin/bash", "MOCK_API_KEY=dummy",
		},
	}
}

// asking is p where it asks before it uses a tool.
func (p program) asking() program {
	p.args = slices.Clone(p.args)
	p.asks = true
	if i := slices.Index(p.args, "bypassPermissions"); i >= 0 {
		p.args[i] = "default"
	}
	if p.dialect == dialect.Claude {
		p.args = append(p.args, "--permission-prompt-tool", "stdio")
	}
	return p
}

// argv is the command line of p, by itself or wrapped.
func (p program) argv(wrapped bool) []string {
	argv := append([]string{p.path}, p.args...)
	if wrapped {
		argv = append([]string{cbcast(), "run", "--dialect", string(p.dialect), "--"}, argv...)
	}
	return argv
}
