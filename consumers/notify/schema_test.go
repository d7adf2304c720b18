package notify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/cbcast/cbcast/consumers/notify"
)

// theirs is the schema as somebody else reads it.
var theirs = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(notify.Schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("rules.json")
})

// agree holds a file against the schema in both ways, and returns what ours found. A
// file that is no YAML has ok false.
func agree(t *testing.T, file []byte) (found []string, ok bool) {
	t.Helper()
	value, ours, err := notify.Violations(file)
	var fe *notify.FileError
	if errors.As(err, &fe) {
		return nil, false
	}
	s, err2 := theirs()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	var want []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		at := ""
		for _, part := range e.InstanceLocation {
			at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
		}
		switch k := e.ErrorKind.(type) {
		case *kind.PropertyNames:
			want = append(want, "propertyNames "+k.Property)
			return
		case *kind.AdditionalProperties:
			for _, name := range k.Properties {
				want = append(want, at+" additionalProperties "+name)
			}
		default:
			if len(e.Causes) == 0 {
				want = append(want, at+" "+k.KeywordPath()[0])
			}
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	var ve *jsonschema.ValidationError
	if errors.As(s.Validate(value), &ve) {
		walk(ve)
	}
	slices.Sort(want)
	slices.Sort(ours)
	if want, ours = slices.Compact(want), slices.Compact(ours); !slices.Equal(want, ours) {
		d := cmp.Diff(want, ours)
		t.Fatalf("violations (-library +ours):\n%s\nof:\n%s", d, file)
	}
	return ours, true
}

// everything has each type of destination and each key of a rule at least once.
const everything = `
version: 1
public_url: https://cbcast.example.com
owner: mail
max_age: 1d
destinations:
  chat: {type: slack, token: env:T, channel: C1, app_token: x, users: {U012: [answer], E1/W2: [answer, command]}, retry: {ladder: [5s, 1m], max_age: 1h}, rate: {every: 1s, burst: 3}}
  in: {type: slack_webhook, url: "https://hooks.example.com/x", queue: 10, merge: 0, ca: /etc/ca.pem}
  hook: {type: webhook, url: "http://127.0.0.1:1/", mode: binary, secrets: [env:S], headers: {X-A: b}, allow: [127.0.0.1], ca: /etc/ca.pem}
  mail: {type: email, host: mx, port: 25, tls: none, from: a@example.com, to: [b@example.com], ca: /etc/ca.pem}
  page: {type: command, argv: [page, -n], env: {A: b}, timeout: 5s}
  out: {type: log}
quiet: {night: {zone: UTC, from: "22:00", to: "07:00", days: [mon, tue]}}
rules:
  - {name: a, to: [chat, {destination: mail, at: c@example.com}], match: {tenant: "a*", ci: {repo: [x, y]}, duration: {min: 5m, max: 1h}, cost: {min: 0.5}}, except: {verdict: denied}, continue: true, mention: x}
  - {name: b, to: [in], group: {by: [tenant], wait: 1m, interval: 5m, repeat: 1h}, quiet: night, pass: [lost]}
  - {name: c, to: [page, hook, out], waiting: {remind: [1h, 2h], escalate: {after: 3h, to: [chat], mention: y}}}
`

// The schema means to us what it means to a library, place by place: for the rules that
// are there, and for many that are made wrong.
func TestSchemaAgrees(t *testing.T) {
	sample, err := os.ReadFile("../../deploy/notify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := [][]byte{sample, []byte(everything)}
	var docs []any
	for _, file := range files {
		doc, _, err := notify.Violations(file)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
		if found, ok := agree(t, file); !ok || len(found) > 0 {
			t.Fatalf("%v in\n%s", found, file)
		}
	}
	for _, tc := range ruleErrors {
		agree(t, []byte(tc.file))
	}

	m := newMutator()
	good, failed := 0, map[string]int{}
	for i := range 1000 {
		raw, err := m.mutate(docs[i%len(docs)])
		if err != nil {
			t.Fatal(err)
		}
		found, ok := agree(t, raw)
		if !ok {
			t.Fatalf("this cannot be read:\n%s", raw)
		}
		if len(found) == 0 {
			good++
		}
		for _, f := range found {
			for key := range m.keywords {
				if strings.Contains(f, key) {
					failed[key]++
				}
			}
		}
	}
	for key := range m.keywords {
		if failed[key] == 0 {
			t.Errorf("no document failed for %s", key)
		}
	}
	if good < 30 {
		t.Errorf("only %d documents are good", good)
	}
}

func FuzzSchemaAgrees(f *testing.F) {
	f.Add([]byte(everything))
	for _, tc := range ruleErrors {
		if !strings.Contains(tc.name, "alias") { // they are slow
			f.Add([]byte(tc.file))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) < 1<<16 {
			agree(t, file)
		}
	})
}

// A mutator changes documents at random, the same way each time.
type mutator struct {
	rnd      *rand.Rand
	names    []string // of properties
	values   []any
	keywords map[string]bool // what can fail
}

func newMutator() *mutator {
	m := &mutator{rnd: rand.New(rand.NewPCG(6, 13)), keywords: map[string]bool{}}
	var schema map[string]any
	if err := json.Unmarshal(notify.Schema, &schema); err != nil {
		panic(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				switch key {
				case "properties", "$defs":
					part := v[key].(map[string]any)
					for _, name := range slices.Sorted(maps.Keys(part)) {
						m.names = append(m.names, name)
						walk(part[name])
					}
					continue
				case "$schema", "$id", "title", "description", "$ref", "allOf", "if", "then", "items":
				default:
					m.keywords[key] = true
				}
				walk(v[key])
			}
		}
	}
	walk(schema)
	many := map[string]any{}
	for i := range 201 {
		many[fmt.Sprint("u", i)] = "x"
	}
	m.values = []any{
		nil, true, false, 0, 1, 2, -1, 1.5, 70000, 1e300, "", "x", "30s", "1d2h", "log", "slack", "email", "a b", "é", "25:00", "07:30", "https://x",
		strings.Repeat("ü", 63), strings.Repeat("ü", 2001),
		[]any{},
		[]any{"a"},
		[]any{"mon", "tue", "mon"},
		[]any{[]any{1}, []any{1.0}},
		slices.Repeat([]any{"a"}, 501),
		map[string]any{},
		map[string]any{"type": "log"},
		map[string]any{"type": "slack", "token": "x"},
		map[string]any{"destination": "hook"},
		map[string]any{"A B": 1},
		many,
	}
	return m
}

// mutate returns another document, as JSON; doc stays as it is.
func (m *mutator) mutate(doc any) ([]byte, error) {
	for range 1 + m.rnd.IntN(3) {
		doc = m.change(doc)
	}
	return json.Marshal(doc)
}

func (m *mutator) change(v any) any {
	any1 := func() any { return m.values[m.rnd.IntN(len(m.values))] }
	switch v := v.(type) {
	case map[string]any:
		v = maps.Clone(v)
		keys := slices.Sorted(maps.Keys(v))
		switch n := m.rnd.IntN(10); {
		case n == 0 || len(keys) == 0:
			v[m.names[m.rnd.IntN(len(m.names))]] = any1()
		case n == 1:
			delete(v, keys[m.rnd.IntN(len(keys))])
		case n > 2:
			key := keys[m.rnd.IntN(len(keys))]
			v[key] = m.change(v[key])
		default:
			return any1()
		}
		return v
	case []any:
		switch n := m.rnd.IntN(10); {
		case n == 0 || len(v) == 0:
			return append(slices.Clip(v), any1())
		case n == 1:
			return append(slices.Clip(v), v[m.rnd.IntN(len(v))])
		case n > 2:
			v = slices.Clone(v)
			i := m.rnd.IntN(len(v))
			v[i] = m.change(v[i])
			return v
		}
	case float64:
		return v*float64(m.rnd.IntN(5)-2) + 0.5*float64(m.rnd.IntN(2))
	}
	return any1()
}

// A keyword that is not known is never passed over.
func TestSchemaKeywords(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties": {"a": {"items": {"format": "uri"}}}}`: `json: unknown field "format"`,
		`{"allOf": [{"not": {}}]}`:                            `json: unknown field "not"`,
		`{"if": {}, "else": {}}`:                              `json: unknown field "else"`,
		`{"type": "text"}`:                                    `there is no type "text"`,
		`{"enum": [[]]}`:                                      "a const or enum of [] is not known",
		`{"const": {}}`:                                       "a const or enum of map[] is not known",
		`{"pattern": "(?=x)"}`:                                "error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
		`{"$ref": "#/$defs/a"}`:                               "$ref #/$defs/a leads nowhere",
		`{"$ref": "other.json", "$defs": {"other.json": {}}}`: "$ref other.json leads nowhere",
		`{"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}`:    "goes in a circle",
		`{"properties": {"a": {"$defs": {}}}}`:                                              "$defs are of the root only",
		`{"additionalProperties": {"properties": {"a": {"patternProperties": {"x": {}}}}}}`: `json: unknown field "patternProperties"`,
	} {
		if err := notify.ReadSchema(schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", schema, err, want)
		}
	}
	if err := notify.ReadSchema(string(notify.Schema)); err != nil {
		t.Error(err)
	}
}
