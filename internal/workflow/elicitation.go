package workflow

import (
	"encoding/json"

	"github.com/cbcast/cbcast/internal/dialect"
)

// Bounds of a form that an MCP server asks for.
const (
	maxFields  = 64
	maxOptions = 64
	maxRaw     = 1 << 10 // bytes of a default and the like
	maxDepth   = 32      // nesting of any JSON of a child that is taken as it is
)

// elicitationFields reads the form of an MCP server: an object of simple fields. Only
// what is known is taken over: no reference, no pattern.
func elicitationFields(in dialect.Value) (list []field) {
	if s := in.Get("requestedSchema"); s.IsObject() { // Codex wraps it
		if in.Get("mode").Text() == "url" {
			return nil
		}
		in = s
	}
	required := map[string]bool{}
	for name := range in.Get("required").Items {
		required[name.Text()] = true
	}
	seen := map[string]bool{}
	for key, v := range in.Get("properties").Fields {
		name := dialect.Value(append(append([]byte{'"'}, key...), '"')).Text()
		if len(list) == maxFields || !v.IsObject() || seen[name] {
			continue
		}
		seen[name] = true
		s := simple(v)
		if items := v.Get("items"); s.Type == "array" && items.IsObject() {
			i := simple(items)
			s.Items = &i
		}
		list = append(list, field{name: name, schema: s, required: required[name], question: -1})
	}
	return list
}

// simple takes over what describes a single value.
func simple(v dialect.Value) schema {
	s := schema{
		Title: clip(v.Get("title").Text(), MaxTitle), Description: clip(v.Get("description").Text(), MaxSummary),
		Default: scalar(v.Get("default")), Minimum: number(v.Get("minimum")), Maximum: number(v.Get("maximum")),
		MinLength: count(v.Get("minLength")), MaxLength: count(v.Get("maxLength")), MinItems: count(v.Get("minItems")),
		Unique: v.Get("uniqueItems").True(),
	}
	switch t := v.Get("type").Text(); t {
	case "string", "number", "integer", "boolean", "array":
		s.Type = t
	}
	switch f := v.Get("format").Text(); f {
	case "email", "uri", "date", "date-time", "password":
		s.Format = f
	}
	for item := range v.Get("enum").Items {
		if e := scalar(item); e != nil && len(s.Enum) < maxOptions {
			s.Enum = append(s.Enum, e)
		}
	}
	for _, list := range []string{"oneOf", "anyOf"} {
		for item := range v.Get(list).Items {
			if c := scalar(item.Get("const")); c != nil && len(s.OneOf) < maxOptions {
				s.OneOf = append(s.OneOf, schema{Const: c, Title: clip(item.Get("title").Text(), MaxTitle)})
			}
		}
	}
	return s
}

// scalar is a value that is no object or array, nil for any other.
func scalar(v dialect.Value) json.RawMessage {
	switch {
	case len(v) == 0 || len(v) > maxRaw || v.IsObject() || v.IsArray():
		return nil
	case v.IsString():
		return appendString(nil, v.Text()) // UTF-8 in any case
	}
	return json.RawMessage(v)
}

func number(v dialect.Value) json.RawMessage {
	if len(v) == 0 || len(v) > maxRaw || v[0] != '-' && v[0]-'0' > 9 {
		return nil
	}
	return json.RawMessage(v)
}

// count is a whole number that is not negative, nil for any other.
func count(v dialect.Value) *int64 {
	if number(v) == nil || v.Int() < 0 || v.Float() != float64(v.Int()) {
		return nil
	}
	return ptr(v.Int())
}

// shallow reports whether JSON of a child can be taken as it is: it is not nested
// too deep for a reader.
func shallow(v []byte) bool {
	depth, text := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}
