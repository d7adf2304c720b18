package recipes

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/test/program"
)

// The shell of deploy/kubernetes/job.yaml, with the variables of its container: what a killed
// run left is on the bus when the container ends, and its code is the run's.
func TestJobKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a container is played on Linux only")
	}
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repo, "deploy/kubernetes/job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	container := file.Spec.Template.Spec.Containers[0]
	if len(container.Command) != 3 {
		t.Fatalf("command: %q", container.Command)
	}
	g := newGate(t)
	g.open.Store(true)
	// The labels are for the test, which finds the run by them.
	j := recipe{vars: map[string]string{"GITLAB_CI": "true", "CI_PIPELINE_ID": "RUN"}}.newJob(t, "job-1")
	j.path = append(j.path, filepath.Dir(program.Path))
	in := strings.NewReplacer("nats://nats.cbcast.svc:4222", g.url(), "/nats/default-edge.nk", keyOf(natsauth.Edge), "/state", filepath.Join(j.dir, "state"), "/work", filepath.Join(j.dir, "home"))
	for _, e := range container.Env {
		j.env[e.Name] = in.Replace(e.Value)
	}
	if err := os.MkdirAll(filepath.Join(j.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.dir, "kill"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := container.Command[2] // a file takes the place of -c
	if failed := j.run([]phase{{name: "container", argv: container.Command[:1], script: script}}); len(failed) == 0 {
		t.Fatalf("the container ends with 0\n%s", &j.log)
	}
	_, all := events(t, "job-1")
	if len(all) == 0 {
		t.Fatalf("nothing was shipped\n%s", &j.log)
	}
	complete(t, all, true)
}
