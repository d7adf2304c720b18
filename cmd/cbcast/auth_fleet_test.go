package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/relay"
)

// All secrets of a fleet are the owner's alone but for the token of Prometheus, which
// sees no run; a second call changes nothing but the configuration of the servers.
func TestFleetSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	cfg, err := loadConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	fleet := func() {
		t.Helper()
		a := &app{cfg: cfg, io: stdio{out: new(bytes.Buffer), err: new(bytes.Buffer)}}
		c := newAuth(a)
		c.SetArgs([]string{"fleet", "--dir", dir, "--tenant", "default"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (text map[string]string, open []string) {
		t.Helper()
		text = map[string]string{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, path)
			text[name] = string(b)
			i, errInfo := e.Info()
			if errInfo == nil && i.Mode().Perm()&0o004 != 0 {
				open = append(open, name)
			}
			return errors.Join(err, errInfo)
		})
		if err != nil {
			t.Fatal(err)
		}
		return text, open
	}
	fleet()
	first, open := read()
	if d := cmp.Diff([]string{"archive/signing.pub.pem", "prometheus/token"}, open); d != "" {
		t.Errorf("readable by others (-want +got):\n%s", d)
	}
	list, err := relay.ParseTokens([]byte(first["tokens.json"]))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]relay.Scope{}
	for _, e := range list {
		got[e.Name] = e.Scopes
	}
	want := map[string][]relay.Scope{
		"admin":      {relay.ScopeAdmin},
		"notify":     {relay.ScopeAnswer, relay.ScopeCommand, relay.ScopeDelegate},
		"prometheus": {relay.ScopeMetrics},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tokens (-want +got):\n%s", d)
	}
	fleet()
	second, _ := read()
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("a second call (-first +second):\n%s", d)
	}
}
