package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/natsauth"
	"github.com/cbcast/cbcast/internal/subject"
)

// authOptions are the flags of cbcast auth.
type authOptions struct {
	a       *app
	store   natsauth.Store
	tenants []string
}

func newAuth(a *app) *cobra.Command {
	o := &authOptions{a: a}
	o.store.URL = a.cfg.Bus.URL
	if o.store.URL == "" {
		o.store.URL = "nats://127.0.0.1:4222"
	}
	c := &cobra.Command{
		Use:   "auth",
		Short: "Make keys, credentials and permissions for a NATS server",
		Long: `auth writes the configuration of a NATS server, with keys and credentials, so that
each edge, relay and consumer may do what it needs and nothing else. All of it is in
one directory; nothing is sent anywhere. docs/security.md says how to use it.

Two ways:
  static   one account for each tenant, users known by nkeys. Keeps tenants apart,
           and not the runs of one tenant
  init, tenant, user, run, revoke
           an operator with one account for each tenant, and JWTs: each run has a
           credential of its own, which ends by itself

fleet writes, beside static accounts, every other secret of a deployment.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := c.PersistentFlags()
	f.StringVar(&o.store.Dir, "dir", "nats", "the directory")
	f.StringVar(&o.store.URL, "url", o.store.URL, "where users find the server")
	f.StringSliceVar(&o.tenants, "tenant", []string{a.cfg.Edge.Tenant}, "tenant; static takes several")
	f.IntVar(&o.store.Partitions, "partitions", a.cfg.Partitions, "partitions of the events")
	c.AddCommand(o.fleet(), o.static(), o.init(), o.tenant(), o.user(), o.run(), o.revoke(), o.show())
	return c
}

// one is the tenant, where there can be only one.
func (o *authOptions) one() (string, error) {
	if len(o.tenants) != 1 {
		return "", &exitError{exitUsage, errors.New("--tenant: one tenant is needed here")}
	}
	return o.tenants[0], o.check()
}

func (o *authOptions) check() error {
	for _, t := range o.tenants {
		cfg := o.a.cfg.Edge
		cfg.Tenant, cfg.RunID = t, ""
		if err := cfg.Validate(); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	return nil
}

func (o *authOptions) say(format string, args ...any) { fmt.Fprintf(o.a.io.out, format+"\n", args...) }

func (o *authOptions) static() *cobra.Command {
	return &cobra.Command{
		Use:   "static",
		Short: "Write nats.conf with one account for each tenant, and users with nkeys",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			envs, err := o.store.Static(o.tenants)
			if err != nil {
				return err
			}
			o.say("%s: start the server with it: nats-server -c %[1]s", filepath.Join(o.store.Dir, "nats.conf"))
			for _, e := range envs {
				o.say("%s", e)
			}
			return nil
		},
	}
}

func (o *authOptions) init() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Make an operator with its keys, and nats.conf",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := os.Stat(filepath.Join(o.store.Dir, "operator.jwt"))
			if err := o.store.Init(); err != nil {
				return err
			}
			if err == nil {
				o.say("%s: the operator that was there and its keys are kept", o.store.Dir)
			}
			o.say("%s: start the server with it once there is a tenant: nats-server -c %[1]s", filepath.Join(o.store.Dir, "nats.conf"))
			return nil
		},
	}
}

func (o *authOptions) tenant() *cobra.Command {
	t := natsauth.Tenant{}
	c := &cobra.Command{
		Use:   "tenant",
		Short: "Make or change the account of a tenant (--tenant); the server must reload",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if t.Name, err = o.one(); err != nil {
				return err
			}
			if err := o.store.PutTenant(t); err != nil {
				return err
			}
			o.say("account of tenant %s: have the server reload: nats-server --signal reload", t.Name)
			return nil
		},
	}
	c.Flags().Int64Var(&t.MaxDisk, "max-disk", 0, "bytes of the tenant's streams; 0 is as much as the server has")
	c.Flags().BoolVar(&t.Rotate, "rotate", false, "sign users with a new key: everyone let in by the old one is shut out")
	return c
}

func (o *authOptions) user() *cobra.Command {
	var life time.Duration
	c := &cobra.Command{
		Use:   "user ROLE",
		Short: "Make a user of a tenant: relay, consumer, archive or admin",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tenant, err := o.one()
			if err != nil {
				return err
			}
			u, err := o.store.NewUser(tenant, natsauth.Grant{Role: natsauth.Role(args[0])}, life)
			if err != nil {
				return err
			}
			o.say("%s: user %s%s", u.Env, u.Key, until(u))
			return nil
		},
	}
	c.Flags().DurationVar(&life, "expires", 0, "how long the credential lasts; 0 is until it is revoked")
	return c
}

func until(u natsauth.User) string {
	if u.Until.IsZero() {
		return ""
	}
	return " until " + u.Until.UTC().Format(time.RFC3339)
}

func (o *authOptions) run() *cobra.Command {
	var id string
	var sessions []string
	var life time.Duration
	c := &cobra.Command{
		Use:   "run",
		Short: "Make the id of a run and the credential of its edge, before it starts",
		Long: `run makes a run id and a credential that can publish this run, take its commands,
and nothing else. It prints the environment for cbcast run, and keeps it in env.

It needs of the directory: keys/TENANT-signing.nk and accounts/TENANT.jwt. Whoever has
the signing key can let anybody in: do not make credentials where agents run.`,
		Example: `  cbcast auth run --tenant acme --expires 6h > run.env
  set -a; . ./run.env; set +a; cbcast run -- claude -p …`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			tenant, err := o.one()
			if err != nil {
				return err
			}
			g := natsauth.Grant{Role: natsauth.Edge, Run: id}
			if g.Run, err = o.runID(tenant, id); err != nil {
				return err
			}
			if g.Sessions, err = conversations(tenant, sessions); err != nil {
				return &exitError{exitUsage, err}
			}
			u, err := o.store.NewUser(tenant, g, life)
			if err != nil {
				return err
			}
			env, err := os.ReadFile(u.Env)
			if err != nil {
				return err
			}
			o.say("# user %s%s", u.Key, until(u))
			_, err = o.a.io.out.Write(env)
			return err
		},
	}
	c.Flags().StringVar(&id, "id", "", "the run's id, a UUIDv7 (default: a new one)")
	c.Flags().StringArrayVar(&sessions, "session", nil, "the conversation that the run will use, as DIALECT/ID, or DIALECT/ID@HOST\nif the id is no UUID; may be repeated. Without it no lease can be held")
	c.Flags().DurationVar(&life, "expires", 24*time.Hour, "how long the credential lasts; 0 is until it is revoked")
	return c
}

// runID checks a run id, or makes one.
func (o *authOptions) runID(tenant, id string) (string, error) {
	if id == "" {
		made, err := uuid.NewV7()
		return made.String(), err
	}
	cfg := o.a.cfg.Edge
	cfg.Tenant, cfg.RunID = tenant, id
	if err := cfg.Validate(); err != nil {
		return "", &exitError{exitUsage, err}
	}
	return id, nil
}

// conversations reads DIALECT/ID[@HOST].
func conversations(tenant string, list []string) ([]subject.Conversation, error) {
	var all []subject.Conversation
	for _, s := range list {
		d, rest, ok := strings.Cut(s, "/")
		c := subject.Conversation{Tenant: tenant, Dialect: d, Session: rest}
		if at := strings.LastIndexByte(rest, '@'); at > 0 {
			c.Session, c.Host = rest[:at], rest[at+1:]
		}
		if !ok || d == "" || c.Session == "" || checkDialect(d) != nil {
			return nil, fmt.Errorf("--session %s: want DIALECT/ID, or DIALECT/ID@HOST", s)
		}
		all = append(all, c)
	}
	return all, nil
}

func (o *authOptions) revoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke USER",
		Short: "Shut out a user (its public key, U…) of a tenant; the server must reload",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tenant, err := o.one()
			if err != nil {
				return err
			}
			if err := o.store.Revoke(tenant, args[0]); err != nil {
				return err
			}
			o.say("revoked: have the server reload: nats-server --signal reload")
			return nil
		},
	}
}

func (o *authOptions) show() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "show ROLE",
		Short: "Print what a role may publish and subscribe to, for a configuration of your own",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tenant, err := o.one()
			if err != nil {
				return err
			}
			p, err := natsauth.Grant{
				Role: natsauth.Role(args[0]), Tenant: tenant, Run: id, Partitions: o.store.Partitions, Inbox: "_INBOX_" + args[0],
			}.Permissions()
			if err != nil {
				return &exitError{exitUsage, err}
			}
			for _, s := range p.Publish {
				o.say("publish    %s", s)
			}
			for _, s := range p.Deny {
				o.say("but not    %s", s)
			}
			for _, s := range p.Subscribe {
				o.say("subscribe  %s", s)
			}
			return nil
		},
	}
	c.Flags().StringVar(&id, "id", "", "the run of an edge; without it, every run of the tenant")
	return c
}
