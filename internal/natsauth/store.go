package natsauth

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/cbcast/cbcast/internal/subject"
)

// A Store is a directory with what is secret (keys, creds), what the server reads
// (nats.conf and what it includes) and what users read (env). Nothing in it that
// exists is replaced, but for what is made from the rest: nats.conf and accounts.conf.
type Store struct {
	Dir string
	// URL is where users find the server.
	URL string
	// Partitions of the events; 0 is 1.
	Partitions int
	// Data is where a server keeps its streams; "" is the directory jetstream beside
	// its configuration.
	Data string
}

func (s Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

func (s Store) keyFile(name string) string { return s.path("keys", name+".nk") }

// write makes a file, and its directory, that only this user can read. It replaces
// what is there at once.
func write(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// key reads a key, or makes it.
func (s Store) key(name string, kind nkeys.PrefixByte) (nkeys.KeyPair, error) {
	k, err := s.oldKey(name, kind)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	return s.newKey(name, kind)
}

func (s Store) oldKey(name string, kind nkeys.PrefixByte) (nkeys.KeyPair, error) {
	b, err := os.ReadFile(s.keyFile(name))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	k, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(b))))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", s.keyFile(name), err)
	}
	if pub, err := k.PublicKey(); err != nil || nkeys.Prefix(pub) != kind {
		return nil, fmt.Errorf("key %s: it is of another kind", s.keyFile(name))
	}
	return k, nil
}

// newKey makes a key, in the place of one that is there.
func (s Store) newKey(name string, kind nkeys.PrefixByte) (nkeys.KeyPair, error) {
	k, err := nkeys.CreatePair(kind)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	seed, err := k.Seed()
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	if err := write(s.keyFile(name), append(seed, '\n')); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return k, nil
}

// public is a key's public half.
func public(k nkeys.KeyPair) string {
	p, err := k.PublicKey()
	if err != nil { // only for a wiped key
		panic(err)
	}
	return p
}

// Env is the environment of a user: lines NAME=value, for a shell and for cbcast.env.
func (s Store) env(vars ...[2]string) []byte {
	var b strings.Builder
	for _, v := range append([][2]string{{"CBCAST_NATS_URL", s.URL}}, vars...) {
		value := v[1]
		if strings.ContainsFunc(value, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		fmt.Fprintf(&b, "%s=%s\n", v[0], value)
	}
	if s.Partitions > 1 {
		fmt.Fprintf(&b, "CBCAST_PARTITIONS=%d\n", s.Partitions)
	}
	return []byte(b.String())
}

const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+="

// serverConf is what the operator of the server may change.
const serverConf = `# Made once by cbcast auth; yours to change. nats.conf beside it is made anew each time.
listen: "127.0.0.1:4222"
server_name: "cbcast"

# Before this listens to a network, give it TLS:
# tls { cert_file: "/etc/nats/server.crt", key_file: "/etc/nats/server.key" }

jetstream {
  store_dir: %q
  sync_interval: "5s"
  limits {
    default_max_consumers: -1
    batch { max_inflight_per_stream: 10000, max_inflight_total: 10000 }
  }
}
`

// conf writes nats.conf, and server.conf where there is none.
func (s Store) conf(generated string) error {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.path("server.conf")); errors.Is(err, fs.ErrNotExist) {
		text := fmt.Sprintf(serverConf, cmp.Or(s.Data, filepath.Join(dir, "jetstream")))
		if err := write(s.path("server.conf"), []byte(text)); err != nil {
			return fmt.Errorf("write server.conf: %w", err)
		}
	}
	text := "# Made by cbcast auth. Changes are lost: server.conf is for those.\ninclude ./server.conf\n\n" + generated
	if err := write(s.path("nats.conf"), []byte(text)); err != nil {
		return fmt.Errorf("write nats.conf: %w", err)
	}
	return nil
}

// inbox is the prefix of a user's answers.
func inbox(words ...string) string {
	for i, w := range words {
		words[i] = subject.Token(w)
	}
	return "_INBOX_" + strings.Join(words, "_")
}

// StaticTenants are the tenants that [Store.Static] has made keys for.
func (s Store) StaticTenants() ([]string, error) {
	names, err := s.names("keys", "-"+string(Relay)+".nk")
	var all []string
	for _, n := range names {
		if t, ok := subject.Untoken(n); ok {
			all = append(all, t)
		}
	}
	return all, err
}

// names are the files of a folder with an ending, without it.
func (s Store) names(folder, ext string) ([]string, error) {
	files, err := os.ReadDir(s.path(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ext); ok && !f.IsDir() {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}
