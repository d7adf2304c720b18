package consumers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/slackdouble"
)

// shows are what is wrapped: each dialect, workflows and sub-agents, asks that are answered
// in three ways, a failure, and interruptions.
func shows(t *testing.T, dir string) []*show {
	t.Helper()
	all := []*show{
		{name: "claude-2.1.220/80-workflow-ok", kind: "finished"},
		{name: "cbc-2.163.0/workflow", kind: "finished"},
		{name: "claude-2.1.220/71-agent-fg", kind: "finished"},
		{name: "codex-0.153.4/80-collab-v1", kind: "finished", rest: true},
		{name: "claude-2.1.220/30-perm-allow", kind: "finished", asks: "chat"},
		{name: "codex-0.153.4/10-cmd-approval-accept", kind: "finished", asks: "socket"},
		{name: "cbc-2.163.0/perm-allow-cbc", kind: "finished", asks: "host"},
		{name: "claude-2.1.220/a2-api-401", kind: "failed"},
		{name: "claude-2.1.220/d0-sigterm-stream", kind: "interrupted"},
		{name: "codex-0.153.4/57-interrupt-running-command", kind: "interrupted"},
	}
	for i, v := range all {
		var err error
		if v.c, err = capture.Load(v.name); err != nil {
			t.Fatal(err)
		}
		v.id = fmt.Sprintf("01a22b5c-84b8-7e83-bbee-%012d", i+1)
		v.answer, v.stdin = make(chan struct{}), filepath.Join(dir, fmt.Sprint("stdin", i))
	}
	return all
}

// destinations are those of each run; who belongs to no job has the first alone. The
// Slack double has two more.
var destinations = []string{"structured", "binary", "post"}

func (v *show) told(kind string) (keys []string) {
	for _, d := range destinations {
		if keys = append(keys, d+" "+v.id+" "+kind); v.rest {
			break
		}
	}
	return keys
}

func (v *show) kinds() []string {
	if v.asks != "" {
		return []string{"waiting", v.kind}
	}
	return []string{v.kind}
}

const rulesText = `
version: 1
destinations:
  structured: {type: webhook, url: HOOK/structured, secrets: [env:HOOK_NEW, env:HOOK_OLD], allow: [127.0.0.1], timeout: 1m}
  binary: {type: webhook, url: HOOK/binary, mode: binary, secrets: [env:HOOK_NEW, env:HOOK_OLD], allow: [127.0.0.1], timeout: 1m}
  chat: {type: slack, api: SLACK, token: env:SLACK_TOKEN, channel: C0CI, signing_secret: env:SLACK_SIGNING, allow: [127.0.0.1], timeout: 1m,
         merge: 0, rate: {every: 1ms, burst: 100}, users: {U0OK: [answer], U0TWO: [answer], U0READ: [command]}}
  socket: {type: slack, api: SLACK, token: env:SLACK_TOKEN, channel: C0SOCK, app_token: env:SLACK_APP, allow: [127.0.0.1], timeout: 1m,
           merge: 0, rate: {every: 1ms, burst: 100}, users: {U0OK: [answer]}}
  post: {type: email, host: 127.0.0.1, port: PORT, tls: starttls, ca: FILE, user: bot, password: env:MAIL_PASSWORD,
         from: "cbcast <bot@example.test>", to: [team@example.test], allow: [127.0.0.1], timeout: 1m, merge: 0, rate: {every: 1ms, burst: 100}}
rules:
  - {name: ours, match: {ci: {repo: acme/shop}}, to: [structured, binary, chat, socket, post]}
  - {name: rest, to: [structured]}
`

// cast are the programs and the servers that they talk to.
type cast struct {
	*stage
	shows   []*show
	told    *told
	slack   *slackdouble.Server
	spans   *backend
	gateway *gateway
	relay   *service
	notify  *service
	metrics *service
	archive *service
	keep    []string // variables that say where the archive is
}

func newCast(t *testing.T) *cast {
	t.Helper()
	for _, name := range []string{"prometheus", "otelcol", "versitygw"} {
		tool(t, name)
	}
	c := &cast{stage: newStage(t), told: newTold(), slack: slackdouble.New(t), spans: newBackend(t), gateway: startGateway(t, "kept", "keys")}
	c.shows = shows(t, c.dir)
	c.slack.Rate, c.slack.Burst = 1, 1000
	c.slack.AddChannel("C0SOCK", "#socket")
	col := newCollector(t, c.spans.URL)
	col.start()

	tokens := filepath.Join(c.dir, "tokens.json")
	token := strings.TrimSpace(c.run(c.env("token"), "token", "chat", "--scope", "answer,command,delegate", "--add", tokens))
	c.relay = c.start(c.onBus("relay", "CBCAST_UP_WITH=none", "CBCAST_RELAY_ADDR=127.0.0.1:0", "CBCAST_RELAY_TOKENS_FILE="+tokens), "up")

	post := newMailbox(t, c.told)
	rules := filepath.Join(c.dir, "rules.yaml")
	text := strings.NewReplacer("HOOK/", hook(t, c.told, secretOf(1), secretOf(2))+"/", "SLACK,", c.slack.API()+",", "PORT", fmt.Sprint(post.port), "FILE", post.ca).Replace(rulesText)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.notify = c.start(c.onBus("notify", "CBCAST_NOTIFY_ADDR=127.0.0.1:0", "CBCAST_NOTIFY_RULES="+rules, "CBCAST_PUBLIC_URL=https://cbcast.example",
		"CBCAST_NOTIFY_RELAY_URL="+c.relay.addr, "CBCAST_NOTIFY_RELAY_TOKEN="+token, "HOOK_NEW="+secretOf(1), "HOOK_OLD="+secretOf(2),
		"SLACK_TOKEN="+c.slack.Token, "SLACK_SIGNING="+c.slack.SigningSecret, "SLACK_APP="+c.slack.AppToken, "MAIL_PASSWORD="+mailPassword), "notify")
	c.slack.RequestURL = c.notify.addr + "/slack"
	c.slack.Wait("Socket Mode", func() bool { return c.slack.Sockets() == 1 })

	c.metrics = c.start(c.onBus("metrics", "CBCAST_METRICS_ADDR=127.0.0.1:0", "CBCAST_METRICS_REPOS=acme/shop"), "metrics", "--otlp", "http://"+col.addr)

	c.keep = []string{
		"CBCAST_ARCHIVE_DEST=s3://kept/a", "CBCAST_ARCHIVE_KEYS=s3://keys/k", "CBCAST_ARCHIVE_HEADS=" + filepath.Join(c.dir, "heads.ndjson"),
		"CBCAST_ARCHIVE_S3_ENDPOINT=http://" + c.gateway.addr, "CBCAST_ARCHIVE_S3_REGION=us-east-1", "CBCAST_ARCHIVE_S3_PATH_STYLE=true",
		"CBCAST_ARCHIVE_S3_ACCESS_KEY=" + s3Access, "CBCAST_ARCHIVE_S3_SECRET_KEY=" + s3Secret,
	}
	c.archive = c.start(c.onBus("archive", append(c.keep, "CBCAST_ARCHIVE_ADDR=127.0.0.1:0", "CBCAST_ARCHIVE_SEAL_AGE=1s")...), "archive")
	return c
}

// From real recordings that are wrapped to everybody who is told of them: receivers of
// webhooks, Slack, a mail server, Prometheus, an OpenTelemetry collector, an S3 server,
// readers of Parquet.
func TestEndToEnd(t *testing.T) {
	c := newCast(t)
	failures := make([]error, len(c.shows))
	t.Cleanup(c.wg.Wait) // the processes end with the test
	for i, v := range c.shows {
		env := c.onBus("edge", "CBCAST_TENANT=acme", "CBCAST_RUN_ID="+v.id, "CBCAST_EXIT_FLUSH=2m", "CBCAST_PRESENCE_TTL=3m")
		if !v.rest {
			env = append(env, "GITHUB_ACTIONS=true", "GITHUB_REPOSITORY=acme/shop", "GITHUB_WORKFLOW=nightly", "GITHUB_JOB=agent", "GITHUB_RUN_ID=77",
				"GITHUB_SERVER_URL=https://ci.example", "TRACEPARENT="+traceOf(i))
		}
		c.wg.Go(func() { failures[i] = c.perform(v, env) })
	}
	c.answers()
	c.wg.Wait()
	var told []string
	for i, v := range c.shows {
		if failures[i] != nil {
			t.Error(failures[i])
		}
		if !bytes.Equal(v.stdout, v.c.Stdout) {
			t.Errorf("%s: the host got %d bytes that are not the agent's %d", v.name, len(v.stdout), len(v.c.Stdout))
		}
		for _, k := range v.kinds() {
			told = append(told, v.told(k)...)
		}
	}
	c.told.wait(t, told...)
	c.slackShows()
	c.caughtUp("cbcast-notify", "EV_0", "CTL")
	c.caughtUp("cbcast-metrics", "EV_0", "CTL")
	c.caughtUp("cbcast-archive", "EV_0", "CTL", "CMD")
	c.traced()
	exported := c.kept()
	c.counted(exported)
	for _, p := range []*service{c.notify, c.metrics, c.archive, c.relay} {
		p.stop()
	}
	c.notices(exported)
	c.proven()
	c.silent()
}

// traceOf is the span of the CI job that a run is in.
func traceOf(i int) string { return fmt.Sprintf("00-%032x-%x-01", i+1, ciSpan) }

// verdict is how a recording ends.
func (v *show) verdict() string {
	s := run.New(v.id)
	for _, e := range capture.Events(v.c, "acme", v.id) {
		s.Apply(e)
	}
	return string(s.Verdict().Verdict)
}

// notices checks that each receiver was told once of each run and state, under the id of
// the event that it is about.
func (c *cast) notices(exported map[string][]string) {
	c.t.Helper()
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	for _, b := range c.told.bad {
		c.t.Error(b)
	}
	want, got := map[string]int{}, map[string]int{}
	for key, ids := range c.told.all {
		f := strings.Fields(key)
		slices.Sort(ids)
		got[key] = len(slices.Compact(ids)) // another attempt has the same
		if f[0] != "post" && !slices.Contains(exported[f[1]], ids[0]) {
			c.t.Errorf("%s: its id %s is of no event of the run", key, ids[0])
		}
	}
	for _, v := range c.shows {
		for _, k := range v.kinds() {
			for _, key := range v.told(k) {
				want[key] = 1
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		c.t.Errorf("notices (-want +got):\n%s", d)
	}
}

// silent checks that no program said a secret.
func (c *cast) silent() {
	c.t.Helper()
	for _, file := range c.logs {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range []string{secretOf(1), secretOf(2), c.slack.Token, c.slack.AppToken, c.slack.SigningSecret, mailPassword, s3Secret} {
			if bytes.Contains(text, []byte(s)) {
				c.t.Errorf("%s has a secret: %.8s…", filepath.Base(file), s)
			}
		}
	}
}
