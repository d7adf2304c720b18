package wire

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A document is the AsyncAPI document, ready to hold messages against.
type document struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	channels map[string]*regexp.Regexp
	compiled map[string]*jsonschema.Schema
	seen     map[string]int // messages by name
}

const url = "https://cbcast.test/asyncapi.json"

func newDocument(t *testing.T) *document {
	t.Helper()
	f, err := os.Open("../../relay/spec/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{
		doc: v.(map[string]any), compiler: jsonschema.NewCompiler(), channels: map[string]*regexp.Regexp{},
		compiled: map[string]*jsonschema.Schema{}, seen: map[string]int{},
	}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(url, v); err != nil {
		t.Fatal(err)
	}
	for name, ch := range at(v, "channels").(map[string]any) {
		d.channels[name] = pattern(at(ch, "address").(string))
	}
	return d
}

func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

var parameter = regexp.MustCompile(`\\\{(\w+)\\\}`)

// pattern is an address as a regular expression: each parameter is one token, but
// for the key of a conversation, which has several.
func pattern(address string) *regexp.Regexp {
	const token = `(?:[A-Za-z0-9_-]|=[0-9A-F]{2}|=h[0-9a-f]{32}$)+`
	p := parameter.ReplaceAllStringFunc(regexp.QuoteMeta(address), func(s string) string {
		name := strings.Trim(s, `\{}`)
		if name == "conversation" {
			return `(?P<conversation>` + token + `(?:\.` + token + `){2,3})`
		}
		return `(?P<` + name + `>` + token + `)`
	})
	return regexp.MustCompile("^" + p + "$")
}

// check says what of a message is not in the document.
func (d *document) check(m message) error {
	for name, re := range d.channels {
		if params := re.FindStringSubmatch(m.subject); params != nil {
			kind := ""
			if i := re.SubexpIndex("kind"); i > 0 {
				kind = params[i]
			}
			return d.checkOn(name, kind, m)
		}
	}
	return errors.New("no channel has this subject")
}

// checkOn finds the message of a channel that m is. One that ends what a key says
// has no value, and is none.
func (d *document) checkOn(channel, kind string, m message) error {
	if channel == "events" && len(m.header) == 0 && len(m.data) == 0 {
		return nil // the end of a batch, which is not stored
	}
	if m.header["KV-Operation"] != "" || m.header["Nats-Marker-Reason"] != "" {
		return d.valid("/components/schemas/BucketHeaders", anys(m.header))
	}
	var errs []error
	for name := range at(d.doc, "channels", channel, "messages").(map[string]any) {
		err := d.is(name, kind, m)
		if err == nil {
			d.seen[name]++
			return nil
		}
		if typ := at(d.doc, "components", "messages", name, "x-ce-type"); typ == nil || typ == m.header["ce-type"] {
			errs = append(errs, fmt.Errorf("it is no %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *document) is(name, kind string, m message) error {
	ptr := "/components/messages/" + name
	if err := d.valid(ptr+"/headers", anys(m.header)); err != nil {
		return err
	}
	msg := at(d.doc, "components", "messages", name)
	if kinds, ok := at(msg, "x-kinds").([]any); ok && !slices.Contains(kinds, any(kind)) {
		return fmt.Errorf("it has the kind %q", kind)
	}
	payload, ok := at(msg, "payload").(map[string]any)
	switch {
	case !ok || payload["$ref"] == nil && payload["const"] == nil:
		return nil // bytes
	case payload["const"] == "":
		if len(m.data) > 0 {
			return errors.New("it has data")
		}
		return nil
	}
	v, ok := m.json()
	if !ok {
		return errors.New("its data is no JSON")
	}
	return d.valid(ptr+"/payload", v)
}

func (d *document) valid(ptr string, v any) error {
	s := d.compiled[ptr]
	if s == nil {
		var err error
		if s, err = d.compiler.Compile(url + "#" + ptr); err != nil {
			return err
		}
		d.compiled[ptr] = s
	}
	return s.Validate(v)
}

func (d *document) types() []string { return sorted(d.seen) }

func anys(h map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range h {
		out[k] = v
	}
	return out
}
