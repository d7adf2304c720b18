package ingest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// policed gives an edge a policy.
func policed(t testing.TB, text string) func(*ingest.Options) {
	name := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *ingest.Options) {
		o.Policy = name
		o.Labels = map[string]string{"cirepo": "forks/app"}
	}
}

// decisions are those of the policy, in short.
func decisions(t testing.TB, evs []*event.Event) (out []string) {
	t.Helper()
	for _, e := range evs {
		var d event.AutoDecided
		if e.Type != event.TypeDecision {
			continue
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Error(err)
		}
		equal(t, "kind", e.Kind, event.Ask)
		out = append(out, strings.TrimSpace(strings.Join([]string{d.Ask, d.Tool, d.Decision, d.Cause, d.Rule, d.Error}, " ")))
	}
	return out
}

// neverWaits folds events one by one: not at any of them is the run waiting.
func neverWaits(t testing.TB, evs []*event.Event) {
	t.Helper()
	s := run.New("r")
	for _, e := range evs {
		if s.Apply(e); s.Phase() == "waiting" {
			t.Errorf("the run waits at event %d: %s", e.Seq, e.Type)
		}
	}
}

const rules = `{"rules":[
	{"name":"reads","tool":"Read*","then":"allow"},
	{"name":"status","tool":"Bash","command":"git (status|diff)( [a-z]+)*","then":"allow"},
	{"name":"forks","command":".*make deploy.*","repo":"forks/*","then":"deny","message":"not from a fork"},
	{"name":"elsewhere","tool":"Write","repo":"main/*","then":"allow"},
	{"name":"nobody","tool":"Write","tenant":"other","then":"allow"},
	{"tool":"Glob","then":"ask"},
	{"name":"all of that","tool":"Glob","then":"deny"},
	{"name":"yes to all","tool":"AskUserQuestion","then":"allow"}]}`

// The first rule of which everything matches decides, and what it decides is never
// waited for.
func TestPolicyRules(t *testing.T) {
	tests := []struct {
		name, tool, input string
		decision          string // as written: allow, deny or nothing
		want              string // the decision's event
	}{
		{"tool", "ReadFile", `{}`, "allow", "a1 ReadFile allow rule reads"},
		{"deferred tool", "DeferExecuteTool", `{"toolName":"Read","params":{}}`, "allow", "a1 Read allow rule reads"},
		{"command", "Bash", `{"command":"git status src"}`, "allow", "a1 Bash allow rule status"},
		{"the whole command", "Bash", `{"command":"git status; rm -rf /"}`, "", ""},
		{"one line", "Bash", `{"command":"git status\nrm -rf /"}`, "", ""},
		{"no command", "Bash", `{}`, "", ""},
		{"repo", "Bash", `{"command":"cd x\nmake deploy"}`, "deny", "a1 Bash deny rule forks"},
		{"other repo and tenant", "Write", `{"file_path":"x"}`, "", ""},
		{"ask", "Glob", `{}`, "", ""},
		{"question", "AskUserQuestion", `{"questions":[{"question":"Which?"}]}`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := session(t, cbc, policed(t, rules))
			r.say(ask(`"q1"`, tt.tool, tt.input))
			if tt.decision == "" {
				r.seen(`"q1"`)
				r.quietly()
				r.exit(0)
				evs := r.w.history(t, r.run)
				equal(t, "decisions", len(decisions(t, evs)), 0)
				equal(t, "state", view(evs).Asks[0].Closed.Reason, "run_ended")
				return
			}
			_, body := r.heard()
			equal(t, "written", strings.HasPrefix(body, `{"allowed":true`), tt.decision == "allow")
			if tt.decision == "deny" {
				equal(t, "denied", body, `{"allowed":false,"reason":"not from a fork"}`)
			}
			r.say(cbc.toolResult(`"q1"`, tt.decision == "deny"), cbc.result())
			r.stdin.Close()
			r.exit(0)
			evs := r.w.history(t, r.run)
			equal(t, "decisions", decisions(t, evs), []string{tt.want})
			neverWaits(t, evs)
			a := view(evs).Asks[0]
			rule := tt.want[strings.LastIndex(tt.want, "rule ")+5:]
			if a.Decided.By != "policy" || a.Decided.Rule != rule || a.Closed.Reason != "policy" || a.Written == nil {
				t.Errorf("ask %+v, decided %+v", a, a.Decided)
			}
			id := "policy-" + r.run + "-a1"
			equal(t, "facts", facts(evs, id), []string{written, settled})
		})
	}
}

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                          "",
		rules:                         "",
		timeouts:                      "",
		`{"rules":[{"then":"alow"}]}`: `rule 1: then "alow"`,
		`{"rules":[{"name":"x","tool":"[","then":"deny"}]}`:        `rule x: tool "["`,
		`{"rules":[{"command":"(","then":"deny"}]}`:                "rule 1: command",
		`{"rules":[{"tol":"Read","then":"allow"}]}`:                "unknown field",
		`{"timeouts":{"approvals":{"after":"1h","then":"deny"}}}`:  "use approval or question",
		`{"timeouts":{"approval":{"after":"soon","then":"deny"}}}`: `after "soon"`,
		`{"timeouts":{"approval":{"after":"1ms","then":"deny"}}}`:  `after "1ms"`,
		`{"timeouts":{"approval":{"after":"1h","then":"allow"}}}`:  `then "allow"`,
		`{} {}`: "behind the object",
		``:      "EOF",
		`{"rules":` + strings.Repeat(" ", 2<<20) + `[]}`: "longer than",
	} {
		_, err := ingest.ParsePolicy([]byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	c := ingest.Config{Policy: filepath.Join(t.TempDir(), "none")}
	if _, err := c.LoadPolicy(); err == nil {
		t.Error("a policy that is not there was taken for none")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Policy = pipe
	if _, err := c.LoadPolicy(); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}
