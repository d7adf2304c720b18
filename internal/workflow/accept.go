package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// check says what is wrong with a value that a form was filled in with. A format is
// not looked at: whoever asks does.
func (s *schema) check(v json.RawMessage) error {
	var x any
	if err := json.Unmarshal(v, &x); err != nil {
		return errors.New("has a value that is out of range")
	}
	return s.accepts(x)
}

func (s *schema) accepts(x any) error {
	if !s.hasType(x) {
		return fmt.Errorf("must be %s", typeNames[s.Type])
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(c json.RawMessage) bool { return equals(c, x) }) ||
		len(s.OneOf) > 0 && !slices.ContainsFunc(s.OneOf, func(o schema) bool { return equals(o.Const, x) }) {
		return fmt.Errorf("has %.100q, which is not offered", fmt.Sprint(x))
	}
	switch x := x.(type) {
	case string:
		return within(utf8.RuneCountInString(x), s.MinLength, s.MaxLength, "characters")
	case float64:
		if n, ok := limit(s.Minimum); ok && x < n {
			return fmt.Errorf("is less than %s", s.Minimum)
		}
		if n, ok := limit(s.Maximum); ok && x > n {
			return fmt.Errorf("is more than %s", s.Maximum)
		}
	case []any:
		return s.list(x)
	}
	return nil
}

func (s *schema) list(list []any) error {
	if err := within(len(list), s.MinItems, nil, "items"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, x := range list {
		if s.Items != nil {
			if err := s.Items.accepts(x); err != nil {
				return fmt.Errorf("is a list with an item that %w", err)
			}
		}
		key := string(encode(x))
		if s.Unique && seen[key] {
			return fmt.Errorf("has %.100s twice", key)
		}
		seen[key] = true
	}
	return nil
}

var typeNames = map[string]string{
	"string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false", "array": "a list",
}

// hasType reports whether x is of the schema's type, if it names one.
func (s *schema) hasType(x any) (ok bool) {
	switch s.Type {
	case "string":
		_, ok = x.(string)
	case "number":
		_, ok = x.(float64)
	case "integer":
		n, number := x.(float64)
		return number && n == math.Trunc(n)
	case "boolean":
		_, ok = x.(bool)
	case "array":
		_, ok = x.([]any)
	default:
		return true
	}
	return ok
}

// equals reports whether x is the scalar c.
func equals(c json.RawMessage, x any) bool {
	var y any
	return json.Unmarshal(c, &y) == nil && x == y
}

// limit is a bound that the child named, if it can be read.
func limit(v json.RawMessage) (float64, bool) {
	n, err := strconv.ParseFloat(string(v), 64)
	return n, err == nil
}

func within(n int, least, most *int64, what string) error {
	switch {
	case least != nil && int64(n) < *least:
		return fmt.Errorf("has less than %d %s", *least, what)
	case most != nil && int64(n) > *most:
		return fmt.Errorf("has more than %d %s", *most, what)
	}
	return nil
}
