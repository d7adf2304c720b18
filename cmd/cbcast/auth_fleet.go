package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/relay"
)

// fleetTokens are the tokens that a deployment begins with. Notify acts for the people
// who press its buttons; admin is for whoever runs it. Prometheus sees figures only; its
// token has a directory of its own, to be given to its container without other secrets,
// and is read there under another user.
var fleetTokens = []struct {
	file string
	open bool // other users may read it
	relay.Token
}{
	{filepath.Join("tokens", "notify"), false, relay.Token{Name: "notify", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand, relay.ScopeDelegate}}},
	{filepath.Join("prometheus", "token"), true, relay.Token{Name: "prometheus", Scopes: []relay.Scope{relay.ScopeMetrics}}},
	{filepath.Join("tokens", "admin"), false, relay.Token{Name: "admin", Scopes: []relay.Scope{relay.ScopeAdmin}}},
}

func (o *authOptions) fleet() *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Write all secrets of a deployment, those that are not there",
		Long: `fleet writes what docker-compose.yml, or a deployment like it, needs to begin with:

  nats/                 nats.conf and the users of its accounts, as auth static
  relay.secret          what relays sign with that stand for one another
  tokens.json           the list of tokens of the relays
  tokens/admin, notify  the tokens themselves
  prometheus/token      the one with which Prometheus reads the relays' figures; it shows no run
  archive/signing.pem   the key of the archive, and its public key
  archive/wrap.key      what the keys of runs are encrypted with

What is there is kept: a second call adds the tenants it names to those there are, and
writes the permissions in nats.conf anew.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			dir := o.store.Dir
			o.store.Dir = filepath.Join(dir, "nats")
			had, err := o.store.StaticTenants()
			if err != nil {
				return err
			}
			if _, err := o.store.Static(union(had, o.tenants)); err != nil {
				return err
			}
			for _, step := range []func(string) error{fleetSecret, o.a.fleetTokens, o.a.fleetArchive} {
				if err := step(dir); err != nil {
					return err
				}
			}
			o.say("%s: complete", dir)
			return nil
		},
	}
	c.Flags().StringVar(&o.store.Data, "data", "", "where the servers keep their streams; beside nats.conf without")
	return c
}

// union is a and what b has beside it, sorted.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// missing reports whether there is no file name, and makes the directory for it.
func missing(name string) (bool, error) {
	_, err := os.Lstat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, os.MkdirAll(filepath.Dir(name), 0o700)
}

func fleetSecret(dir string) error {
	name := filepath.Join(dir, "relay.secret")
	if yes, err := missing(name); !yes {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return durable.WriteFile(name, []byte(hex.EncodeToString(secret)+"\n"), 0o600)
}

// fleetTokens makes each token that has no file. The entry with its hash is in the list
// before the token is: after a crash between them there is one entry too many.
func (a *app) fleetTokens(dir string) error {
	for _, t := range fleetTokens {
		name, mode := filepath.Join(dir, t.file), fs.FileMode(0o600)
		if t.open {
			mode = 0o644
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
		}
		yes, err := missing(name)
		if err != nil {
			return err
		}
		if !yes {
			continue
		}
		token, entry, err := relay.NewToken(t.Token)
		if err != nil {
			return err
		}
		list := filepath.Join(dir, "tokens.json")
		if err := dropToken(list, t.Name); err != nil {
			return err
		}
		if err := addToken(list, entry); err != nil {
			return err
		}
		if err := durable.WriteFile(name, []byte(token+"\n"), mode); err != nil {
			return fmt.Errorf("write the token of %s: %w", t.Name, err)
		}
	}
	return nil
}

func (a *app) fleetArchive(dir string) error {
	key := filepath.Join(dir, "archive", "signing.pem")
	yes, err := missing(key)
	if err != nil {
		return err
	}
	if yes {
		if err := archive.NewKey(key); err != nil {
			return err
		}
	}
	wrap := filepath.Join(dir, "archive", "wrap.key")
	if yes, err = missing(wrap); !yes {
		return err
	}
	return newWrapKey(wrap)
}
