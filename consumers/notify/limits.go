package notify

import (
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds every time of the rules, and some are bounded further.
const maxDuration = 3650 * 24 * time.Hour

// longest is how long the time at a place may be.
func longest(at string) time.Duration {
	switch at[strings.LastIndexByte(at, '/')+1:] {
	case "timeout":
		return time.Hour
	case "every":
		return 24 * time.Hour
	}
	return maxDuration
}

// mayBeNothing reports whether a time of 0 says something at a place. Elsewhere it would
// be taken for one that is not there.
func mayBeNothing(at string) bool {
	return strings.HasSuffix(at, "/duration/min") || strings.HasSuffix(at, "/group/wait")
}

// durations holds the times of a document against their bounds, which a schema cannot
// say. It looks where the schema says that a time is.
func (s *shape) durations(v any, at string) (bad []violation) {
	for _, part := range append([]*shape{s.ref, s.Then}, s.AllOf...) {
		if part != nil && (part != s.Then || s.If == nil || len(s.If.check(v, at)) == 0) {
			bad = append(bad, part.durations(v, at)...)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			part := s.Properties[name]
			if part == nil {
				part = s.AdditionalProperties
			}
			if part != nil {
				bad = append(bad, part.durations(e, at+"/"+pointer(name))...)
			}
		}
	case []any:
		for i := 0; s.Items != nil && i < len(v); i++ {
			bad = append(bad, s.Items.durations(v[i], at+"/"+strconv.Itoa(i))...)
		}
	case string:
		if s.Pattern == nil || !isDuration(s.Pattern.String()) || !s.Pattern.MatchString(v) {
			return bad
		}
		most := longest(at)
		d, err := parseDuration(v)
		switch {
		case err != nil || d > most:
			bad = append(bad, violation{at, "longest", v, most})
		case d == 0 && !mayBeNothing(at):
			bad = append(bad, violation{at, "shortest", v, nil})
		}
	}
	return bad
}

// isDuration reports whether a pattern of the schema is that of times.
func isDuration(pattern string) bool { return strings.Contains(pattern, "ms|s|m|h") }

// inDays is a time as the rules write it.
func inDays(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	return strconv.Itoa(int(d/time.Hour)) + "h"
}
