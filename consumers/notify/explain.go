package notify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// explain makes one error for each thing to change.
func (d *document) explain(bad []violation) (errs []error) {
	seen := map[string]bool{}
	for _, v := range bad {
		if fe := d.say(v); !seen[fe.Error()] {
			seen[fe.Error()] = true
			errs = append(errs, fe)
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *FileError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(x.Line-y.Line, x.Column-y.Column)
	})
	return errs
}

// where names a place for people: rules[2].match.kind.
func where(at string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	if b.Len() == 0 {
		return "the file"
	}
	return b.String()
}

func (d *document) say(v violation) *FileError {
	p, name := d.places[v.At], where(v.At)
	want, _ := v.Want.([]string)
	one := func(format string, args ...any) *FileError {
		return &FileError{Place: p, What: fmt.Sprintf(format, args...)}
	}
	switch v.Key {
	case "additionalProperties", "propertyNames":
		key := fmt.Sprint(v.Got)
		p = d.places[v.At+"/"+pointer(key)+"#"]
		if v.Key == "propertyNames" {
			return one("%q cannot be a name in %s: use a-z, 0-9, - and _ (of users: ids like U012)", key, name)
		}
		return one("%q is no key of %s: remove it, or see cbcast notify --schema for those there are", key, name)
	case "required":
		return one("%s lacks %s: add it", name, strings.Join(want, ", "))
	case "type":
		var all []string
		for _, t := range want {
			all = append(all, article(t))
		}
		return one("%s is %s here: write %s%s", name, article(fmt.Sprint(v.Got)), strings.Join(all, " or "), quoteHint(v.Got, want))
	case "enum":
		return one("%s is %v: write one of %s", name, v.Got, words(v.Want))
	case "const":
		return one("%s is %v: write %v", name, v.Got, v.Want)
	case "pattern":
		return one("%s is %q: %s", name, v.Got, patternHint(fmt.Sprint(v.Want)))
	case "minItems", "minProperties", "minLength":
		return one("%s is empty: fill it in, or remove it", name)
	case "maxItems", "maxProperties", "maxLength":
		return one("%s has too much in it: make it shorter", name)
	case "minimum":
		return one("%s is too small: it must be at least %v", name, v.Want)
	case "maximum":
		return one("%s is too large: it may be at most %v", name, v.Want)
	case "uniqueItems":
		return one("%s says the same twice: remove one", name)
	}
	return one("%s cannot be used: see cbcast notify --schema", name)
}

func article(jsonType string) string {
	switch jsonType {
	case "null":
		return jsonType
	case "integer", "array", "object":
		return "an " + jsonType
	}
	return "a " + jsonType
}

func quoteHint(got any, want []string) string {
	if got == "number" && slices.Contains(want, "string") {
		return " (a duration has a unit, like 30s; other texts stand in quotes)"
	}
	return ""
}

func patternHint(pattern string) string {
	switch {
	case strings.Contains(pattern, "ms|s|m|h"):
		return "write a duration like 30s, 15m, 2h or 1d"
	case strings.HasPrefix(pattern, "^https"):
		return "write a URL that begins with http:// or https://"
	case strings.Contains(pattern, "[0-5][0-9]"):
		return `write a time of day like "07:30"`
	}
	return "use a-z, 0-9, - and _, at most 63 of them"
}

func words(list any) string {
	all, _ := list.([]any)
	var texts []string
	for _, v := range all {
		texts = append(texts, fmt.Sprint(v))
	}
	return strings.Join(texts, ", ")
}
