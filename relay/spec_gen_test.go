package relay_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what the Go types say into the components of relay/spec/*.json")

// A generator makes JSON Schemas of the Go types that are sent: strict, with the
// comments of the code as descriptions. What a type cannot say (closed sets of
// words, forms of texts) is in the tables of spec_words_test.go.
type generator struct {
	t       *testing.T
	docs    map[string]string // "run.View" and "run.View.state"
	schemas map[string]*object
	request bool // fields may be absent, whatever their tag says
}

// An object is a JSON object that keeps its order.
type object struct {
	keys []string
	vals map[string]any
}

func obj(pairs ...any) *object {
	o := &object{vals: map[string]any{}}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func (o *object) set(key string, v any) *object {
	if _, ok := o.vals[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
	return o
}

func (o *object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, k := range o.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, mustEncode(k)...), ':')
		b = append(b, mustEncode(o.vals[k])...)
	}
	return append(b, '}'), nil
}

func mustEncode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

func newGenerator(t *testing.T) *generator {
	g := &generator{t: t, docs: map[string]string{}, schemas: map[string]*object{}}
	for pkg, dir := range map[string]string{
		"relay": ".", "run": "../internal/run", "bus": "../internal/bus", "event": "../internal/event", "workflow": "../internal/workflow",
	} {
		g.comments(pkg, dir)
	}
	return g
}

var link = regexp.MustCompile(`\[([A-Za-z]+(?:\.[A-Za-z]+)?)\]`)

func plain(c *ast.CommentGroup) string {
	return link.ReplaceAllString(strings.Join(strings.Fields(c.Text()), " "), "$1")
}

// comments reads those of a package's structs and of their fields.
func (g *generator) comments(pkg, dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				typ, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if c := cmpDoc(typ.Doc, decl.Doc); c != nil {
					g.docs[pkg+"."+typ.Name.Name] = plain(c)
				}
				st, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, fd := range st.Fields.List {
					c := cmpDoc(fd.Doc, fd.Comment)
					if c == nil {
						continue
					}
					for _, n := range fd.Names {
						g.docs[pkg+"."+typ.Name.Name+"."+n.Name] = plain(c)
					}
				}
			}
		}
	}
}

func cmpDoc(a, b *ast.CommentGroup) *ast.CommentGroup {
	if a != nil {
		return a
	}
	return b
}

// name is that of a type's schema.
func (g *generator) name(t reflect.Type) string {
	if n, ok := schemaNames[t]; ok {
		return n
	}
	return t.Name()
}

// root makes the schema of a document, and of all it has in it.
func (g *generator) root(v any, request bool) {
	g.request = request
	g.ref(reflect.TypeOf(v))
	g.request = false
}

func (g *generator) ref(t reflect.Type) *object {
	name := g.name(t)
	if _, ok := g.schemas[name]; !ok {
		g.schemas[name] = obj() // it may be in itself
		g.schemas[name] = g.object(t)
	}
	return obj("$ref", "#/components/schemas/"+name)
}

func (g *generator) object(t reflect.Type) *object {
	props, required := obj(), []string{}
	g.fields(t, props, &required, false)
	o := obj("type", "object")
	if d := g.docs[doc(t)]; d != "" {
		o.set("description", d)
	}
	if len(required) > 0 {
		o.set("required", required)
	}
	return o.set("properties", props).set("additionalProperties", false)
}

func doc(t reflect.Type) string { return filepath.Base(t.PkgPath()) + "." + t.Name() }

// fields adds those of t, of what it embeds, too. Those of an embedded pointer
// may all be absent.
func (g *generator) fields(t reflect.Type, props *object, required *[]string, absent bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("json")
		if !ok && f.Anonymous {
			if f.Type.Kind() == reflect.Pointer {
				g.fields(f.Type.Elem(), props, required, true)
			} else {
				g.fields(f.Type, props, required, absent)
			}
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		optional := strings.Contains(options, "omit")
		s := g.typ(f.Type, !optional)
		if more := fieldWords[g.name(t)+"."+name]; more != nil {
			s = more(s)
		}
		if d := g.docs[doc(t)+"."+f.Name]; d != "" {
			s.set("description", d)
		}
		props.set(name, s)
		must := !optional && !absent && (!g.request || requestMust[g.name(t)+"."+name])
		if must {
			*required = append(*required, name)
		}
	}
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// typ is the schema of a field's type. A pointer that is always there is null
// where it points nowhere.
func (g *generator) typ(t reflect.Type, always bool) *object {
	switch {
	case t == timeType:
		return obj("type", "string", "format", "date-time")
	case t == rawType:
		return obj()
	}
	if words := typeWords[t]; words != nil {
		return obj("type", "string", "enum", words())
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := g.typ(t.Elem(), false)
		if !always {
			return s
		}
		if typ, ok := s.vals["type"]; ok {
			return s.set("type", []any{typ, "null"})
		}
		return obj("anyOf", []any{s, obj("type", "null")})
	case reflect.String:
		return obj("type", "string")
	case reflect.Bool:
		return obj("type", "boolean")
	case reflect.Int, reflect.Int64, reflect.Int32:
		return obj("type", "integer")
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		return obj("type", "integer", "minimum", 0)
	case reflect.Float64:
		return obj("type", "number")
	case reflect.Slice:
		return obj("type", "array", "items", g.typ(t.Elem(), false))
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return obj("type", "object")
		}
		return obj("type", "object", "additionalProperties", g.typ(t.Elem(), false))
	case reflect.Struct:
		return g.ref(t)
	case reflect.Interface:
		return obj()
	}
	g.t.Fatalf("%v cannot be in a document", t)
	return nil
}

// sorted is what was made, by name.
func (g *generator) sorted() *object {
	o := obj()
	for _, n := range slices.Sorted(maps.Keys(g.schemas)) {
		o.set(n, g.schemas[n])
	}
	return o
}

// merge replaces the generated schemas in components.schemas of a document and
// keeps all others: those that are not of a Go type are written by hand.
func merge(t *testing.T, file []byte, made *object) []byte {
	t.Helper()
	top := ordered(t, file)
	components := ordered(t, top.raw("components"))
	old := ordered(t, components.raw("schemas"))
	for _, name := range old.keys {
		if generated(old.raw(name)) && made.vals[name] == nil {
			continue // its type is gone
		}
		if made.vals[name] == nil {
			made.set(name, old.vals[name])
		}
	}
	slices.Sort(made.keys)
	components.set("schemas", made)
	top.set("components", components)
	var out bytes.Buffer
	if err := json.Indent(&out, mustEncode(top), "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// generated reports whether a schema in a document was made of a Go type.
func generated(schema []byte) bool { return bytes.Contains(schema, []byte(`"x-generated"`)) }

func (o *object) raw(key string) []byte {
	b, _ := o.vals[key].(json.RawMessage)
	return b
}

// ordered reads one level of an object.
func ordered(t *testing.T, data []byte) *object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	o := obj()
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		o.set(k.(string), v)
	}
	return o
}

// TestSpecSchemas compares the documents' schemas with the Go types.
func TestSpecSchemas(t *testing.T) {
	for name, roots := range map[string]func(*generator){"spec/openapi.json": apiRoots, "spec/asyncapi.json": busRoots} {
		g := newGenerator(t)
		roots(g)
		for _, s := range g.schemas {
			s.set("x-generated", true)
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := merge(t, have, g.sorted())
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !bytes.Equal(have, want) {
			t.Errorf("%s does not say what the Go types do: go test ./relay -run TestSpecSchemas -update, then read the change\n%s", name, firstDiff(have, want))
		}
	}
}

func firstDiff(have, want []byte) string {
	a, b := strings.Split(string(have), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: have %s, want %s", i+1, strings.TrimSpace(a[i]), strings.TrimSpace(b[i]))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}
