package notify

import (
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Schema is the JSON Schema of a rules file.
//
//go:embed schema.json
var Schema []byte

var compiled = sync.OnceValues(func() (*shape, error) { return newShape(Schema) })

// A shape is a JSON Schema (2020-12), of the keywords that [Schema] uses. One that is
// not here is an error where the schema is read, so that none is passed over.
type shape struct {
	Dialect     string            `json:"$schema"`
	ID          string            `json:"$id"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Defs        map[string]*shape `json:"$defs"` // of the root only
	Ref         string            `json:"$ref"`  // #/$defs/NAME

	Type  typeNames `json:"type"`
	Const *scalarOf `json:"const"`
	Enum  []any     `json:"enum"`

	AllOf []*shape `json:"allOf"`
	If    *shape   `json:"if"`
	Then  *shape   `json:"then"`

	Properties           map[string]*shape `json:"properties"`
	AdditionalProperties *shape            `json:"additionalProperties"`
	PropertyNames        *shape            `json:"propertyNames"`
	Required             []string          `json:"required"`
	MinProperties        *int              `json:"minProperties"`
	MaxProperties        *int              `json:"maxProperties"`

	Items       *shape `json:"items"`
	MinItems    *int   `json:"minItems"`
	MaxItems    *int   `json:"maxItems"`
	UniqueItems bool   `json:"uniqueItems"`

	Pattern   *regexp.Regexp `json:"pattern"`
	MinLength *int           `json:"minLength"` // in code points
	MaxLength *int           `json:"maxLength"`

	Minimum *float64 `json:"minimum"`
	Maximum *float64 `json:"maximum"`

	nothing bool // the schema false
	ref     *shape
}

type typeNames []string

func (t *typeNames) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = typeNames{one}
	} else if err := json.Unmarshal(data, (*[]string)(t)); err != nil {
		return err
	}
	for _, name := range *t {
		if !slices.Contains([]string{"null", "boolean", "number", "integer", "string", "array", "object"}, name) {
			return fmt.Errorf("there is no type %q", name)
		}
	}
	return nil
}

// scalarOf is a text or a number.
type scalarOf struct{ v any }

func (c *scalarOf) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &c.v); err != nil {
		return err
	}
	return onlyScalars(c.v)
}

func onlyScalars(list ...any) error {
	for _, v := range list {
		switch v.(type) {
		case string, float64:
		default:
			return fmt.Errorf("a const or enum of %v is not known", v)
		}
	}
	return nil
}

// UnmarshalJSON refuses what is not known.
func (s *shape) UnmarshalJSON(data []byte) error {
	if text := string(data); text == "true" || text == "false" {
		*s = shape{nothing: text == "false"}
		return nil
	}
	type plain shape
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(s)); err != nil {
		return err
	}
	return onlyScalars(s.Enum...)
}

// newShape reads a schema. Refs that come back to themselves are refused: a document is
// never looked into deeper than the schema is.
func newShape(schema []byte) (*shape, error) {
	root := &shape{}
	if err := json.Unmarshal(schema, root); err != nil {
		return nil, err
	}
	return root, root.link(root, map[*shape]bool{root: true})
}

func (s *shape) link(root *shape, open map[*shape]bool) error {
	if s.Ref != "" {
		name, ok := strings.CutPrefix(s.Ref, "#/$defs/")
		s.ref = root.Defs[name]
		if !ok || s.ref == nil {
			return fmt.Errorf("$ref %s leads nowhere", s.Ref)
		}
	}
	if s != root && s.Defs != nil {
		return fmt.Errorf("$defs are of the root only")
	}
	parts := slices.Concat(s.AllOf, []*shape{s.ref, s.If, s.Then, s.AdditionalProperties, s.PropertyNames, s.Items},
		slices.Collect(maps.Values(s.Properties)), slices.Collect(maps.Values(s.Defs)))
	for _, part := range parts {
		if part == nil {
			continue
		}
		if open[part] {
			return fmt.Errorf("$ref %s goes in a circle", s.Ref)
		}
		open[part] = true
		if err := part.link(root, open); err != nil {
			return err
		}
		delete(open, part)
	}
	return nil
}

// A violation is a keyword of the schema that does not hold.
type violation struct {
	At   string // JSON pointer
	Key  string // the keyword
	Got  any    // what stands there; the property's name for additionalProperties and propertyNames; the type for type
	Want any    // what the keyword says; the missing ones for required
}

// check holds v, the JSON value at a place, against the schema.
func (s *shape) check(v any, at string) (bad []violation) {
	fail := func(key string, got, want any) { bad = append(bad, violation{at, key, got, want}) }
	is := typeName(v)
	number, _ := v.(float64)
	switch {
	case s.nothing:
		fail("false", v, nil)
		return bad
	case s.Type != nil && !slices.Contains(s.Type, is) && (is != "number" || number != math.Trunc(number) || !slices.Contains(s.Type, "integer")):
		fail("type", is, []string(s.Type))
		return bad
	case s.Const != nil && v != s.Const.v:
		fail("const", v, s.Const.v)
		return bad
	case s.Enum != nil && !slices.Contains(s.Enum, v):
		fail("enum", v, s.Enum)
		return bad
	}
	if s.ref != nil {
		bad = append(bad, s.ref.check(v, at)...)
	}
	switch v := v.(type) {
	case map[string]any:
		bad = append(bad, s.checkObject(v, at)...)
	case []any:
		size(fail, "Items", len(v), s.MinItems, s.MaxItems)
		if s.UniqueItems && twice(v) {
			fail("uniqueItems", nil, nil)
		}
		for i := 0; s.Items != nil && i < len(v); i++ {
			bad = append(bad, s.Items.check(v[i], at+"/"+strconv.Itoa(i))...)
		}
	case string:
		size(fail, "Length", utf8.RuneCountInString(v), s.MinLength, s.MaxLength)
		if s.Pattern != nil && !s.Pattern.MatchString(v) {
			fail("pattern", v, s.Pattern.String())
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum {
			fail("minimum", v, *s.Minimum)
		}
		if s.Maximum != nil && v > *s.Maximum {
			fail("maximum", v, *s.Maximum)
		}
	}
	for _, part := range s.AllOf {
		bad = append(bad, part.check(v, at)...)
	}
	if s.If != nil && s.Then != nil && len(s.If.check(v, at)) == 0 {
		bad = append(bad, s.Then.check(v, at)...)
	}
	return bad
}

func (s *shape) checkObject(v map[string]any, at string) (bad []violation) {
	fail := func(key string, got, want any) { bad = append(bad, violation{at, key, got, want}) }
	size(fail, "Properties", len(v), s.MinProperties, s.MaxProperties)
	var missing []string
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		fail("required", nil, missing)
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		part := s.Properties[name]
		switch rest := s.AdditionalProperties; {
		case part == nil && rest != nil && rest.nothing:
			fail("additionalProperties", name, nil)
		case part == nil:
			part = rest
		}
		if part != nil {
			bad = append(bad, part.check(v[name], at+"/"+pointer(name))...)
		}
		if s.PropertyNames != nil && len(s.PropertyNames.check(name, at)) > 0 {
			fail("propertyNames", name, nil)
		}
	}
	return bad
}

func size(fail func(string, any, any), of string, n int, least, most *int) {
	if least != nil && n < *least {
		fail("min"+of, n, *least)
	}
	if most != nil && n > *most {
		fail("max"+of, n, *most)
	}
}

// typeName is the JSON type of what readYAML makes.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// twice says if a list has a value for the second time.
func twice(list []any) bool {
	type text string // of what cannot be compared
	seen := make(map[any]bool, len(list))
	for _, v := range list {
		switch v.(type) {
		case []any, map[string]any:
			raw, _ := json.Marshal(v) // readYAML makes nothing that cannot be written
			v = text(raw)
		}
		if seen[v] {
			return true
		}
		seen[v] = true
	}
	return false
}
