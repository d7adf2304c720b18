package perm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

// An attack is something that must not be possible. do returns nil when it has
// succeeded: the server took what was published, answered, or let us listen.
type attack struct {
	name string
	do   func(r *raw, f foe) error
}

// A foe is who is attacked, and by whom.
type foe struct {
	own, run string // runs of the attacker and the victim
	tenant   string // of the victim
	name     string // of the victim's consumer
}

// stores is a publish that a stream must not take.
func stores(subj string, hdr ...nats.Header) func(*raw, foe) error {
	return func(r *raw, f foe) error {
		a, err := r.ask(f.in(subj), `{}`, hdr...)
		if err == nil && !strings.Contains(string(a.Data), `"stream"`) {
			err = fmt.Errorf("no PubAck: %s", a.Data)
		}
		return err
	}
}

// answers is a request to the API that must not be answered.
func answers(subj, body string) func(*raw, foe) error {
	return func(r *raw, f foe) error {
		_, err := r.ask(f.in(subj), f.in(body))
		return err
	}
}

// tells is a request whose answer holds the victim's text.
func tells(subj, body, what string) func(*raw, foe) error {
	return func(r *raw, f foe) error {
		a, err := r.ask(f.in(subj), f.in(body))
		if err == nil && !strings.Contains(string(a.Data), f.in(what)) {
			err = fmt.Errorf("answer without %q: %s", f.in(what), a.Data)
		}
		return err
	}
}

// listens is a subscription that must not be had.
func listens(subj string) func(*raw, foe) error {
	return func(r *raw, f foe) error {
		sub, err := r.SubscribeSync(f.in(subj))
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
		return r.settle(f.in(subj))
	}
}

// in fills in OWN, RUN, TENANT and THEIRS.
func (f foe) in(s string) string {
	return strings.NewReplacer("OWN", f.own, "RUN", f.run, "TENANT", subject.Token(f.tenant), "THEIRS", f.name).Replace(s)
}

// Whoever may write to the server at all.
var writes = []attack{
	{"publish an event of another run", stores("cbc.ev.0.TENANT.RUN.s.t.msg")},
	{"publish an event of another partition", stores("cbc.ev.1.TENANT.RUN.s.t.msg")},
	{"publish an event of no run", stores("cbc.ev.0.TENANT")},
	{"command another run", stores("cbc.cmd.TENANT.RUN.c1")},
	{"say that another run is lost", stores("cbc.ctl.TENANT.RUN.liveness")},
	{"decide an ask of another run", stores("cbc.ctl.TENANT.RUN.audit-answer-RUN-a1-1")},
	{"write another run's entry", stores("$KV.runs.RUN")},
	{"remove another run's entry", stores("$KV.runs.RUN", nats.Header{"KV-Operation": {"DEL"}})},
	{"show another run's presence", stores("$KV.presence.RUN")},
	{"take another session's lease", stores("$KV.sessions.TENANT.claude.theirs.h1")},
	{"write a key of no run", stores("$KV.runs.x.y")},
	{"change a stream", answers("$JS.API.STREAM.UPDATE.CTL", `{"name":"CTL","subjects":["cbc.ctl.>"],"max_age":0}`)},
	{"make a stream that takes everything", answers("$JS.API.STREAM.CREATE.MINE", `{"name":"MINE","subjects":["mine.>"]}`)},
	{"make a stream from another", answers("$JS.API.STREAM.CREATE.MINE2", `{"name":"MINE2","sources":[{"name":"EV_0"}]}`)},
	{"purge a stream", answers("$JS.API.STREAM.PURGE.CTL", `{"filter":"cbc.ctl.none.>"}`)},
	{"delete a message", answers("$JS.API.STREAM.MSG.DELETE.CTL", `{"seq":1}`)},
	{"back a stream up", answers("$JS.API.STREAM.SNAPSHOT.CTL", `{"deliver_subject":"_INBOX_x.s"}`)},
}

// Whoever may read something.
var spies = []attack{
	{"read another run's last event from the leader", tells("$JS.API.STREAM.MSG.GET.EV_0", `{"last_by_subj":"cbc.ev.0.TENANT.RUN.>"}`, "hdrs")},
	{"read it from a replica", tells("$JS.API.DIRECT.GET.EV_0", `{"last_by_subj":"cbc.ev.0.TENANT.RUN.>"}`, `"secret of":"RUN"`)},
	{"read it by its subject", tells("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.RUN.>", "", `"secret of":"RUN"`)},
	{"read it by its exact subject", tells("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.RUN.s1._.msg", "", `"secret of":"RUN"`)},
	{"read anybody's last event", tells("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.>", "", `"secret of"`)},
	{"read the last event of any run of a tenant", tells("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.*.>", "", `"secret of"`)},
	{"read the stream's first message", tells("$JS.API.DIRECT.GET.EV_0", `{"seq":1}`, `"secret of"`)},
	{"read many messages", tells("$JS.API.DIRECT.GET.EV_0", `{"seq":1,"batch":10}`, `"secret of"`)},
	{"read a command to another run", answers("$JS.API.STREAM.MSG.GET.CMD", `{"last_by_subj":"cbc.cmd.TENANT.RUN.>"}`)},
	{"read it from a replica of CMD", answers("$JS.API.DIRECT.GET.CMD.cbc.cmd.TENANT.RUN.>", "")},
	{"read what was decided", answers("$JS.API.DIRECT.GET.CTL.cbc.ctl.TENANT.RUN.audit-c1", "")},
	{"read whether another run lives", answers("$JS.API.DIRECT.GET.CTL.cbc.ctl.TENANT.RUN.liveness", "")},
	{"read another run's entry", tells("$JS.API.DIRECT.GET.KV_runs.$KV.runs.RUN", "", `"run":"RUN"`)},
	{"read another run's presence", answers("$JS.API.DIRECT.GET.KV_presence.$KV.presence.RUN", "")},
	{"read who holds a session", answers("$JS.API.DIRECT.GET.KV_sessions.$KV.sessions.TENANT.claude.theirs.h1", "")},
	{"list the streams", answers("$JS.API.STREAM.NAMES", "")},
	{"see a stream's subjects", tells("$JS.API.STREAM.INFO.EV_0", `{"subjects_filter":">"}`, "RUN")},
	{"see the account", answers("$JS.API.INFO", "")},
	{"list consumers", answers("$JS.API.CONSUMER.NAMES.CMD", "")},
	{"see another's consumer", answers("$JS.API.CONSUMER.INFO.CMD.theirs", "")},
	{"delete another's consumer", answers("$JS.API.CONSUMER.DELETE.CMD.theirs", "")},
	{"pull from another's consumer", answers("$JS.API.CONSUMER.MSG.NEXT.CMD.theirs2", `{"batch":1,"no_wait":true}`)},
	{"consume another run's commands", answers("$JS.API.CONSUMER.CREATE.CMD.mine.cbc.cmd.TENANT.RUN.>", consumer("mine", "cbc.cmd.TENANT.RUN.>"))},
	{"consume all commands", answers("$JS.API.CONSUMER.CREATE.CMD.mine2", consumer("mine2", ""))},
	{"consume them with a durable", answers("$JS.API.CONSUMER.DURABLE.CREATE.CMD.mine3",
		`{"stream_name":"CMD","config":{"durable_name":"mine3","ack_policy":"explicit"}}`)},
	{"consume them with any name", answers("$JS.API.CONSUMER.CREATE.CMD", `{"stream_name":"CMD","config":{"ack_policy":"none"}}`)},
	{"consume under the own name, without a filter", answers("$JS.API.CONSUMER.CREATE.CMD.OWN", consumer("OWN", ""))},
	{"consume events", answers("$JS.API.CONSUMER.CREATE.EV_0.mine.cbc.ev.0.>", consumer("mine", "cbc.ev.0.>"))},
	{"consume events under the own name", answers("$JS.API.CONSUMER.CREATE.EV_0.OWN2.cbc.ev.0.>", consumer("OWN2", "cbc.ev.0.>"))},
	{"listen to events", listens("cbc.ev.>")},
	{"listen to the own events", listens("cbc.ev.0.TENANT.OWN.>")},
	{"listen to commands", listens("cbc.cmd.>")},
	{"listen to another's hints", listens("cbc.hint.TENANT.RUN.>")},
	{"listen to all hints", listens("cbc.hint.>")},
	{"listen to decisions", listens("cbc.ctl.>")},
	{"listen to keys", listens("$KV.>")},
	{"listen to all answers", listens("_INBOX.>")},
	{"listen to another's answers", listens("_INBOX_RUN.>")},
	{"listen to the API", listens("$JS.>")},
	{"listen to everything", listens(">")},
	{"listen to all of one word", listens("*")},
	{"listen in a group", func(r *raw, f foe) error {
		sub, err := r.QueueSubscribeSync(f.in("_INBOX_RUN.>"), "q")
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
		return r.settle(f.in("_INBOX_RUN.>"))
	}},
}

func consumer(name, filter string) string {
	cfg := map[string]any{"name": name, "ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 5e9, "mem_storage": true, "num_replicas": 1}
	if filter != "" {
		cfg["filter_subject"] = filter
	}
	b, err := json.Marshal(map[string]any{"stream_name": streamOf(filter), "action": "", "config": cfg})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func streamOf(filter string) string {
	if strings.HasPrefix(filter, "cbc.ev.") {
		return "EV_0"
	}
	return "CMD"
}

// What an edge may ask, with a body that asks for more.
var bodies = []attack{
	{"own create subject, another's filter", create("cbc.cmd.TENANT.RUN.>", nil)},
	{"own create subject, no filter", create("", nil)},
	{"own create subject, both filters", create("", map[string]any{"filter_subjects": []string{"cbc.cmd.TENANT.OWN.>", "cbc.cmd.TENANT.RUN.>"}})},
	{"own create subject, another name", func(r *raw, f foe) error {
		a, err := createAs(r, f, "cbc.cmd.TENANT.OWN.>", map[string]any{"name": "theirs"})
		if err == nil && strings.Contains(string(a.Data), f.in(`"name":"OWN"`)) {
			err = errors.New("it has the own name all the same")
		}
		return err
	}},
	{"own create subject, another durable", create("cbc.cmd.TENANT.OWN.>", map[string]any{"durable_name": "theirs"})},
	{"own last event, another's in the body", answers("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.OWN.>", `{"last_by_subj":"cbc.ev.0.TENANT.RUN.>"}`)},
	{"own last event, a sequence in the body", answers("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.OWN.>", `{"seq":1}`)},
	{"own last event, many subjects in the body", answers("$JS.API.DIRECT.GET.EV_0.cbc.ev.0.TENANT.OWN.>", `{"multi_last":["cbc.ev.0.>"]}`)},
	{"own key, roll the whole bucket up", stores("$KV.runs.OWN", nats.Header{"Nats-Rollup": {"all"}})},
	{"own presence, roll the whole bucket up", stores("$KV.presence.OWN", nats.Header{"Nats-Rollup": {"all"}})},
	{"own events, roll the stream up", stores("cbc.ev.0.TENANT.OWN.s.t.msg", nats.Header{"Nats-Rollup": {"all"}})},
	{"own events, a schedule", stores("cbc.ev.0.TENANT.OWN.s.t.msg", nats.Header{"Nats-Schedule": {"@at 2030-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"cbc.ev.0.TENANT.RUN.s.t.msg"}})},
	{"own events, answer as an API request", func(r *raw, f foe) error {
		m := &nats.Msg{Subject: f.in("cbc.ev.0.TENANT.OWN.s.t.msg"), Reply: "$JS.API.STREAM.PURGE.CTL", Data: []byte("{}")}
		if err := r.PublishMsg(m); err != nil {
			return err
		}
		return r.settle(m.Reply)
	}},
}

// create asks for a consumer on the own create subject.
func create(filter string, more map[string]any) func(*raw, foe) error {
	return func(r *raw, f foe) error {
		_, err := createAs(r, f, filter, more)
		return err
	}
}

func createAs(r *raw, f foe, filter string, more map[string]any) (*nats.Msg, error) {
	cfg := map[string]any{
		"name": f.own, "ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 5e9, "mem_storage": true, "num_replicas": 1,
	}
	if filter != "" {
		cfg["filter_subject"] = filter
	}
	for k, v := range more {
		cfg[k] = v
	}
	body, err := json.Marshal(map[string]any{"stream_name": "CMD", "config": cfg})
	if err != nil {
		return nil, err
	}
	return r.ask(f.in("$JS.API.CONSUMER.CREATE.CMD.OWN.cbc.cmd.TENANT.OWN.>"), f.in(string(body)))
}

// victim puts a run, a command to it and what belongs to it on the bus, with rights
// to do everything, and two consumers.
func victim(t *testing.T, edge, relay *bus.Bus, f foe) {
	t.Helper()
	publish(t, edge, f.tenant, f.run, 100)
	must(t, edge.RenewPresence(t.Context(), f.run, time.Minute))
	must(t, edge.PutRun(t.Context(), bus.RunInfo{Run: f.run, Tenant: f.tenant, State: "running"}))
	_, err := relay.SendCommand(t.Context(), bus.Command{
		ID: "c1", Tenant: f.tenant, Run: f.run, Name: "interrupt", Time: time.Now(), DeliverBy: time.Now().Add(time.Minute),
	})
	must(t, err)
}

// open starts a server that lets everybody do everything, with two partitions and
// buckets as they are: on it attacks must succeed, or they prove nothing.
func open(t *testing.T) *world {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	must(t, err)
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	w := &world{t: t, ns: ns, log: &violations{}}
	topology := small
	topology.Partitions = 2
	_, err = w.connect(w.anyone()).Ensure(t.Context(), topology)
	must(t, err)
	return w
}

func (w *world) anyone() bus.Config {
	return bus.Config{URL: w.ns.ClientURL(), InboxPrefix: "_INBOX_x"}
}

// Every attack works on a server without permissions.
func TestAttacksWork(t *testing.T) {
	w := open(t)
	f := foe{own: newRun(t), run: newRun(t), tenant: tenant}
	b := w.connect(w.anyone())
	victim(t, b, b, f)
	r := w.raw(w.anyone())
	for _, subj := range []string{"cbc.ctl.TENANT.RUN.audit-c1", "cbc.ctl.TENANT.RUN.liveness", "$KV.sessions.TENANT.claude.theirs.h1"} {
		must(t, stores(subj)(r, f))
	}
	for _, name := range []string{"theirs", "theirs2"} {
		must(t, answers("$JS.API.CONSUMER.CREATE.CMD."+name+".cbc.cmd.>", consumer(name, "cbc.cmd.>"))(r, f))
	}
	for _, a := range slices.Concat(spies, writes) {
		t.Run(a.name, func(t *testing.T) {
			if err := a.do(r, f); err != nil {
				t.Errorf("it does not work where everything is permitted: %v", err)
			}
		})
	}
}

// An edge can do none of it: to another run of its tenant (with a credential of its
// own), and to other tenants.
func TestEdgeAttacks(t *testing.T) {
	for _, form := range []string{"static", "operator"} {
		t.Run(form, func(t *testing.T) {
			var w *world
			if form == "static" {
				w = static(t, tenant, "globex.eu")
			} else {
				w = operator(t, tenant, "globex.eu")
			}
			own := newRun(t)
			f := foe{own: own, run: newRun(t), tenant: "globex.eu"}
			if w.jwt {
				f.tenant = tenant
				victim(t, w.connect(w.edge(f.tenant, f.run)), w.connect(w.user(f.tenant, natsauth.Relay)), f)
			}
			r := w.raw(w.edge(tenant, own))
			for _, a := range slices.Concat(spies, writes) {
				if !w.jwt && w.tenantWide(a) {
					continue
				}
				t.Run(a.name, func(t *testing.T) { denied(t, a.do(r, f)) })
			}
			publish(t, w.connect(w.edgeAgain(tenant, own)), tenant, own, 3)
			for _, a := range bodies {
				t.Run(a.name, func(t *testing.T) {
					if err := a.do(r, foe{own: own, run: f.run, tenant: tenant}); err == nil {
						t.Error("it is permitted")
					}
				})
			}
			if w.jwt {
				whole(t, w.connect(w.user(f.tenant, natsauth.Relay)), f.tenant, f.run, 100)
			}
		})
	}
}

func denied(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errDenied) {
		t.Errorf("the server does not refuse it: %v", err)
	}
}
