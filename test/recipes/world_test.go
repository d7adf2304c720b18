// Package recipes runs the recipes of deploy/ci: their shell parts as the CI would, with the
// variables that it sets, against a server with the permissions that docs/ci.md asks for.
package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/test/program"
)

const (
	tenant   = "default"
	patience = 2 * time.Minute
	repo     = "../.."
)

// The server of all tests.
var (
	users = natsauth.Store{}
	addr  string
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, startServer)) }

func startServer(dir string) (func(), error) {
	users.Dir = filepath.Join(dir, "nats")
	if _, err := users.Static([]string{tenant}); err != nil {
		return nil, err
	}
	opts, err := server.ProcessConfigFile(filepath.Join(users.Dir, "nats.conf"))
	if err != nil {
		return nil, err
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog, opts.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, filepath.Join(dir, "store")
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		return nil, errors.New("the server does not start")
	}
	stop := func() { ns.Shutdown(); ns.WaitForShutdown() }
	addr = ns.Addr().String()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := as(ctx, natsauth.Admin)
	if err != nil {
		return stop, err
	}
	defer b.Close()
	_, err = b.Ensure(ctx, bus.Topology{MaxBytes: 64 << 20, SideBytes: 24 << 20})
	return stop, err
}

func keyOf(role natsauth.Role) string {
	return filepath.Join(users.Dir, "keys", tenant+"-"+string(role)+".nk")
}

func as(ctx context.Context, role natsauth.Role) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{
		URL: "nats://" + addr, Nkey: keyOf(role), InboxPrefix: "_INBOX_" + tenant + "_" + string(role), MaxAge: time.Hour,
	}, nil)
}

// A gate is an address that leads to the server while it is open.
type gate struct {
	ln   net.Listener
	open atomic.Bool
	wg   sync.WaitGroup
}

func newGate(t *testing.T) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{ln: ln}
	g.wg.Go(g.serve) // ends with the listener
	t.Cleanup(func() { _ = ln.Close(); g.wg.Wait() })
	return g
}

func (g *gate) url() string { return "nats://" + g.ln.Addr().String() }

func (g *gate) serve() {
	for {
		in, err := g.ln.Accept()
		if err != nil {
			return
		}
		if !g.open.Load() {
			_ = in.Close()
			continue
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			_ = in.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			g.wg.Go(func() { // ends with either side
				_, _ = io.Copy(way[0], way[1])
				_ = in.Close()
				_ = out.Close()
			})
		}
	}
}

// A phase is one script that the CI starts.
type phase struct {
	name   string
	argv   []string // the shell; the script's file follows
	script string
	env    map[string]string
	always bool // also after one that failed
	keeps  bool // its exported variables are those of later phases
}

// A job is what the CI gives its phases.
type job struct {
	t    *testing.T
	dir  string // of the runner
	env  map[string]string
	path []string // beyond the system's
	// between is called before each phase.
	between func(phase)
	log     bytes.Buffer
}

// run runs the phases and reports which failed.
func (j *job) run(phases []phase) (failed []string) {
	j.t.Helper()
	for _, p := range phases {
		if len(failed) > 0 && !p.always {
			continue
		}
		if j.between != nil {
			j.between(p)
		}
		if !j.phase(p) {
			failed = append(failed, p.name)
		}
	}
	return failed
}

func (j *job) phase(p phase) bool {
	j.t.Helper()
	file, vars := filepath.Join(j.dir, "script"), filepath.Join(j.dir, "vars")
	script := p.script
	if p.keeps {
		script += "\nenv -0 >'" + vars + "'\n"
	}
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		j.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, p.argv[0], append(p.argv[1:], file)...)
	c.Dir = filepath.Join(j.dir, "project")
	env := maps.Clone(j.env)
	maps.Copy(env, p.env)
	if env["PATH"] == "" {
		env["PATH"] = strings.Join(append(slices.Clone(j.path), "/usr/bin", "/bin"), ":")
	}
	for k, v := range env {
		c.Env = append(c.Env, k+"="+v)
	}
	j.log.WriteString("--- " + p.name + "\n")
	c.Stdout, c.Stderr = &j.log, &j.log
	c.WaitDelay = patience
	err := c.Run()
	if p.keeps {
		b, rerr := os.ReadFile(vars)
		if rerr != nil {
			j.t.Fatalf("%v\n%s", rerr, &j.log)
		}
		for _, kv := range strings.Split(strings.TrimRight(string(b), "\x00"), "\x00") {
			k, v, _ := strings.Cut(kv, "=")
			j.env[k] = v
		}
	}
	return err == nil
}

// tools is a folder with the agent and a go that builds only what the recipes may build.
func (j *job) tools() string {
	j.t.Helper()
	dir := filepath.Join(j.dir, "tools")
	agent := strings.NewReplacer("@DIR@", j.dir).Replace(agentScript)
	goCommand := strings.NewReplacer("@PROGRAM@", program.Path).Replace(goScript)
	for name, text := range map[string]string{"claude": agent, "go": goCommand} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			j.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			j.t.Fatal(err)
		}
	}
	return dir
}

// agentScript plays claude for one turn. Where the runner's folder has a file kill it says
// sixty lines, waits until they are in the spool and kills what runs it.
const agentScript = `#!/bin/sh
say() { printf '%s\n' "$1"; }
env | grep -q ^CBCAST_ && { echo "the agent sees variables of cbcast" >&2; exit 1; }
while IFS= read -r line; do
  case $line in
  *'"subtype":"initialize"'*)
    id=${line#*'"request_id":"'}
    say '{"type":"control_response","response":{"subtype":"success","request_id":"'"${id%%\"*}"'","response":{"commands":[]}}}'
    ;;
  *'"type":"user"'*)
    say '{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220"}'
    i=0
    while [ $((i += 1)) -le 60 ]; do
      say '{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"line-'$i'."}]},"session_id":"s1","uuid":"u'$i'"}'
    done
    if [ -e '@DIR@/kill' ]; then
      until grep -rqs 'line-60\.' $(find '@DIR@' -type d -name spool); do sleep 0.05; done
      kill -9 $PPID
      sleep 600
    fi
    say '{"type":"result","subtype":"success","is_error":false,"result":"ok","permission_denials":[],"session_id":"s1","uuid":"r1","num_turns":1}'
    ;;
  esac
done
`

// goScript takes the two calls of the recipes and puts the program there that is tested.
const goScript = `#!/bin/sh
case "$*" in
"install github.com/cbcast/cbcast/cmd/cbcast@latest") out=$GOBIN/cbcast ;;
"build -C "*" -trimpath -o "*" ./cmd/cbcast") test -f "$3/cmd/cbcast/main.go" && test -f "$3/go.mod" && out=$6 || exit 1 ;;
*) echo "go $*: not a call of the recipes" >&2; exit 1 ;;
esac
mkdir -p "${out%/*}" && ln -sf '@PROGRAM@' "$out"
`

// events are those of the run whose start has the label cirun.
func events(t *testing.T, cirun string) (started event.Started, all []*event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b, err := as(ctx, natsauth.Relay)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	head, err := b.HeadLog(ctx, bus.Log(0))
	if err != nil {
		t.Fatal(err)
	}
	run := ""
	for e, err := range b.ReadLog(ctx, bus.Log(0), bus.Place{}, bus.Place{Seq: head}, tenant, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event.Type == event.TypeStarted {
			var s event.Started
			if err := json.Unmarshal(e.Event.Data, &s); err != nil {
				t.Fatal(err)
			}
			if s.CI["cirun"] == cirun {
				if run != "" {
					t.Fatalf("two runs have cirun %s", cirun)
				}
				started, run = s, e.Event.Run
			}
		}
		if run != "" && e.Event.Run == run {
			all = append(all, e.Event)
		}
	}
	return started, all
}

// complete says what of a run of the agent is wrong: its lines, its numbers and its end.
func complete(t *testing.T, all []*event.Event, died bool) {
	t.Helper()
	lines := map[string]int{}
	for i, e := range all {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
		if _, rest, ok := bytes.Cut(e.Data, []byte(`"text":"line-`)); ok && e.Stream == event.Out {
			n, _, _ := bytes.Cut(rest, []byte("."))
			lines[string(n)]++
		}
	}
	if len(lines) != 60 {
		t.Errorf("%d of the agent's 60 lines are on the bus", len(lines))
	}
	for n, times := range lines {
		if times != 1 {
			t.Errorf("line %s is there %d times", n, times)
		}
	}
	last := all[len(all)-1]
	var x event.Exited
	if last.Type != event.TypeExited {
		t.Fatalf("the last event is %s", last.Type)
	}
	if err := json.Unmarshal(last.Data, &x); err != nil {
		t.Fatal(err)
	}
	want := ""
	if died {
		want = "edge_died"
	}
	if diff := cmp.Diff(want, x.Reason); diff != "" {
		t.Errorf("reason of the end: (-want +got)\n%s", diff)
	}
}
