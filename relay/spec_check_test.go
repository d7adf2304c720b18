package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A contract is the OpenAPI document, ready to hold requests and answers against.
type contract struct {
	doc     map[string]any
	ops     []*operation
	openapi *jsonschema.Compiler
	busapi  *jsonschema.Compiler
	facts   map[string]string // ce-type to the name of its data's schema

	mu       sync.Mutex // guards the rest
	compiled map[string]*jsonschema.Schema
	seen     map[string]bool // "operation status code" of every answer that was checked
}

// An operation is one method on one path of the document.
type operation struct {
	id, method, path string
	segments         []string
	scope            string
	pointer          string // to it in the document
	params           []param
	responses        map[string]string // status to the pointer of its response
}

type param struct{ name, in, pointer string }

const openapiURL, asyncapiURL = "https://cbcast.test/openapi.json", "https://cbcast.test/asyncapi.json"

func readSpec(name string) map[string]any {
	f, err := os.Open("spec/" + name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	v, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return v.(map[string]any)
}

var theContract = sync.OnceValue(func() *contract {
	c := &contract{
		doc: readSpec("openapi.json"), openapi: jsonschema.NewCompiler(), busapi: jsonschema.NewCompiler(),
		compiled: map[string]*jsonschema.Schema{}, seen: map[string]bool{}, facts: map[string]string{},
	}
	bus := readSpec("asyncapi.json")
	for _, x := range []struct {
		c   *jsonschema.Compiler
		url string
		doc any
	}{{c.openapi, openapiURL, c.doc}, {c.busapi, asyncapiURL, bus}} {
		x.c.AssertFormat()
		if err := x.c.AddResource(x.url, x.doc); err != nil {
			panic(err)
		}
	}
	for path, item := range at(c.doc, "paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			c.ops = append(c.ops, c.operation(strings.ToUpper(method), path, op.(map[string]any)))
		}
	}
	for _, m := range at(bus, "components", "messages").(map[string]any) {
		typ, _ := at(m, "x-ce-type").(string)
		if ref, ok := at(m, "payload", "$ref").(string); ok && typ != "" {
			c.facts[typ] = strings.TrimPrefix(ref, "#/components/schemas/")
		}
	}
	return c
})

// at walks down a document; nil where there is nothing.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func (c *contract) operation(method, path string, op map[string]any) *operation {
	o := &operation{
		id: op["operationId"].(string), method: method, path: path, segments: strings.Split(path, "/"),
		pointer:   pointer("paths", path, strings.ToLower(method)),
		responses: map[string]string{},
	}
	for _, s := range op["security"].([]any) {
		for _, scopes := range s.(map[string]any) {
			for _, sc := range scopes.([]any) {
				o.scope = sc.(string)
			}
		}
	}
	params, _ := op["parameters"].([]any)
	for i, p := range params {
		ptr := o.pointer + "/parameters/" + strconv.Itoa(i)
		v, ptr := c.resolve(p, ptr)
		o.params = append(o.params, param{v["name"].(string), v["in"].(string), ptr})
	}
	for status, res := range op["responses"].(map[string]any) {
		_, o.responses[status] = c.resolve(res, o.pointer+"/responses/"+status)
	}
	return o
}

func pointer(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k))
	}
	return b.String()
}

// resolve follows a reference to a component.
func (c *contract) resolve(v any, ptr string) (map[string]any, string) {
	m := v.(map[string]any)
	ref, ok := m["$ref"].(string)
	if !ok {
		return m, ptr
	}
	ref = strings.TrimPrefix(ref, "#")
	return c.get(ref).(map[string]any), ref
}

// get is what a pointer points to, nil without anything.
func (c *contract) get(ptr string) any {
	var v any = c.doc
	for _, k := range strings.Split(strings.TrimPrefix(ptr, "/"), "/") {
		k = strings.NewReplacer("~1", "/", "~0", "~").Replace(k)
		switch m := v.(type) {
		case map[string]any:
			v = m[k]
		case []any:
			n, _ := strconv.Atoi(k)
			v = m[n]
		default:
			return nil
		}
	}
	return v
}

// schema compiles the schema at a pointer, once.
func (c *contract) schema(compiler *jsonschema.Compiler, url, ptr string) *jsonschema.Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.compiled[url+ptr]; s != nil {
		return s
	}
	s, err := compiler.Compile(url + "#" + ptr)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", ptr, err))
	}
	c.compiled[url+ptr] = s
	return s
}

func (c *contract) valid(ptr string, v any) error {
	return c.schema(c.openapi, openapiURL, ptr).Validate(v)
}

// factData holds the data of a fact against the schema of its type. Types of
// frames have none.
func (c *contract) factData(typ string, v any) error {
	name, ok := c.facts[typ]
	if !ok {
		return nil
	}
	return c.schema(c.busapi, asyncapiURL, "/components/schemas/"+name).Validate(v)
}

// find is the operation of a request, nil where there is none. HEAD is GET.
func (c *contract) find(method string, u *url.URL) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	path := strings.Split(u.EscapedPath(), "/")
	var found *operation
	for _, o := range c.ops {
		if o.method != method || len(o.segments) != len(path) {
			continue
		}
		ok, vars := true, 0
		for i, s := range o.segments {
			if strings.HasPrefix(s, "{") {
				ok, vars = ok && path[i] != "", vars+1
				continue
			}
			got, err := url.PathUnescape(path[i])
			ok = ok && err == nil && got == s
		}
		if ok && (found == nil || vars == 0) {
			found = o
		}
	}
	return found
}

// An exchange is a request and what came back.
type exchange struct {
	method  string
	url     *url.URL
	header  http.Header
	body    []byte
	status  int
	answer  http.Header
	content []byte
	lax     bool // parameters that nobody knows are not looked at, as the relay does
}

// check says what of an exchange is not in the document.
func (c *contract) check(x exchange) error {
	o := c.find(x.method, x.url)
	if o == nil {
		return c.checkStray(x)
	}
	status := strconv.Itoa(x.status)
	ptr, ok := o.responses[status]
	if request := c.get(o.pointer + "/requestBody"); x.status == http.StatusRequestEntityTooLarge && request == nil && len(x.body) > 0 {
		return nil // a body that nobody takes, and far too long
	}
	if x.status == http.StatusMethodNotAllowed {
		return fmt.Errorf("%s %s is documented and answered with 405", x.method, o.path)
	}
	if !ok {
		return fmt.Errorf("%s: the status %d is not documented: %.300s", o.id, x.status, x.content)
	}
	if err := c.checkContent(o, ptr, x); err != nil {
		return fmt.Errorf("%s: the answer %d is not as documented: %w\n%.600s", o.id, x.status, err, x.content)
	}
	if x.status < http.StatusMultipleChoices {
		if err := c.checkRequest(o, x); err != nil {
			return fmt.Errorf("%s: a request was accepted that is not as documented: %w\n%.600s", o.id, err, x.body)
		}
	}
	c.note(o, x)
	return nil
}

// checkStray is for requests that no operation is for.
func (c *contract) checkStray(x exchange) error {
	switch x.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnauthorized, http.StatusForbidden:
	case http.StatusNoContent:
		if x.method == http.MethodOptions && x.answer.Get("Access-Control-Allow-Origin") != "" {
			return nil // a page of a configured origin asks if it may
		}
		fallthrough
	default:
		return fmt.Errorf("%s %s is not documented and answers %d: %.300s", x.method, x.url.Path, x.status, x.content)
	}
	if x.method == http.MethodHead {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(x.content))
	if err == nil {
		err = c.valid("/components/schemas/Error", v)
	}
	return err
}

func (c *contract) note(o *operation, x exchange) {
	var e struct{ Code string }
	if x.status >= http.StatusBadRequest {
		_ = json.Unmarshal(x.content, &e) // it is an error body
	}
	c.mu.Lock()
	c.seen[fmt.Sprintf("%s %d %s", o.id, x.status, e.Code)] = true
	c.mu.Unlock()
}

func (c *contract) checkContent(o *operation, ptr string, x exchange) error {
	if got := x.answer.Get("X-Content-Type-Options"); got != "nosniff" {
		return fmt.Errorf("X-Content-Type-Options is %q", got)
	}
	content, _ := c.get(ptr + "/content").(map[string]any)
	if len(content) == 0 {
		if len(x.content) > 0 {
			return fmt.Errorf("it has a body")
		}
		return nil
	}
	typ, _, _ := strings.Cut(x.answer.Get("Content-Type"), ";")
	if _, ok := content[typ]; !ok {
		return fmt.Errorf("its type is %q", typ)
	}
	if x.method == http.MethodHead || !strings.HasSuffix(typ, "json") {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(x.content))
	if err != nil {
		return err
	}
	if o.id == "listEvents" && x.status == http.StatusOK {
		if err := c.checkFacts(v); err != nil {
			return err
		}
	}
	return c.valid(ptr+pointer("content", typ, "schema"), v)
}

// checkFacts holds the facts of a page against their schemas.
func (c *contract) checkFacts(page any) error {
	events, _ := at(page, "events").([]any)
	for _, e := range events {
		if err := c.checkFact(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *contract) checkFact(e any) error {
	typ, _ := at(e, "type").(string)
	data, ok := at(e, "data").(map[string]any)
	if !ok {
		return nil
	}
	if err := c.factData(typ, data); err != nil {
		return fmt.Errorf("the data of %s: %w", typ, err)
	}
	return nil
}

// checkRequest is for what was accepted: it has to be documented.
func (c *contract) checkRequest(o *operation, x exchange) error {
	known := map[string]string{}
	for _, p := range o.params {
		known[p.in+" "+p.name] = p.pointer
	}
	for name, values := range x.url.Query() {
		ptr, ok := known["query "+name]
		beaten := name == "after" && len(x.header.Values("Last-Event-ID")) > 0 ||
			name == "after_seq" && (len(x.header.Values("Last-Event-ID")) > 0 || x.url.Query().Has("after"))
		if !ok && x.lax || beaten {
			continue
		}
		if !ok {
			return fmt.Errorf("the parameter %q", name)
		}
		for _, v := range values {
			if err := c.valid(ptr+"/schema", v); err != nil {
				return fmt.Errorf("the parameter %q: %w", name, err)
			}
		}
	}
	body := bytes.TrimSpace(bytes.TrimPrefix(x.body, []byte("\ufeff")))
	request, _ := c.get(o.pointer + "/requestBody").(map[string]any)
	if len(body) == 0 {
		if request["required"] == true {
			return fmt.Errorf("it has no body")
		}
		return nil
	}
	if request == nil {
		return nil // nobody reads it
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return c.valid(o.pointer+"/requestBody"+pointer("content", "application/json", "schema"), v)
}

// maxChecked bounds the events of one stream that are held against the document.
const maxChecked = 200

// checked holds every exchange of a client against the document.
func checked(t testing.TB, tr http.RoundTripper) http.RoundTripper {
	if _, ok := t.(*testing.T); !ok {
		return tr // a benchmark measures
	}
	return &checker{t, theContract(), tr}
}

type checker struct {
	t    testing.TB
	c    *contract
	next http.RoundTripper
}

func (k *checker) RoundTrip(q *http.Request) (*http.Response, error) {
	x := exchange{method: q.Method, url: q.URL, header: q.Header}
	if q.Body != nil {
		b, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		_ = q.Body.Close()
		q = q.Clone(q.Context())
		x.body, q.Body = b, io.NopCloser(bytes.NewReader(b))
	}
	res, err := k.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	x.status, x.answer = res.StatusCode, res.Header
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		if err := k.c.check(x); err != nil {
			k.t.Error(err)
		}
		if o := k.c.find(x.method, x.url); o != nil {
			res.Body = &sseChecker{ReadCloser: res.Body, k: k, o: o}
		}
		return res, nil
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(b))
	x.content = b
	if err := k.c.check(x); err != nil {
		k.t.Error(err)
	}
	return res, nil
}

// An sseChecker reads what passes through to the client.
type sseChecker struct {
	io.ReadCloser
	k     *checker
	o     *operation
	buf   []byte
	count int
}

func (s *sseChecker) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.count >= maxChecked {
		s.buf = nil
		return n, err
	}
	s.buf = append(s.buf, p[:n]...)
	for s.count < maxChecked {
		block, rest, ok := bytes.Cut(s.buf, []byte("\n\n"))
		if !ok {
			break
		}
		if err := s.k.c.checkSSE(s.o, block); err != nil {
			s.k.t.Errorf("%s: %v\n%.600s", s.o.id, err, block)
		}
		s.buf = rest
		s.count++
	}
	return n, err
}

// checkSSE holds one block of a stream against the operation's x-events. What
// servers may send is narrower here than what clients must take: one data line, no
// CR, the fields in one order.
func (c *contract) checkSSE(o *operation, block []byte) error {
	if bytes.ContainsAny(block, "\r\x00") {
		return fmt.Errorf("a control character in a frame")
	}
	lines := strings.Split(string(block), "\n")
	if len(lines) == 1 && (strings.HasPrefix(lines[0], ":") || strings.HasPrefix(lines[0], "retry: ")) {
		return nil
	}
	id, hasID := strings.CutPrefix(lines[0], "id: ")
	if hasID {
		lines = lines[1:]
	}
	if none := o.responses["200"] + pointer("content", "text/event-stream", "x-events", ""); hasID && id != "" && len(lines) == 0 && c.get(none) != nil {
		return nil // it moves the cursor
	}
	if len(lines) != 2 {
		return fmt.Errorf("%d lines behind the id", len(lines))
	}
	name, ok1 := strings.CutPrefix(lines[0], "event: ")
	data, ok2 := strings.CutPrefix(lines[1], "data: ")
	if !ok1 || !ok2 {
		return fmt.Errorf("its fields are others")
	}
	ptr := o.responses["200"] + pointer("content", "text/event-stream", "x-events", name)
	ev, ok := c.get(ptr).(map[string]any)
	if !ok {
		return fmt.Errorf("the event %q is not documented", name)
	}
	if ev["id"] == "always" && !hasID || ev["id"] == "never" && hasID || hasID && id == "" {
		return fmt.Errorf("the event %q has the id %q, which it has %v", name, id, ev["id"])
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
	if err != nil {
		return err
	}
	if err := c.checkFact(v); err != nil {
		return err
	}
	return c.valid(ptr+"/data", v)
}
