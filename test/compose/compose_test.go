package compose

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/relay/client"
	"github.com/cbcast/cbcast/test/program"
)

// engine is the compose command, rulesFile what notify reads; both come from test/compose/run.
var engine, rulesFile = os.Getenv("CBCAST_COMPOSE"), os.Getenv("CBCAST_COMPOSE_RULES")

func TestMain(m *testing.M) {
	if engine == "" {
		fmt.Println("docker-compose.yml is not started: run `make compose-test`")
		os.Exit(m.Run())
	}
	os.Exit(program.Main(m, nil))
}

const (
	relayURL = "http://127.0.0.1:8420"
	secret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of this test's webhook
	patience = 4 * time.Minute                          // for what happens; a safety net
)

// TestFleet has one wrapped run through the cluster, while a NATS server and a relay are
// stopped in the middle and come back: nothing is lost, one notice is sent, and what is
// archived is whole.
func TestFleet(t *testing.T) {
	if engine == "" {
		t.Skip("no engine: run `make compose-test`")
	}
	told := receive(t)
	compose(t, "up", "-d")
	waitFor(t, "the relays", func() error { return get(relayURL+"/readyz", nil) })
	secrets := filepath.Join(t.TempDir(), "secrets")
	docker(t, "cp", container(t, "setup")+":/secrets", secrets)
	admin, err := os.ReadFile(filepath.Join(secrets, "tokens", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(admin))

	// The agent speaks, is followed, and loses servers.
	a := speak(t, secrets)
	told.run = a.run
	heard := a.follow(t, client.Client{URL: relayURL, Token: token})
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v\n%s", err, a.stderr.String())
	}
	if a.stdout.String() != a.want {
		t.Errorf("the parent got %d bytes, the child wrote %d", a.stdout.Len(), len(a.want))
	}
	// But for the account, which never leaves the machine, the stream has every byte.
	if !redact.Matches([]byte(a.want), heard.out, heard.spans) || len(heard.spans) != 1 || heard.spans[0].Rule != "account" {
		t.Errorf("the stream has %d bytes of stdout, the child wrote %d; masked is %v", len(heard.out), len(a.want), heard.spans)
	}
	t.Logf("%d events, %d frames, with a NATS server and a relay away", heard.events, heard.frames)

	waitFor(t, "the notice", told.one)
	archived(t, a.run, heard)
	scraped(t)
	healthy(t)
	if err := told.one(); err != nil { // still
		t.Error(err)
	}
	compose(t, "down", "-t", "10")
	if out := must(t, "docker", "volume", "ls", "-q", "--filter", "dangling=true"); slices.ContainsFunc(strings.Fields(out), func(v string) bool { return !strings.Contains(v, "_") }) {
		t.Errorf("volumes without a name are left:\n%s", out)
	}
}

// archived waits until the archive has all of a run, byte for byte, and verifies it.
func archived(t *testing.T, run string, heard *record) {
	t.Helper()
	archive := func(args ...string) []string {
		return composed(append([]string{"exec", "-T", "archive", "/cbcast", "archive"}, args...)...)
	}
	waitFor(t, "the archive", func() error {
		got, err := output(archive("export", run, "--format", "cloudevents")...)
		if n := strings.Count(got, "\n"); err != nil || n != heard.events {
			return fmt.Errorf("%d events of %d: %v", n, heard.events, err)
		}
		return nil
	})
	if got := must(t, archive("cat", run)...); got != string(heard.out) {
		t.Errorf("the archive has %d bytes of stdout, the stream %d", len(got), len(heard.out))
	}
	t.Log(must(t, archive("verify", "--public-key", "/secrets/archive/signing.pub.pem", "--heads", "/state/heads")...))
}

// scraped waits until Prometheus has the figures of every program, and the run is counted.
func scraped(t *testing.T) {
	t.Helper()
	for query, want := range map[string]map[string]string{
		`sum(cbcast_runs_finished_total{verdict="success"})`: {"": "1"},
		`up`: {"metrics:8421": "1", "notify:8422": "1", "archive:8423": "1", "relay-1:8420": "1", "relay-2:8420": "1"},
	} {
		waitFor(t, "Prometheus: "+query, func() error {
			var r struct {
				Data struct {
					Result []struct {
						Metric struct{ Instance string }
						Value  [2]any
					}
				}
			}
			if err := get("http://127.0.0.1:9090/api/v1/query?"+url.Values{"query": {query}}.Encode(), &r); err != nil {
				return err
			}
			got := map[string]string{}
			for _, s := range r.Data.Result {
				got[s.Metric.Instance] = fmt.Sprint(s.Value[1])
			}
			if d := cmp.Diff(want, got); d != "" {
				return errors.New(d)
			}
			return nil
		})
	}
}

// healthy waits until the health check of every service says so; those that end have none.
func healthy(t *testing.T) {
	t.Helper()
	waitFor(t, "health", func() error {
		out, err := output("docker", "ps", "--format", `{{.Label "com.docker.compose.service"}} {{.Status}}`)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if bad := slices.DeleteFunc(lines, func(l string) bool { return strings.HasSuffix(l, "(healthy)") }); len(bad) > 0 || out == "" {
			return fmt.Errorf("not healthy: %q", bad)
		}
		return nil
	})
}
