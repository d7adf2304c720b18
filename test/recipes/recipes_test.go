package recipes

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/test/program"
)

// A recipe is one CI: the variables that it sets, and what it makes of the files.
type recipe struct {
	name   string
	vars   map[string]string // DIR stands for the runner's folder, RUN for the run's id in the CI
	labels map[string]string
	// phases reads the files. have says that cbcast is on the machine.
	phases func(t *testing.T, j *job, url, nkey string, have bool) []phase
}

var recipes = []recipe{
	{
		name: "github", phases: github,
		vars: map[string]string{
			"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "agent", "GITHUB_RUN_ID": "RUN", "GITHUB_RUN_NUMBER": "7", "GITHUB_RUN_ATTEMPT": "2",
			"GITHUB_JOB": "fix", "GITHUB_REPOSITORY": "acme/shop", "GITHUB_REF": "refs/heads/main", "GITHUB_REF_NAME": "main", "GITHUB_SHA": "4f5c2d",
			"GITHUB_ACTOR": "alice", "GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_SERVER_URL": "https://github.com", "RUNNER_OS": "Linux",
			"RUNNER_TEMP": "DIR/temp", "GITHUB_WORKSPACE": "DIR/project", "GITHUB_STEP_SUMMARY": "DIR/summary", "GITHUB_ENV": "DIR/env", "GITHUB_PATH": "DIR/path",
		},
		labels: map[string]string{
			"ciprovider": "github", "cirepo": "acme/shop", "ciref": "main", "cisha": "4f5c2d", "ciworkflow": "agent", "cijob": "fix", "cirun": "RUN",
			"ciattempt": "2", "cievent": "workflow_dispatch", "ciactor": "alice", "ciurl": "https://github.com/acme/shop/actions/runs/RUN",
		},
	},
	{
		name: "gitlab", phases: gitlab,
		vars: map[string]string{
			"CI": "true", "GITLAB_CI": "true", "CI_PROJECT_PATH": "acme/shop", "CI_PROJECT_DIR": "DIR/project", "CI_COMMIT_REF_NAME": "main", "CI_COMMIT_SHA": "4f5c2d",
			"CI_PIPELINE_NAME": "agents", "CI_JOB_NAME": "agent", "CI_JOB_ID": "99", "CI_PIPELINE_ID": "RUN", "CI_PIPELINE_SOURCE": "web", "GITLAB_USER_LOGIN": "alice",
			"CI_JOB_URL": "https://gitlab.example.com/acme/shop/-/jobs/99", "CI_BUILDS_DIR": "DIR",
		},
		labels: map[string]string{
			"ciprovider": "gitlab", "cirepo": "acme/shop", "ciref": "main", "cisha": "4f5c2d", "ciworkflow": "agents", "cijob": "agent", "cirun": "RUN",
			"cievent": "web", "ciactor": "alice", "ciurl": "https://gitlab.example.com/acme/shop/-/jobs/99",
		},
	},
	{
		name: "jenkins", phases: jenkins,
		vars: map[string]string{
			"CI": "true", "JENKINS_URL": "https://jenkins.example.com/", "JOB_NAME": "acme/shop", "BUILD_NUMBER": "RUN", "BUILD_ID": "RUN", "BUILD_TAG": "jenkins-acme-shop-7",
			"BUILD_URL": "https://jenkins.example.com/job/acme/7/", "GIT_COMMIT": "4f5c2d", "BRANCH_NAME": "main", "WORKSPACE": "DIR/project", "WORKSPACE_TMP": "DIR/project@tmp",
		},
		labels: map[string]string{
			"ciprovider": "jenkins", "cirepo": "acme/shop", "ciref": "main", "cisha": "4f5c2d", "cijob": "agent", "cirun": "RUN",
			"ciurl": "https://jenkins.example.com/job/acme/7/",
		},
	},
	{
		name: "buildkite", phases: buildkite,
		vars: map[string]string{
			"CI": "true", "BUILDKITE": "true", "BUILDKITE_PIPELINE_SLUG": "shop", "BUILDKITE_PIPELINE_NAME": "Shop", "BUILDKITE_ORGANIZATION_SLUG": "acme",
			"BUILDKITE_BRANCH": "main", "BUILDKITE_COMMIT": "4f5c2d", "BUILDKITE_BUILD_ID": "RUN", "BUILDKITE_JOB_ID": "job-1", "BUILDKITE_RETRY_COUNT": "0",
			"BUILDKITE_SOURCE": "ui", "BUILDKITE_BUILD_CREATOR": "alice", "BUILDKITE_BUILD_URL": "https://buildkite.com/acme/shop/builds/7", "BUILDKITE_BUILD_PATH": "DIR/builds",
		},
		labels: map[string]string{
			"ciprovider": "buildkite", "cirepo": "shop", "ciref": "main", "cisha": "4f5c2d", "ciworkflow": "Shop", "cijob": ":robot_face: agent", "cirun": "RUN",
			"ciattempt": "0", "cievent": "ui", "ciactor": "alice", "ciurl": "https://buildkite.com/acme/shop/builds/7",
		},
	},
}

// newJob is a fresh runner.
func (r recipe) newJob(t *testing.T, run string) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{t: t, dir: dir, env: map[string]string{"HOME": filepath.Join(dir, "home")}}
	for k, v := range r.vars {
		j.env[k] = strings.NewReplacer("DIR", dir, "RUN", run).Replace(v)
	}
	for _, name := range []string{"home", "project", "project@tmp", "temp", "builds"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j.path = []string{j.tools()}
	return j
}

func (r recipe) want(run string) map[string]string {
	w := maps.Clone(r.labels)
	for k, v := range w {
		w[k] = strings.ReplaceAll(v, "RUN", run)
	}
	return w
}

// Each recipe, on a machine without cbcast: the run is on the bus when the agent's step
// ends, with the labels of the CI, and the post step finds nothing left.
func TestRecipes(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			run := r.name + "-1"
			g, j := newGate(t), r.newJob(t, run)
			g.open.Store(true)
			if failed := j.run(r.phases(t, j, g.url(), keyOf(natsauth.Edge), false)); len(failed) > 0 {
				t.Fatalf("failed: %v\n%s", failed, &j.log)
			}
			if !strings.Contains(j.log.String(), "nothing was left in the spool") {
				t.Errorf("the post step says nothing\n%s", &j.log)
			}
			started, all := events(t, run)
			if len(all) == 0 {
				t.Fatalf("the run is not on the bus\n%s", &j.log)
			}
			if diff := cmp.Diff(r.want(run), started.CI); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
			complete(t, all, false)
		})
	}
}

// Each recipe, with cbcast on the machine, no way to the bus while the agent runs, and the
// run's process killed: the job fails, and the post step ships all that was said.
func TestRecipesKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the recipes' runners are played on Linux only")
	}
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			run := r.name + "-2"
			g, j := newGate(t), r.newJob(t, run)
			if err := os.WriteFile(filepath.Join(j.dir, "kill"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j.path = append(j.path, filepath.Dir(program.Path))
			j.between = func(p phase) {
				if !p.always {
					return
				}
				if _, all := events(t, run); len(all) > 0 {
					t.Fatalf("%d events are on the bus before the post step", len(all))
				}
				g.open.Store(true)
			}
			failed := j.run(r.phases(t, j, g.url(), keyOf(natsauth.Edge), true))
			if diff := cmp.Diff([]string{"run"}, failed); diff != "" {
				t.Fatalf("failed phases (-want +got)\n%s\n%s", diff, &j.log)
			}
			started, all := events(t, run)
			if len(all) == 0 {
				t.Fatalf("the post step shipped nothing\n%s", &j.log)
			}
			if diff := cmp.Diff(r.want(run), started.CI); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
			complete(t, all, true)
		})
	}
}
