package bus_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// What Check says is true, and nothing of what it tried stays.
func TestCheckLeavesNothing(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	for _, f := range b.Check(t.Context(), "acme", "", 0) {
		if f.Err != nil {
			t.Errorf("%s: %v", f.What, f.Err)
		}
	}
	for _, stream := range []string{"EV_0", "CMD", "CTL", "KV_runs", "KV_presence", "KV_sessions"} {
		var info struct {
			State struct {
				Messages uint64 `json:"messages"`
				Last     uint64 `json:"last_seq"`
			} `json:"state"`
		}
		api(t, b, "STREAM.INFO."+stream, nil, &info)
		if info.State.Last != 0 {
			t.Errorf("%s has had %d messages", stream, info.State.Last)
		}
	}
}

// Without streams everything says so, and says it soon.
func TestCheckWithoutStreams(t *testing.T) {
	b := connect(t, bus.Config{InProcess: serve(t, natsd.Options{DontListen: true})})
	for _, f := range b.Check(t.Context(), "acme", "", 0) {
		if !errors.Is(f.Err, bus.ErrUnavailable) {
			t.Errorf("%s: %v, want unavailable", f.What, f.Err)
		}
	}
}

// An edge with its own permissions and no others: see which things it may do.
func TestCheckPermissions(t *testing.T) {
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "all", Password: "x"},
			{Username: "edge", Password: "x", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{
					"cbc.ev.*.acme.>", "$KV.presence.*", "$JS.API.DIRECT.GET.EV_0.cbc.ev.0.acme.*.>", "$JS.API.STREAM.INFO.EV_0",
				}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	ensure(t, connect(t, bus.Config{URL: ns.ClientURL(), User: "all", Password: "x"}))

	b := connect(t, bus.Config{URL: ns.ClientURL(), User: "edge", Password: "x"})
	got := map[string]string{}
	for _, f := range b.Check(t.Context(), "acme", "", 0) {
		switch {
		case f.Err == nil:
			got[f.What] = "can"
		case errors.Is(f.Err, bus.ErrDenied):
			got[f.What] = "denied"
			_, subj, named := strings.Cut(f.Err.Error(), "ish to ") // publish to
			if !named && f.What == "take commands" {
				_, subj, named = strings.Cut(f.Err.Error(), "subscribe to ")
			}
			if !named || !strings.HasPrefix(subj, "cbc.") && !strings.HasPrefix(subj, "$") || strings.Contains(f.Err.Error(), "password") {
				t.Errorf("%s names no subject: %v", f.What, f.Err)
			}
		default:
			got[f.What] = f.Err.Error()
		}
	}
	want := map[string]string{
		"publish events": "can", "ask for the last event": "can", "show presence": "can",
		"take commands": "denied", "write the registry": "denied", "hold any session's lease": "denied", "say that it is back": "denied",
		"read events": "denied", "read the registry": "denied", "send commands": "denied",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestClock(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	ahead, trip, err := b.Clock(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if max(ahead, -ahead) > trip+time.Second || trip <= 0 {
		t.Errorf("the server of this process is ahead by %v, with a round trip of %v", ahead, trip)
	}
	if s := b.Server(); !strings.Contains(s, " at ") {
		t.Errorf("Server = %q", s)
	}
}
