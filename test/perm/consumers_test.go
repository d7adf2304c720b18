package perm

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

// Notify and archive read everything that they should through durable consumers: they
// make them, stand by, take over, ack and go on. The server has nothing to complain about.
func TestDurableJob(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		run := newRun(t)
		f := foe{own: run, run: run, tenant: tenant}
		victim(t, w.connect(w.edge(tenant, run)), w.connect(w.user(tenant, natsauth.Relay)), f)
		for _, c := range []struct {
			role natsauth.Role
			name string
			log  bus.Log
			n    int
		}{
			{natsauth.Consumer, subject.NotifyConsumer, 0, 100},
			{natsauth.Archive, subject.ArchiveConsumer, 0, 100},
			{natsauth.Archive, subject.ArchiveConsumer, bus.CommandLog, 1},
		} {
			t.Run(c.name+" "+c.log.String(), func(t *testing.T) {
				for range 2 {
					d, got, stop := durable(t, w.connect(w.user(tenant, c.role)), c.name, c.log)
					var last bus.Place
					for range c.n {
						select {
						case last = <-got:
						case <-t.Context().Done():
							t.Fatalf("nothing comes: %+v", d.Status())
						}
					}
					if c.n == 1 {
						stop()
						break
					}
					d.Ack(bus.Place{Seq: last.Seq / 2})
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					must(t, d.Settle(ctx))
					cancel()
					stop()
					c.n -= c.n / 2
				}
			})
		}
		if said := w.log.take(); len(said) > 0 {
			t.Errorf("the server complains: %q", said)
		}
	})
}

// durable reads a log until stop.
func durable(t *testing.T, b *bus.Bus, name string, l bus.Log) (d *bus.Durable, got chan bus.Place, stop func()) {
	t.Helper()
	d, got = b.Durable(bus.DurableConfig{Name: name, Log: l}), make(chan bus.Place)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- d.Run(ctx, func(ctx context.Context, d bus.Delivery) error {
			select {
			case got <- d.At:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return d, got, func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// What may not be done to a consumer that another program has. THEIRS is that of the
// consumer.
var meddling = []attack{
	{"see it", answers("$JS.API.CONSUMER.INFO.EV_0.THEIRS", "")},
	{"move it", answers("$JS.API.CONSUMER.RESET.EV_0.THEIRS", `{"seq":50}`)},
	{"pull from it", func(r *raw, f foe) error {
		_, err := r.ask(f.in("$JS.API.CONSUMER.MSG.NEXT.EV_0.THEIRS"), `{"batch":1,"no_wait":true,"group":"cbcast"}`)
		return err
	}},
	{"ack for it", func(r *raw, f foe) error {
		subj := f.in("$JS.ACK.EV_0.THEIRS.1.100.100.1.0")
		if err := r.Publish(subj, []byte("+ACK")); err != nil {
			return err
		}
		return r.settle(subj)
	}},
	{"unpin it", answers("$JS.API.CONSUMER.UNPIN.EV_0.THEIRS", `{"group":"cbcast"}`)},
	{"make it otherwise", answers("$JS.API.CONSUMER.CREATE.EV_0.THEIRS", durableBody("THEIRS", ""))},
	{"make it otherwise, with a filter", answers("$JS.API.CONSUMER.CREATE.EV_0.THEIRS.cbc.ev.0.>", durableBody("THEIRS", "cbc.ev.0.>"))},
	{"make it the old way", answers("$JS.API.CONSUMER.DURABLE.CREATE.EV_0.THEIRS", durableBody("THEIRS", ""))},
	{"delete it", answers("$JS.API.CONSUMER.DELETE.EV_0.THEIRS", "")},
}

func durableBody(name, filter string) string {
	f := ""
	if filter != "" {
		f = `,"filter_subject":"` + filter + `"`
	}
	return `{"stream_name":"EV_0","config":{"name":"` + name + `","durable_name":"` + name + `","ack_policy":"all","max_ack_pending":99,` +
		`"priority_policy":"pinned_client","priority_groups":["cbcast"],"max_deliver":-1` + f + `}}`
}

// The role consumer does nothing to the archive's consumers; to those of notify it can
// do everything, which docs/security.md says. An edge and a relay can do nothing to
// either, nor the archive with commands what a relay may.
func TestMeddling(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		run := newRun(t)
		f := foe{own: run, run: run, tenant: tenant}
		victim(t, w.connect(w.edge(tenant, run)), w.connect(w.user(tenant, natsauth.Relay)), f)
		for _, c := range []struct {
			role    natsauth.Role
			victim  string
			may     []string
			ignored []string // not asked
		}{
			{natsauth.Consumer, subject.ArchiveConsumer, nil, nil},
			{natsauth.Consumer, subject.NotifyConsumer, []string{
				"see it", "move it", "pull from it", "ack for it", "unpin it", "make it otherwise", "make it otherwise, with a filter", "delete it",
			}, nil},
			{natsauth.Archive, subject.NotifyConsumer, nil, []string{
				"see it", "move it", "pull from it", "ack for it", "unpin it", "make it otherwise", "make it otherwise, with a filter", "delete it",
			}},
			// A relay reads with consumers, too: it may make one of any name, and pull.
			{natsauth.Relay, subject.ArchiveConsumer, []string{"pull from it", "make it otherwise, with a filter", "delete it"}, nil},
		} {
			t.Run(string(c.role)+" "+c.victim, func(t *testing.T) {
				owner := w.connect(w.user(tenant, natsauth.Archive))
				_, got, stop := durable(t, owner, c.victim, 0)
				<-got
				stop()
				r := w.raw(w.user(tenant, c.role))
				for _, a := range meddling {
					if slices.Contains(c.ignored, a.name) {
						continue
					}
					err := a.do(r, foe{own: f.own, run: f.run, tenant: f.tenant, name: c.victim})
					switch {
					case slices.Contains(c.may, a.name) && errors.Is(err, errDenied):
						t.Errorf("may not %s: %v", a.name, err)
					case !slices.Contains(c.may, a.name) && !errors.Is(err, errDenied):
						t.Errorf("may %s: %v", a.name, err)
					}
				}
			})
		}
	})
}
