package perm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/natsauth"
)

// A relay writes no events and no presence, and changes no stream. A consumer writes
// nothing, and reads neither commands nor presence; the archive reads commands under its
// own name. Whoever provisions reads nothing.
func TestRoles(t *testing.T) {
	may := map[natsauth.Role][]string{
		natsauth.Relay: {
			"command another run", "say that another run is lost", "decide an ask of another run", "write another run's entry",
			"remove another run's entry", "read another run's last event from the leader", "read it from a replica",
			"read the stream's first message", "read many messages", "read a command to another run", "see a stream's subjects",
			"consume events", "consume events under the own name",
		},
		natsauth.Consumer: {
			"read another run's last event from the leader", "read it from a replica",
			"read the stream's first message", "read many messages", "see a stream's subjects",
			"consume events", "consume events under the own name",
		},
		natsauth.Archive: {
			"read another run's last event from the leader", "read it from a replica",
			"read the stream's first message", "read many messages", "see a stream's subjects",
			"consume events", "consume events under the own name", "read a command to another run",
		},
		natsauth.Admin: {"see a stream's subjects"},
	}
	both(t, func(t *testing.T, w *world) {
		f := foe{own: newRun(t), run: newRun(t), tenant: tenant}
		victim(t, w.connect(w.edge(tenant, f.run)), w.connect(w.user(tenant, natsauth.Relay)), f)
		for role, list := range may {
			t.Run(string(role), func(t *testing.T) {
				r := w.raw(w.user(tenant, role))
				for _, a := range slices.Concat(spies, writes) {
					if role == natsauth.Admin && a.name == "change a stream" {
						continue // that is what it is for
					}
					err := a.do(r, f)
					switch {
					case slices.Contains(list, a.name) && err != nil:
						t.Errorf("may not %s: %v", a.name, err)
					case !slices.Contains(list, a.name) && !errors.Is(err, errDenied):
						t.Errorf("may %s: %v", a.name, err)
					}
				}
			})
		}
	})
}

// Tenants have accounts of their own: not even the relay of one sees the other.
func TestTenantsApart(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		f := foe{own: newRun(t), run: newRun(t), tenant: "globex.eu"}
		victim(t, w.connect(w.edge(f.tenant, f.run)), w.connect(w.user(f.tenant, natsauth.Relay)), f)
		relay := w.connect(w.user(tenant, natsauth.Relay))
		if all, err := relay.Runs(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("runs: %+v, %v", all, err)
		}
		whole(t, relay, f.tenant, f.run, 0)
		// Publishing is permitted, to the own account's streams.
		r := w.raw(w.user(tenant, natsauth.Relay))
		must(t, stores("cbc.cmd.TENANT.RUN.c2")(r, f))
		if _, err := w.connect(w.user(f.tenant, natsauth.Relay)).FindCommand(t.Context(), "c2"); err == nil {
			t.Error("a command crossed the accounts")
		}
		whole(t, w.connect(w.user(f.tenant, natsauth.Relay)), f.tenant, f.run, 100)
	})
}

// A bucket as key-value clients make it is emptied by whoever may write one key.
// Ours is not; see the attacks of edges.
func TestRollupWorks(t *testing.T) {
	w := open(t)
	r := w.raw(w.anyone())
	f := foe{own: "own", run: "run"}
	must(t, answers("$JS.API.STREAM.CREATE.KV_usual",
		`{"name":"KV_usual","subjects":["$KV.usual.>"],"max_msgs_per_subject":1,"allow_rollup_hdrs":true,"deny_delete":true,"allow_direct":true}`)(r, f))
	must(t, stores("$KV.usual.RUN")(r, f))
	must(t, stores("$KV.usual.OWN", nats.Header{"Nats-Rollup": {"all"}})(r, f))
	if err := answers("$JS.API.STREAM.MSG.GET.KV_usual", `{"last_by_subj":"$KV.usual.RUN"}`)(r, f); err == nil {
		t.Error("the other key is still there; the attack proves nothing")
	} else {
		t.Log(fmt.Errorf("as it should be: %w", err))
	}
}

// The id of another's message, used first, makes a server take the real one for a
// duplicate. It is published all the same.
func TestPoisonedIDs(t *testing.T) {
	w := operator(t, tenant)
	f := foe{own: newRun(t), run: newRun(t), tenant: tenant}
	r := w.raw(w.edge(tenant, f.own))
	for n := range 40 {
		must(t, stores("cbc.ev.0.TENANT.OWN.s.t.msg", nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%s/%d", f.run, n+1)}})(r, f))
	}
	must(t, stores("cbc.ev.0.TENANT.OWN.s.t.msg", nats.Header{"Nats-Msg-Id": {f.run + "/1"}})(r, f)) // it is one
	publish(t, w.connect(w.edge(tenant, f.run)), tenant, f.run, 50)
	whole(t, w.connect(w.user(tenant, natsauth.Relay)), tenant, f.run, 50)
}
