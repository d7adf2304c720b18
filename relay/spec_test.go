package relay_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/relay"
)

var rest = regexp.MustCompile(`\{(\w+)(\.\.\.|\$)?\}`)

// template is a route's path as OpenAPI writes it.
func template(path string) string {
	path = strings.TrimSuffix(path, "{$}")
	return rest.ReplaceAllString(path, "{$1}")
}

// TestSpecRoutes compares the routes of the relay with the operations of the
// document: none is missing on either side, and each needs the same scope.
func TestSpecRoutes(t *testing.T) {
	have, want := map[string]string{}, map[string]string{}
	for _, o := range theContract().ops {
		have[o.method+" "+o.path] = o.scope
	}
	for _, r := range relay.New(relay.Options{}).Routes() {
		want[r.Method+" "+template(r.Path)] = r.Scope
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("the routes' scopes (-relay +spec/openapi.json):\n%s", d)
	}
}

// TestSpecCodes says that every code of the closed set is documented, with the
// status that it has, and that what each operation refuses follows from what it
// needs.
func TestSpecCodes(t *testing.T) {
	c := theContract()
	documented := map[string]bool{"method_not_allowed": true} // of paths, not of operations
	for _, o := range c.ops {
		byStatus := map[string][]string{}
		for status, ptr := range o.responses {
			for _, code := range c.codes(ptr) {
				if got := fmt.Sprint(relay.StatusOf(code)); got != status {
					t.Errorf("%s: %s is a %s, and documented with %s", o.id, code, got, status)
				}
				documented[code] = true
				byStatus[status] = append(byStatus[status], code)
			}
			if status >= "400" && len(byStatus[status]) == 0 {
				t.Errorf("%s: %s has no codes", o.id, status)
			}
		}
		all := slices.Concat(byStatus["401"], byStatus["403"], byStatus["429"])
		want := []string{"bad_host", "bad_origin"}
		if o.scope != "" {
			want = append(want, "forbidden", "too_many_requests", "unauthorized")
		}
		for _, code := range want {
			if !slices.Contains(all, code) {
				t.Errorf("%s: %s is not documented", o.id, code)
			}
		}
	}
	for _, code := range relay.Codes() {
		if !documented[code] {
			t.Errorf("no operation has the code %s", code)
		}
	}
}

// codes are those of an error response.
func (c *contract) codes(response string) []string {
	parts, _ := c.get(response + pointer("content", "application/json", "schema", "allOf")).([]any)
	var list []string
	for _, p := range parts {
		words, _ := at(p, "properties", "code", "enum").([]any)
		for _, w := range words {
			list = append(list, w.(string))
		}
	}
	return list
}

// own is what a valid document looks like, as far as this one goes: written for
// this test after the OpenAPI Specification 3.1, sections 4.8.
const own = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["openapi", "info", "paths", "components"],
  "properties": {
    "openapi": {"pattern": "^3\\.1\\.\\d+$"},
    "info": {
      "type": "object", "required": ["title", "version"],
      "properties": {
        "title": {"type": "string"}, "version": {"type": "string"}, "summary": {"type": "string"}, "description": {"type": "string"},
        "license": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "identifier": {"type": "string"}}, "additionalProperties": false}
      },
      "additionalProperties": false
    },
    "jsonSchemaDialect": {"const": "https://json-schema.org/draft/2020-12/schema"},
    "servers": {"type": "array", "items": {"type": "object", "required": ["url"]}},
    "security": {"$ref": "#/$defs/security"},
    "tags": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    "paths": {
      "type": "object",
      "propertyNames": {"pattern": "^/"},
      "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"enum": ["get", "post", "put", "delete"]},
        "additionalProperties": {"$ref": "#/$defs/operation"}
      }
    },
    "components": {
      "type": "object",
      "properties": {
        "securitySchemes": {"type": "object", "additionalProperties": {
          "type": "object", "required": ["type"],
          "properties": {"type": {"enum": ["http", "apiKey"]}, "scheme": {"type": "string"}, "description": {"type": "string"}, "in": {"enum": ["cookie"]}, "name": {"type": "string"}},
          "additionalProperties": false
        }},
        "parameters": {"type": "object", "additionalProperties": {"$ref": "#/$defs/parameter"}},
        "responses": {"type": "object", "additionalProperties": {"$ref": "#/$defs/response"}},
        "schemas": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z0-9._-]+$"}, "additionalProperties": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}
      },
      "additionalProperties": false
    }
  },
  "additionalProperties": false,
  "$defs": {
    "security": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"enum": ["read", "command", "answer", "metrics", "admin"]}}}},
    "ref": {"type": "object", "required": ["$ref"], "properties": {"$ref": {"pattern": "^#/components/"}}, "additionalProperties": false},
    "operation": {
      "type": "object",
      "required": ["operationId", "summary", "security", "responses"],
      "properties": {
        "operationId": {"pattern": "^[a-z][A-Za-z]*$"}, "summary": {"type": "string"}, "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "security": {"$ref": "#/$defs/security"},
        "parameters": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/ref"}, {"$ref": "#/$defs/parameter"}]}},
        "requestBody": {"type": "object", "required": ["content"], "properties": {"required": {"type": "boolean"}, "content": {"$ref": "#/$defs/content"}, "description": {"type": "string"}}, "additionalProperties": false},
        "responses": {
          "type": "object", "minProperties": 1, "propertyNames": {"pattern": "^[2345]\\d\\d$"},
          "additionalProperties": {"anyOf": [{"$ref": "#/$defs/ref"}, {"$ref": "#/$defs/response"}]}
        }
      },
      "additionalProperties": false
    },
    "parameter": {
      "type": "object",
      "required": ["name", "in", "schema"],
      "properties": {
        "name": {"type": "string"}, "in": {"enum": ["path", "query", "header", "cookie"]}, "required": {"type": "boolean"}, "description": {"type": "string"},
        "schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"}
      },
      "if": {"properties": {"in": {"const": "path"}}}, "then": {"required": ["required"], "properties": {"required": {"const": true}}},
      "additionalProperties": false
    },
    "response": {
      "type": "object",
      "required": ["description"],
      "properties": {"description": {"type": "string"}, "headers": {"type": "object"}, "content": {"$ref": "#/$defs/content"}},
      "additionalProperties": false
    },
    "content": {
      "type": "object",
      "propertyNames": {"pattern": "^[a-z]+/[a-z.+-]+$"},
      "additionalProperties": {
        "type": "object", "required": ["schema"],
        "properties": {
          "schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
          "x-events": {"type": "object", "properties": {"": {"type": "object", "required": ["id", "description"]}}, "additionalProperties": {
            "type": "object", "required": ["id", "data"], "additionalProperties": false,
            "properties": {"id": {"enum": ["always", "sometimes", "never"]}, "data": {"type": "object", "required": ["$ref"]}, "description": {"type": "string"}}
          }}
        },
        "additionalProperties": false
      }
    }
  }
}`

// TestSpecDocument says that the document itself is a valid OpenAPI one.
func TestSpecDocument(t *testing.T) {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(own))
	if err != nil {
		t.Fatal(err)
	}
	k := jsonschema.NewCompiler()
	if err := k.AddResource("https://cbcast.test/own.json", v); err != nil {
		t.Fatal(err)
	}
	s, err := k.Compile("https://cbcast.test/own.json")
	if err != nil {
		t.Fatal(err)
	}
	c := theContract()
	if err := s.Validate(c.doc); err != nil {
		t.Error(err)
	}
	ids, used := map[string]bool{}, map[string]bool{}
	for _, o := range c.ops {
		if ids[o.id] {
			t.Errorf("two operations are called %s", o.id)
		}
		ids[o.id] = true
		var inPath []string
		for _, p := range o.params {
			if p.in == "path" {
				inPath = append(inPath, "{"+p.name+"}")
			}
		}
		want := rest.FindAllString(o.path, -1)
		if d := cmp.Diff(want, inPath); d != "" {
			t.Errorf("%s: parameters of the path (-path +parameters):\n%s", o.id, d)
		}
	}
	refs(c.doc, func(ref string) {
		used[ref] = true
		used[strings.Join(strings.SplitN(ref, "/", 5)[:4], "/")] = true // of a part of it
		if c.get(strings.TrimPrefix(ref, "#")) == nil {
			t.Errorf("nothing is at %s", ref)
		}
	})
	for _, kind := range []string{"parameters", "responses", "schemas"} {
		for name := range at(c.doc, "components", kind).(map[string]any) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("components/%s/%s is not used", kind, name)
			}
		}
	}
}

// refs calls fn for each reference in a document.
func refs(v any, fn func(string)) {
	switch x := v.(type) {
	case map[string]any:
		for k, w := range x {
			if ref, ok := w.(string); ok && k == "$ref" {
				fn(ref)
			}
			refs(w, fn)
		}
	case []any:
		for _, w := range x {
			refs(w, fn)
		}
	}
}

// TestSpecServed says that the relay serves what is in the repository, with an
// ETag, and schemas that are complete in themselves.
func TestSpecServed(t *testing.T) {
	s := newRig(t, small()).relay(relay.Config{})
	for name, want := range map[string]any{"openapi.json": theContract().doc, "asyncapi.json": readSpec("asyncapi.json")} {
		got := s.get("/v1/"+name, nil)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(got.body)))
		if d := cmp.Diff(want, doc); err != nil || d != "" {
			t.Errorf("%s: %v\n%.2000s", name, err, d)
		}
		etag := got.header.Get("ETag")
		for _, h := range []string{etag, "W/" + etag, `"x", ` + etag, "*"} {
			if again := s.get("/v1/"+name, map[string]string{"If-None-Match": h}); again.status != http.StatusNotModified {
				t.Errorf("%s: If-None-Match %s gives %d", name, h, again.status)
			}
		}
		if again := s.get("/v1/"+name, map[string]string{"If-None-Match": `"x"`}); again.status != http.StatusOK {
			t.Errorf("%s: another ETag gives %d", name, again.status)
		}
	}
	var list relay.SchemaList
	s.get("/v1/schemas", nil).into(t, &list)
	if len(list.Schemas) < 40 {
		t.Errorf("there are %d schemas", len(list.Schemas))
	}
	for _, path := range list.Schemas {
		got := s.get(path, nil)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(got.body)))
		if err != nil {
			t.Fatal(err)
		}
		k := jsonschema.NewCompiler()
		if err := k.AddResource("https://cbcast.test"+path, v); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Compile("https://cbcast.test" + path); err != nil {
			t.Errorf("%s is no schema: %v", path, err)
		}
	}
	if got := s.get("/v1/schemas/None.json", nil); got.status != http.StatusNotFound {
		t.Errorf("a schema that is not there: %d", got.status)
	}
}

// TestContractRefuses says that the checks of this package's tests can fail: what
// is documented passes, and each small change of it does not.
func TestContractRefuses(t *testing.T) {
	c := theContract()
	ok := http.Header{"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}
	run := `{"run":"r","tenant":"t","partition":0,"alive":true}`
	fault := `{"code":"not_found","message":"m","retryable":false,"nodeId":null,"details":{}}`
	for _, x := range []struct {
		name, method, path, body string
		status                   int
		content                  string
		good                     bool
	}{
		{"a list", "GET", "/v1/runs?state=done", "", 200, `{"runs":[` + run + `]}`, true},
		{"a field more", "GET", "/v1/runs", "", 200, `{"runs":[` + strings.Replace(run, `"run"`, `"new":1,"run"`, 1) + `]}`, false},
		{"a field less", "GET", "/v1/runs", "", 200, `{"runs":[{"run":"r","tenant":"t","partition":0}]}`, false},
		{"another state", "GET", "/v1/runs", "", 200, `{"runs":[` + strings.Replace(run, `"run"`, `"state":"x","run"`, 1) + `]}`, false},
		{"a parameter that is not documented", "GET", "/v1/runs?x=1", "", 200, `{"runs":[]}`, false},
		{"null for a list", "GET", "/v1/runs", "", 200, `{"runs":null}`, false},
		{"an error", "GET", "/v1/runs/r", "", 404, fault, true},
		{"an error's field more", "GET", "/v1/runs/r", "", 404, strings.Replace(fault, `"code"`, `"why":"","code"`, 1), false},
		{"a code of another status", "GET", "/v1/runs/r", "", 404, strings.Replace(fault, "not_found", "bad_request", 1), false},
		{"a status that is not documented", "GET", "/v1/runs/r", "", 418, fault, false},
		{"a path that is not documented", "GET", "/v1/nothing", "", 200, `{}`, false},
		{"a path that is not there", "GET", "/v1/nothing", "", 404, fault, true},
		{"a body that is not documented", "POST", "/v1/runs/r/interrupt", `{"why":"x"}`, 202, accepted, false},
		{"a body", "POST", "/v1/runs/r/interrupt", `{"reason":"x"}`, 202, accepted, true},
		{"no body where one is needed", "POST", "/v1/runs/r/commands", "", 202, accepted, false},
		{"arguments of another command", "POST", "/v1/runs/r/commands", `{"name":"set_model","args":{"mode":"x"}}`, 202, accepted, false},
		{"arguments", "POST", "/v1/runs/r/commands", `{"name":"set_model","args":{"model":"x"}}`, 202, accepted, true},
	} {
		u, err := url.Parse(x.path)
		if err != nil {
			t.Fatal(err)
		}
		err = c.check(exchange{x.method, u, nil, []byte(x.body), x.status, ok, []byte(x.content), false})
		if (err == nil) != x.good {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	stream, many := c.find("GET", &url.URL{Path: "/v1/runs/r/stream"}), c.find("GET", &url.URL{Path: "/v1/stream"})
	event := `{"specversion":"1.0","id":"r/1","source":"/cbcast/t/r","type":"dev.cbcast.edge.started","time":"2026-01-02T03:04:05Z",` +
		`"datacontenttype":"application/json","data":{"argv":[],"dialect":"claude"}}`
	for _, x := range []struct {
		name  string
		op    *operation
		block string
		good  bool
	}{
		{"an event", stream, "id: 1\nevent: life\ndata: " + event, true},
		{"a comment", stream, ":", true},
		{"a fact's field more", stream, "id: 1\nevent: life\ndata: " + strings.Replace(event, `"argv"`, `"new":1,"argv"`, 1), false},
		{"no id", stream, "event: life\ndata: " + event, false},
		{"an event of another name", stream, "id: 1\nevent: other\ndata: " + event, false},
		{"two lines of data", stream, "id: 1\nevent: life\ndata: " + event + "\ndata: x", false},
		{"a gap with an id", stream, "id: 1\nevent: gap\ndata: " + `{"asked":1,"first":2,"last":3,"reason":"not_kept"}`, false},
		{"a gap", stream, "event: gap\ndata: " + `{"asked":1,"first":2,"last":3,"reason":"not_kept"}`, true},
		{"an id alone", stream, "id: 1", false},
		{"an id alone, of many runs", many, "id: x", true},
		{"an empty id alone", many, "id: ", false},
	} {
		if err := c.checkSSE(x.op, []byte(x.block)); (err == nil) != x.good {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}

const accepted = `{"command":"c","run":"r","name":"interrupt","state":"accepted","duplicate":false,"facts":"/v1/commands/c"}`
