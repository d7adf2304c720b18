// Package perm starts servers with the configurations of cbcast auth and tries them:
// that each part of cbcast can do its whole job with them, and that nothing else can
// be done with its credentials.
package perm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what has to happen. Nothing waits for it but a failure.
const patience = 20 * time.Second

// small are streams that fit beside others.
var small = bus.Topology{MaxBytes: 64 << 20, SideBytes: 24 << 20}

// A world is a server that was started from files of cbcast auth, and those.
type world struct {
	t     *testing.T
	store natsauth.Store
	ns    *server.Server
	log   *violations
	jwt   bool
}

// violations keeps what the server logs about permissions.
type violations struct {
	mu   sync.Mutex
	said []string
}

func (v *violations) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !strings.Contains(text, "Violation") {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, text)
}

func (v *violations) Noticef(f string, a ...any) { v.add(f, a...) }
func (v *violations) Warnf(f string, a ...any)   { v.add(f, a...) }
func (v *violations) Fatalf(f string, a ...any)  { v.add(f, a...) }
func (v *violations) Errorf(f string, a ...any)  { v.add(f, a...) }
func (v *violations) Debugf(string, ...any)      {}
func (v *violations) Tracef(string, ...any)      {}

// take returns what was said since the last call.
func (v *violations) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	said := v.said
	v.said = nil
	return said
}

// static starts a server with static accounts.
func static(t *testing.T, tenants ...string) *world {
	t.Helper()
	w := &world{t: t, store: natsauth.Store{Dir: filepath.Join(t.TempDir(), "nats"), URL: "x"}}
	if _, err := w.store.Static(tenants); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, tenant := range tenants {
		w.provision(tenant)
	}
	return w
}

// operator starts a server with accounts of an operator.
func operator(t *testing.T, tenants ...string) *world {
	t.Helper()
	w := &world{t: t, jwt: true, store: natsauth.Store{Dir: filepath.Join(t.TempDir(), "nats"), URL: "x"}}
	if err := w.store.Init(); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		if err := w.store.PutTenant(natsauth.Tenant{Name: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	for _, tenant := range tenants {
		w.provision(tenant)
	}
	return w
}

func (w *world) options() *server.Options {
	w.t.Helper()
	opts, err := server.ProcessConfigFile(filepath.Join(w.store.Dir, "nats.conf"))
	if err != nil {
		w.t.Fatal(err)
	}
	opts.Port, opts.NoSigs, opts.NoLog = server.RANDOM_PORT, true, true
	return opts
}

func (w *world) start() {
	w.t.Helper()
	ns, err := server.NewServer(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = &violations{}
	ns.SetLoggerV2(w.log, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		w.t.Fatal("the server does not start")
	}
	w.ns = ns
	w.t.Cleanup(func() { w.ns.Shutdown(); w.ns.WaitForShutdown() })
}

// reload is what a signal does.
func (w *world) reload() {
	w.t.Helper()
	opts := w.options()
	opts.Port = server.RANDOM_PORT
	if err := w.ns.ReloadOptions(opts); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) provision(tenant string) {
	w.t.Helper()
	b := w.connect(w.user(tenant, natsauth.Admin))
	defer b.Close()
	if drift, err := b.Ensure(w.t.Context(), small); err != nil || len(drift) > 0 {
		w.t.Fatal(drift, err)
	}
}

// user is how a role of a tenant connects.
func (w *world) user(tenant string, role natsauth.Role) bus.Config {
	w.t.Helper()
	if !w.jwt {
		return w.env(filepath.Join(w.store.Dir, "env", subject.Token(tenant)+"-"+string(role)+".env"))
	}
	u, err := w.store.NewUser(tenant, natsauth.Grant{Role: role}, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.env(u.Env)
}

// edge is how the edge of a run connects.
func (w *world) edge(tenant, run string, sessions ...subject.Conversation) bus.Config {
	w.t.Helper()
	if !w.jwt {
		return w.user(tenant, natsauth.Edge)
	}
	u, err := w.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Edge, Run: run, Sessions: sessions}, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.env(u.Env)
}

// env reads a user's environment as a shell would.
func (w *world) env(file string) bus.Config {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := bus.Config{URL: w.ns.ClientURL(), MaxAge: time.Hour}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, "'"); name {
		case "CBCAST_NATS_CREDS":
			cfg.Creds = value
		case "CBCAST_NATS_NKEY":
			cfg.Nkey = value
		case "CBCAST_NATS_INBOX_PREFIX":
			cfg.InboxPrefix = value
		}
	}
	return cfg
}

func (w *world) connect(cfg bus.Config) *bus.Bus {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	b, err := bus.Connect(ctx, cfg, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(b.Close)
	return b
}

// A raw is an attacker: the client library with somebody's credentials, and nothing
// of cbcast's manners.
type raw struct {
	*nats.Conn
}

func (w *world) raw(cfg bus.Config) *raw {
	w.t.Helper()
	r := &raw{}
	opts := []nats.Option{
		nats.CustomInboxPrefix(cfg.InboxPrefix),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // see settle
	}
	switch {
	case cfg.Creds != "":
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	case cfg.Nkey != "":
		o, err := nats.NkeyOptionFromSeed(cfg.Nkey)
		if err != nil {
			w.t.Fatal(err)
		}
		opts = append(opts, o)
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	r.Conn = nc
	return r
}

// errDenied is what an attack gets that the server has stopped.
var errDenied = errors.New("denied")

// settle waits until the server has read everything sent before, and reports whether
// it has refused what was about subj. The client library knows by then.
func (r *raw) settle(subj string) error {
	if err := r.FlushTimeout(patience); err != nil {
		return err
	}
	err := r.LastError()
	if err != nil && strings.Contains(err.Error(), `"`+subj+`"`) {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	return nil
}

// ask publishes a request and waits for an answer or a refusal.
func (r *raw) ask(subj string, body string, hdr ...nats.Header) (*nats.Msg, error) {
	return r.askAt(r.NewRespInbox(), subj, body, hdr...)
}

// askAt is ask with the place for the answer.
func (r *raw) askAt(inbox, subj, body string, hdr ...nats.Header) (*nats.Msg, error) {
	sub, err := r.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	m := &nats.Msg{Subject: subj, Reply: inbox, Data: []byte(body)}
	if len(hdr) > 0 {
		m.Header = hdr[0]
	}
	if err := r.PublishMsg(m); err != nil {
		return nil, err
	}
	if err := r.settle(subj); err != nil {
		return nil, err
	}
	a, err := sub.NextMsg(patience)
	if err == nil && len(a.Data) == 0 && a.Header.Get("Status") != "" && a.Header.Get("Status") != "404" {
		err = fmt.Errorf("answer %s %s", a.Header.Get("Status"), a.Header.Get("Description"))
	}
	if err == nil && strings.Contains(string(a.Data), `"error":`) {
		err = fmt.Errorf("answer %s", a.Data)
	}
	return a, err
}

// newRun is a run id.
func newRun(t *testing.T) string {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

// edgeAgain is how the edge of a run connects that was prepared before.
func (w *world) edgeAgain(tenant, run string) bus.Config {
	if !w.jwt {
		return w.user(tenant, natsauth.Edge)
	}
	return w.env(filepath.Join(w.store.Dir, "env", subject.Token(run)+".env"))
}

// tenantWide reports whether static accounts permit an attack, since they know no
// runs: what is about keys and consumers, which do not name the tenant. These are of
// the tenant's own account all the same.
func (w *world) tenantWide(a attack) bool {
	switch a.name {
	case "write another run's entry", "remove another run's entry", "show another run's presence",
		"delete another's consumer", "pull from another's consumer":
		return true
	}
	return false
}
