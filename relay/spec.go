package relay

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The documents: OpenAPI 3.1 of the HTTP API, AsyncAPI 3.0 of subjects and
// events. Their paths, channels and messages are written by hand, the schemas of
// Go types by the tests (go test ./relay -run TestSpecSchemas -update), which
// also hold both against what is really sent.
//
//go:embed spec/openapi.json spec/asyncapi.json
var specFiles embed.FS

// A specDoc is one document as it is served.
type specDoc struct {
	body        []byte
	contentType string
	etag        string
}

// specDocs are the documents by path.
var specDocs = sync.OnceValue(func() map[string]specDoc {
	docs := map[string]specDoc{}
	add := func(path, contentType string, body []byte) {
		sum := sha256.Sum256(body)
		docs[path] = specDoc{body, contentType, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	for _, f := range []struct{ name, prefix string }{{"openapi", ""}, {"asyncapi", "bus."}} {
		body, err := specFiles.ReadFile("spec/" + f.name + ".json")
		if err != nil {
			panic(err) // it is embedded
		}
		add("/v1/"+f.name+".json", "application/json", body)
		for name, schema := range bundles(body, f.prefix) {
			add(schemaPath+name, "application/schema+json", schema)
		}
	}
	return docs
})

const schemaPath = "/v1/schemas/"

var schemaRef = regexp.MustCompile(`"#/components/schemas/([A-Za-z0-9_.-]+)[/"]`)

// bundles makes each schema of a document one that is complete in itself: what it
// refers to stands in its $defs. The names begin with prefix.
func bundles(doc []byte, prefix string) map[string][]byte {
	var d struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		panic(err) // it is embedded, and a test reads it
	}
	out := map[string][]byte{}
	for name := range d.Components.Schemas {
		defs := map[string]json.RawMessage{}
		for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
			if _, have := defs[todo[0]]; have {
				continue
			}
			schema := d.Components.Schemas[todo[0]]
			defs[todo[0]] = bytes.ReplaceAll(schema, []byte("#/components/schemas/"), []byte("#/$defs/"))
			for _, m := range schemaRef.FindAllSubmatch(schema, -1) {
				todo = append(todo, string(m[1]))
			}
		}
		file := prefix + name + ".json"
		var b bytes.Buffer
		_ = json.Indent(&b, mustJSON(struct {
			Schema string                     `json:"$schema"`
			ID     string                     `json:"$id"`
			Ref    string                     `json:"$ref"`
			Defs   map[string]json.RawMessage `json:"$defs"`
		}{"https://json-schema.org/draft/2020-12/schema", schemaPath + file, "#/$defs/" + name, defs}), "", "  ") // it is valid
		out[file] = append(b.Bytes(), '\n')
	}
	return out
}

// specRoutes describe the others. They hold no data and are open to everybody.
func (r *Relay) specRoutes() []route {
	return []route{
		{"GET", "/v1/openapi.json", "", r.spec, "this API as OpenAPI 3.1"},
		{"GET", "/v1/asyncapi.json", "", r.spec, "subjects and events on the bus as AsyncAPI 3.0"},
		{"GET", "/v1/schemas", "", r.listSchemas, "JSON Schemas of all documents"},
		{"GET", "/v1/schemas/{name}", "", r.spec, "one of them"},
	}
}

// spec serves a document. Clients keep it and ask whether it is still the same.
func (r *Relay) spec(w http.ResponseWriter, q *http.Request) *apiErr {
	d, ok := specDocs()[q.URL.Path]
	if !ok {
		return notFound()
	}
	h := w.Header()
	h.Set("Content-Type", d.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", d.etag)
	for tag := range strings.SplitSeq(strings.Join(q.Header.Values("If-None-Match"), ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == d.etag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	_, _ = w.Write(d.body) // a client that is gone needs no answer
	return nil
}

// A SchemaList is the body of GET /v1/schemas.
type SchemaList struct {
	Schemas []string `json:"schemas"` // their paths
}

func (r *Relay) listSchemas(w http.ResponseWriter, _ *http.Request) *apiErr {
	list := SchemaList{Schemas: []string{}}
	for _, path := range slices.Sorted(maps.Keys(specDocs())) {
		if strings.HasPrefix(path, schemaPath) {
			list.Schemas = append(list.Schemas, path)
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
