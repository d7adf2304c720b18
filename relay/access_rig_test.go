package relay_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// A keyring is a list of tokens, and the tokens themselves by name.
type keyring struct {
	t       testing.TB
	entries []relay.Token
	tokens  map[string]string
}

func newKeyring(t testing.TB, list ...relay.Token) *keyring {
	k := &keyring{t: t, tokens: map[string]string{}}
	for _, e := range list {
		k.add(e)
	}
	return k
}

func (k *keyring) add(e relay.Token) {
	k.t.Helper()
	token, entry, err := relay.NewToken(e)
	if err != nil {
		k.t.Fatal(err)
	}
	k.tokens[e.Name], k.entries = token, append(k.entries, entry)
}

// json is the list, without some.
func (k *keyring) json(without ...string) string {
	list := []relay.Token{}
	for _, e := range k.entries {
		if !strings.Contains(" "+strings.Join(without, " ")+" ", " "+e.Name+" ") {
			list = append(list, e)
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(b)
}

func (k *keyring) header(name string) map[string]string {
	k.t.Helper()
	if k.tokens[name] == "" {
		k.t.Fatalf("no token %s", name)
	}
	return map[string]string{"Authorization": "Bearer " + k.tokens[name]}
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func (k *keyring) file(without ...string) string {
	name := filepath.Join(k.t.TempDir(), "tokens.json")
	writeFile(k.t, name, k.json(without...))
	return name
}

func merged(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// audit is what the bus keeps of who gave a command.
func (r *rig) audit(run, command string) event.Audit {
	r.t.Helper()
	e, _, err := r.bus.Control(r.t.Context(), tenant, run, subject.Audit(command))
	if err != nil {
		r.t.Fatal(err)
	}
	var a event.Audit
	if err := json.Unmarshal(e.Data, &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// stranger registers a run of another tenant.
func (r *rig) stranger(run string) {
	r.t.Helper()
	if err := r.bus.PutRun(r.t.Context(), bus.RunInfo{Run: run, Tenant: "umbrella", Dialect: "claude", State: "working"}); err != nil {
		r.t.Fatal(err)
	}
}

func TestParseTokens(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	other := strings.Repeat("cd", 32)
	for text, want := range map[string]string{
		`[]`: "",
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"]}]`:                                                                 "",
		`[{"name":"a","sha256":"` + sum + `","scopes":["admin"],"tenants":["x"],"runs":["r*"],"expires":"2030-01-01T00:00:00Z"}]`: "",
		``:                           "it is empty; a list without tokens is []",
		`{}`:                         "it must be a JSON array of tokens: json: cannot unmarshal object into Go value of type []json.RawMessage",
		`[1]`:                        "token 1: it must be one JSON object in UTF-8",
		`[{"sha256":"` + sum + `"}]`: "token 1: name must be 1 to 64 of the characters A-Z a-z 0-9 - . : and _",
		`[{"name":"a b","sha256":"` + sum + `"}]`:                                                                                           `token 1 ("a b"): name must be 1 to 64 of the characters A-Z a-z 0-9 - . : and _`,
		`[{"name":"local","sha256":"` + sum + `","scopes":["read"]}]`:                                                                       `token 1 ("local"): the name local is the relay's own`,
		`[{"name":"a","sha256":"` + sum + `"}]`:                                                                                             `token 1 ("a"): scopes is missing: some of read, command, answer, delegate, metrics, admin`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["write"]}]`:                                                                          `token 1 ("a"): there is no scope "write"; there are read, command, answer, delegate, metrics, admin`,
		`[{"name":"a","sha256":"abc","scopes":["read"]}]`:                                                                                   `token 1 ("a"): sha256 must be 64 hexadecimal digits: cbcast token makes an entry`,
		`[{"name":"a","token":"x","scopes":["read"]}]`:                                                                                      `token 1: there is no "token" here; name, sha256, scopes, tenants, runs, expires`,
		`[{"name":"a","name":"b","sha256":"` + sum + `","scopes":["read"]}]`:                                                                `token 1: "name" stands there twice`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"],"tenants":[]}]`:                                                              `token 1 ("a"): tenants is there and has none; leave it out for all`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"],"runs":null}]`:                                                               `token 1 ("a"): runs is there and has none; leave it out for all`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"],"tenants":["a*"]}]`:                                                          `token 1 ("a"): tenants are names, without wildcards; leave tenants out for all`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"],"runs":["*"]}]`:                                                              `token 1 ("a"): runs: "*" is no id and no prefix*`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"]},{"name":"a","sha256":"` + other + `","scopes":["read"]}]`:                   `two tokens have the name "a"`,
		`[{"name":"a","sha256":"` + sum + `","scopes":["read"]},{"name":"b","sha256":"` + strings.ToUpper(sum) + `","scopes":["command"]}]`: `"a" and "b" are the same token`,
	} {
		got := ""
		if _, err := relay.ParseTokens([]byte(text)); err != nil {
			got = err.Error()
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add([]byte(`[{"name":"a","sha256":"` + strings.Repeat("ab", 32) + `","scopes":["read"],"runs":["r*"]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := relay.ParseTokens(data)
		if err != nil {
			return
		}
		for _, e := range list {
			if e.Name == "" || len(e.Scopes) == 0 || len(e.SHA256) != 64 || e.Tenants != nil && len(e.Tenants) == 0 {
				t.Errorf("taken: %+v", e)
			}
		}
	})
}
