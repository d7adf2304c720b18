package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// load reads a file of deploy/ci as YAML.
func load(t *testing.T, name string, v any) {
	t.Helper()
	if err := yaml.Unmarshal(text(t, name), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func text(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repo, "deploy", "ci", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func secret(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// expression is what stands between ${{ and }}.
var expression = regexp.MustCompile(`\$\{\{\s*([\w.-]+)\s*\}\}`)

// fill puts values into the expressions of text; a name without one fails the test.
func fill(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(text, func(s string) string {
		name := expression.FindStringSubmatch(s)[1]
		v, ok := values[name]
		if !ok {
			t.Fatalf("no value for %s", name)
		}
		return v
	})
}

type step struct {
	Name, If, Shell, Run, Uses string
	Dir                        string `yaml:"working-directory"`
	Env, With                  map[string]string
}

// github runs the steps of the composite action as the example workflow calls it.
func github(t *testing.T, j *job, url, nkey string, have bool) []phase {
	t.Helper()
	var action struct {
		Inputs map[string]struct {
			Required bool
			Default  *string
		}
		Runs struct {
			Using string
			Steps []step
		}
	}
	load(t, "github/action.yml", &action)
	var workflow struct {
		Jobs map[string]struct{ Steps []step }
	}
	load(t, "github/workflow.yml", &workflow)
	values := map[string]string{
		"vars.CBCAST_NATS_URL": url, "secrets.CBCAST_NATS_NKEY": secret(t, nkey), "secrets.ANTHROPIC_API_KEY": "key-of-the-agent",
		"github.action_path": abs(t, "deploy/ci/github"),
	}
	var call *step
	for _, s := range workflow.Jobs["fix"].Steps {
		if s.Uses == "cbcast/cbcast/deploy/ci/github@main" {
			call = &s
		}
	}
	if call == nil {
		t.Fatal("the workflow does not use the action")
	}
	for name, in := range action.Inputs {
		switch {
		case in.Default != nil:
			values["inputs."+name] = *in.Default
		case !in.Required:
			values["inputs."+name] = ""
		}
	}
	for name, v := range call.With {
		if _, ok := action.Inputs[name]; !ok {
			t.Fatalf("the action has no input %s", name)
		}
		values["inputs."+name] = fill(t, v, values)
	}
	if have {
		values["inputs.program"] = filepath.Join(j.path[len(j.path)-1], "cbcast")
		j.path = j.path[:1]
	}
	for k, v := range call.Env {
		j.env[k] = fill(t, v, values)
	}
	if action.Runs.Using != "composite" {
		t.Fatalf("the action is %s", action.Runs.Using)
	}
	was := j.between
	j.between = func(p phase) { // what the step before has left in the runner's files
		j.take("env", "path")
		if was != nil {
			was(p)
		}
	}
	var phases []phase
	for _, s := range action.Runs.Steps {
		switch s.If {
		case "", "always()":
		case "inputs.program == ''":
			if values["inputs.program"] != "" {
				continue
			}
		case "inputs.program != ''":
			if values["inputs.program"] == "" {
				continue
			}
		default:
			t.Fatalf("step %s: if: %s", s.Name, s.If)
		}
		if s.Shell != "bash" || strings.Contains(s.Run, "${{") {
			t.Fatalf("step %s: shell %q, or an input in the text of its script", s.Name, s.Shell)
		}
		p := phase{
			name: strings.ToLower(s.Name), argv: []string{"bash", "--noprofile", "--norc", "-eo", "pipefail"}, script: s.Run,
			env: map[string]string{}, always: s.If == "always()",
		}
		for k, v := range s.Env {
			p.env[k] = fill(t, v, values)
		}
		phases = append(phases, p)
	}
	return phases
}

// take reads what a step wrote into GITHUB_ENV and GITHUB_PATH.
func (j *job) take(env, path string) {
	b, _ := os.ReadFile(filepath.Join(j.dir, env))
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			j.t.Fatalf("line %q in GITHUB_ENV", line)
		}
		j.env[k] = v
	}
	b, _ = os.ReadFile(filepath.Join(j.dir, path))
	for line := range strings.Lines(string(b)) {
		j.path = append([]string{strings.TrimSpace(line)}, j.path...)
	}
	for _, name := range []string{env, path} {
		_ = os.Remove(filepath.Join(j.dir, name))
	}
}

func abs(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(repo, name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gitlab joins the job with the hidden one that it extends. before_script and script are
// one shell, after_script is another.
func gitlab(t *testing.T, j *job, url, nkey string, _ bool) []phase {
	t.Helper()
	type part struct {
		Extends   string
		Variables map[string]string
		Before    []string `yaml:"before_script"`
		Script    []string
		After     []string `yaml:"after_script"`
	}
	var hidden, own map[string]yaml.Node
	load(t, "gitlab/cbcast.gitlab-ci.yml", &hidden)
	load(t, "gitlab/.gitlab-ci.yml", &own)
	var base, agent part
	get := func(m map[string]yaml.Node, name string, p *part) {
		n, ok := m[name]
		if !ok {
			t.Fatalf("no %s", name)
		}
		if err := n.Decode(p); err != nil {
			t.Fatal(err)
		}
	}
	get(own, "agent", &agent)
	get(hidden, agent.Extends, &base)
	j.env["CBCAST_NATS_URL"], j.env["CBCAST_NATS_NKEY"] = url, nkey // variables of the project
	for k, v := range base.Variables {
		j.env[k] = os.Expand(v, func(name string) string { return j.env[name] })
	}
	bash := []string{"bash", "-eo", "pipefail"}
	return []phase{
		{name: "run", argv: bash, script: strings.Join(append(base.Before, agent.Script...), "\n")},
		{name: "after_script", argv: bash, script: strings.Join(base.After, "\n"), always: true},
	}
}

var (
	jenkinsEnv   = regexp.MustCompile(`(?m)^\s+(\w+) = (?:'([^']*)'|credentials\('([^']*)'\))$`)
	jenkinsStage = regexp.MustCompile(`stage\('([^']*)'\)`)
	jenkinsSh    = regexp.MustCompile(`(?s)sh '''\n(.*?)'''`)
)

// jenkins reads what a declarative pipeline has of these three: environment, one stage, post.
func jenkins(t *testing.T, j *job, url, nkey string, _ bool) []phase {
	t.Helper()
	file := string(text(t, "jenkins/Jenkinsfile"))
	if strings.Count(file, "{") != strings.Count(file, "}") {
		t.Fatal("the braces of the Jenkinsfile do not match")
	}
	credentials := map[string]string{"cbcast-nats-nkey": nkey, "anthropic-api-key": "key-of-the-agent"}
	for _, m := range jenkinsEnv.FindAllStringSubmatch(file, -1) {
		v := m[2]
		if m[3] != "" {
			v = credentials[m[3]]
		}
		if m[1] == "CBCAST_NATS_URL" {
			v = url
		}
		if v == "" {
			t.Fatalf("no value for %s", m[1])
		}
		j.env[m[1]] = v
	}
	stages, before, found := strings.Cut(file, "    post {\n        always {\n")
	if !found {
		t.Fatal("no post step that always runs")
	}
	script := func(s string) string {
		m := jenkinsSh.FindAllStringSubmatch(s, -1)
		if len(m) != 1 {
			t.Fatalf("%d scripts", len(m))
		}
		return m[0][1]
	}
	sh := []string{"sh", "-xe"}
	return []phase{
		{name: "run", argv: sh, script: script(stages), env: map[string]string{"STAGE_NAME": jenkinsStage.FindStringSubmatch(stages)[1]}},
		{name: "post", argv: sh, script: script(before), always: true},
	}
}

// buildkite runs the step between the hooks of the repository.
func buildkite(t *testing.T, j *job, url, nkey string, _ bool) []phase {
	t.Helper()
	var pipeline struct {
		Env   map[string]string
		Steps []struct {
			Label, Command string
			Secrets        []string
		}
	}
	load(t, "buildkite/pipeline.yml", &pipeline)
	for k, v := range pipeline.Env {
		j.env[k] = v
	}
	s := pipeline.Steps[0]
	secrets := map[string]string{"CBCAST_NATS_NKEY_SEED": secret(t, nkey), "ANTHROPIC_API_KEY": "key-of-the-agent"}
	for _, name := range s.Secrets {
		j.env[name] = secrets[name]
	}
	j.env["CBCAST_NATS_URL"], j.env["BUILDKITE_LABEL"] = url, s.Label
	j.env["PATH"] = strings.Join(j.path, ":") + ":/usr/bin:/bin"
	hook := func(name string) string {
		f := filepath.Join("buildkite/hooks", name)
		if info, err := os.Stat(filepath.Join(repo, "deploy/ci", f)); err != nil || info.Mode()&0o100 == 0 {
			t.Fatalf("%s is not executable: %v", f, err)
		}
		return string(text(t, f))
	}
	return []phase{
		{name: "pre-command", argv: []string{"bash"}, script: hook("pre-command"), keeps: true},
		{name: "run", argv: []string{"bash", "-e"}, script: s.Command},
		{name: "pre-exit", argv: []string{"bash"}, script: hook("pre-exit"), always: true},
	}
}
