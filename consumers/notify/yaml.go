package notify

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Place is where something stands in a rules file, both from 1 on.
type Place struct{ Line, Column int }

// maxNodes and maxPlaces bound a rules file with its aliases put in: 10 aliases of 10
// aliases …, or an alias within itself, would fill the memory.
const (
	maxNodes  = 100_000
	maxPlaces = 32 << 20 // bytes of all pointers
)

// document is a YAML file as JSON values, and where each stands.
type document struct {
	value  any
	places map[string]Place // by JSON pointer; a key's own place by the pointer and "#"
	nodes  int
	bytes  int // of the pointers

	errs []error  // that leave the rest of it readable
	bad  []string // pointers of what they are about
}

// readYAML reads one document. JSON is YAML, so it is read, too. With errors the document
// is there as far as it can be, nil where it cannot.
func readYAML(data []byte) (*document, []error) {
	one := func(e error) (*document, []error) { return nil, []error{e} }
	var root yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return one(&FileError{Place: Place{1, 1}, What: "the file is empty"})
	} else if err != nil {
		return one(yamlError(err))
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) == 0 {
		return one(&FileError{Place: Place{1, 1}, What: "the file is empty"})
	}
	d := &document{places: map[string]Place{}}
	var err error
	if d.value, err = d.convert(root.Content[0], ""); err != nil {
		return one(err)
	}
	var more yaml.Node
	switch err := dec.Decode(&more); {
	case err == nil:
		d.errs = append(d.errs, &FileError{Place: Place{more.Line, more.Column}, What: "a second document begins here: put everything into one"})
	case !errors.Is(err, io.EOF):
		d.errs = append(d.errs, yamlError(err))
	}
	return d, d.errs
}

// yamlError takes the line out of what the parser says.
func yamlError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return &FileError{Place: Place{max(line, 1), 1}, What: "this is no YAML: " + text}
}

func (d *document) convert(n *yaml.Node, at string) (any, error) {
	fail := func(what string) error { return &FileError{Place: Place{n.Line, n.Column}, What: what} }
	d.nodes++
	d.bytes += len(at)
	if d.nodes > maxNodes || d.bytes > maxPlaces {
		return nil, fail("the file has too many entries, aliases counted as often as they stand")
	}
	d.places[at] = Place{n.Line, n.Column}
	switch n.Kind {
	case yaml.AliasNode:
		return d.convert(n.Alias, at)
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode {
				d.fail(k, at, "a key must be a plain text")
				continue
			}
			if _, twice := m[k.Value]; twice {
				d.fail(k, at, fmt.Sprintf("%q stands here for the second time: remove one", k.Value))
				continue
			}
			p := at + "/" + pointer(k.Value)
			v, err := d.convert(n.Content[i+1], p)
			if err != nil {
				return nil, err
			}
			m[k.Value] = v
			d.places[p+"#"] = Place{k.Line, k.Column}
		}
		return m, nil
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, c := range n.Content {
			v, err := d.convert(c, at+"/"+strconv.Itoa(i))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		v, what := scalar(n)
		if what != "" {
			d.fail(n, at, where(at)+": "+what)
		}
		return v, nil
	default:
		return nil, fail("this cannot be read")
	}
}

// fail notes what is wrong at a place, where the rest of the file can be read.
func (d *document) fail(n *yaml.Node, at, what string) {
	d.errs = append(d.errs, &FileError{Place: Place{n.Line, n.Column}, What: what})
	d.bad = append(d.bad, at)
}

// scalar is a value, or what is wrong with it.
func scalar(n *yaml.Node) (v any, what string) {
	switch n.ShortTag() {
	case "!!null":
		return nil, ""
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return nil, "this is neither true nor false"
		}
		return v, ""
	case "!!int", "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Sprintf("%s is no number that can be used here", shown(n.Value))
		}
		return v + 0, "" // -0 is 0
	case "!!str", "!!timestamp", "!!merge":
		return n.Value, ""
	}
	return nil, "the tag " + n.Tag + " is not known here"
}

func pointer(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// A FileError is one thing that is wrong with a rules file.
type FileError struct {
	Name string // the file's
	Place
	What string // and what to do
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.What)
	if e.Name != "" {
		s = e.Name + ": " + s
	}
	return s
}
