package notify

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// explain makes one error for each thing to change.
func (d *document) explain(bad []violation) (errs []error) {
	seen := map[string]bool{}
	for _, v := range bad {
		if slices.Contains(d.bad, v.At) { // what stands there could not be read
			continue
		}
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
		key = fmt.Sprint(shown(key))
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
		return one("%s is %v: write one of %s", name, shown(v.Got), words(v.Want))
	case "const":
		return one("%s is %v: write %v", name, shown(v.Got), v.Want)
	case "pattern":
		return one("%s is %q: %s", name, shown(v.Got), patternHint(fmt.Sprint(v.Want)))
	case "longest":
		most, _ := v.Want.(time.Duration)
		return one("%s is %q: that is too long, at most %s can be", name, shown(v.Got), inDays(most))
	case "shortest":
		return one("%s is %q: it must be more than 0; remove it to have the default", name, shown(v.Got))
	case "minItems", "minProperties", "minLength":
		return one("%s is empty: fill it in, or remove it", name)
	case "maxItems", "maxProperties", "maxLength":
		return one("%s has too much in it: make it shorter", name)
	case "minimum":
		return one("%s is %v: that is too small, it must be at least %v", name, plainNumber(v.Got), plainNumber(v.Want))
	case "maximum":
		return one("%s is %v: that is too large, it may be at most %v", name, plainNumber(v.Got), plainNumber(v.Want))
	case "uniqueItems":
		return one("%s says the same twice: remove one", name)
	}
	return one("%s cannot be used: see cbcast notify --schema", name)
}

// maxShown bounds what an error repeats of a file, in bytes.
const maxShown = 60

// shown is a value for an error. What may be a secret in a wrong place is not repeated.
func shown(v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	for _, sign := range []string{"xox", "xapp-", "whsec_", "whsk_", "://"} {
		if strings.Contains(strings.ToLower(s), sign) {
			return fmt.Sprintf("a text of %d characters", utf8.RuneCountInString(s))
		}
	}
	if len(s) > maxShown {
		return fmt.Sprintf("a text of %d characters", utf8.RuneCountInString(s))
	}
	return s
}

// plainNumber is a number as people write it.
func plainNumber(v any) any {
	if n, ok := v.(float64); ok && math.Abs(n) < 1e15 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return v
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
	case isDuration(pattern):
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
