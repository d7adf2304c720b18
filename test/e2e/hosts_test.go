package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/test/mockmodel"
)

// A host is a program that starts an agent through an SDK.
type host struct {
	link  string // the agent's name, also of the link to cbcast
	agent func(*testing.T, *model, ...string) program
	argv  func(cli string) []string
}

const prompt = "say hello"

var hosts = map[string]host{
	"claude-agent-sdk for Python": {"claude", claude, func(path string) []string {
		return []string{cli("python/bin/python3"), "testdata/hosts/claude.py", path, prompt}
	}},
	"codebuddy-agent-sdk for Python": {"cbc", cbc, func(path string) []string {
		return []string{cli("python/bin/python3"), "testdata/hosts/cbc.py", path, prompt}
	}},
	"claude-agent-sdk for TypeScript": {"claude", claude, func(path string) []string {
		return []string{"node", "testdata/hosts/claude.mjs", cli("node/node_modules/@anthropic-ai/claude-agent-sdk/sdk.mjs"), path, prompt}
	}},
}

// A host that starts a link named like the agent, which leads to cbcast, gets the
// same messages as from the agent itself, also while cbcast gives a command of its
// own; and the run is on the bus, the one that there is: asking for the version, as
// claude-agent-sdk for Python does first, is none.
func TestHosts(t *testing.T) {
	for name, hs := range hosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns := func() []mockmodel.Turn {
				return []mockmodel.Turn{
					turn("hello", call("Bash", map[string]any{"command": "echo from the shell"})),
					turn("bye", gate("hold"), say("hello, and a second line\nof text")),
				}
			}
			m := newModel(t, turns()...)
			m.Open("hold")
			p := hs.agent(t, m)
			want := <-runHost(t, p, hs.argv(p.path))

			h := up(t)
			link := filepath.Join(scratch(t), hs.link)
			if err := os.Symlink(cbcast(), link); err != nil {
				t.Fatal(err)
			}
			m = newModel(t, turns()...)
			w := hs.agent(t, m)
			lines := runHost(t, w, hs.argv(link), append(h.env(), "CBCAST_CHILD="+p.path)...)
			inject(t, h, m)
			got := <-lines

			run := h.theRun()
			events := h.follow(run) // logged when something differs
			<-events.done
			if d := cmp.Diff(normal(t, want, filepath.Dir(p.dir)), normal(t, got, filepath.Dir(w.dir))); d != "" {
				t.Errorf("messages (-bare +wrapped):\n%s", d)
			}
			if len(want) < 4 {
				t.Errorf("the bare host got %d messages: %q", len(want), want)
			}
			if st := h.show(run); st.Dialect != hs.link {
				t.Errorf("the run's dialect is %q, want %q", st.Dialect, hs.link)
			}
			var list struct{ Runs []struct{ Run string } }
			if h.call(http.MethodGet, "/v1/runs", nil, &list); len(list.Runs) != 1 {
				t.Errorf("there are %d runs", len(list.Runs))
			}
		})
	}
}

// runHost runs a host to its end, which is when its lines come.
func runHost(t *testing.T, p program, argv []string, env ...string) <-chan []string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range argv {
		if strings.HasPrefix(a, "testdata/") {
			argv[i] = filepath.Join(here, a)
		}
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(append([]string{"PYTHONDONTWRITEBYTECODE=1"}, p.env...), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines := make(chan []string, 1)
	go func() {
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %v\n%s\n%s", argv, err, out, stderr.String())
		}
		lines <- strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	}()
	return lines
}

var (
	ids   = regexp.MustCompile(`00-[0-9a-f]{32}-[0-9a-f]{16}-01|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(msg|toolu|req)_mock_\d+|[0-9a-f]{32}`)
	clock = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	// timed are the keys whose numbers differ from run to run.
	timed = regexp.MustCompile(`_ms$|_at$|^ttft|time|cost|duration|tokens`)
)

// normal makes the messages of two runs comparable: without ids, times, and the
// home directory.
func normal(t *testing.T, lines []string, home string) []any {
	t.Helper()
	var out []any
	for _, l := range lines {
		l = strings.ReplaceAll(l, home, "/home")
		l = strings.ReplaceAll(l, strings.ReplaceAll(home, "/", "-"), "-home")
		l = clock.ReplaceAllString(ids.ReplaceAllString(l, "ID"), "TIME")
		var v any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("the host wrote %q: %v", l, err)
		}
		out = append(out, untimed(v))
	}
	return out
}

func untimed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if _, number := e.(float64); number && timed.MatchString(k) {
				v[k] = 0
			} else {
				v[k] = untimed(e)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = untimed(e)
		}
	}
	return v
}
