package dialect_test

import (
	"math"
	"testing"

	"github.com/cbcast/cbcast/internal/dialect"
)

// A number beyond an int64 is the largest or the least one, not any.
func TestValueInt(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "null": 0, `"7"`: 0, "7": 7, "-5": -5, "7.9": 7, "1e3": 1000, "1e300": math.MaxInt64, "-1e300": math.MinInt64,
		"9223372036854775807": math.MaxInt64, "9223372036854775808": math.MaxInt64, "1e999": 0,
	} {
		if got := dialect.Value(text).Int(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// Pick finds what Get finds, also where keys stand twice or are escaped.
func TestPickIsGet(t *testing.T) {
	keys := []string{"a", "b", "c", "é"}
	for _, text := range []string{
		`{}`, `[]`, `null`, ``, `{"a":1}`, `{"b":{"a":2},"a":1,"c":[1,2]}`, `{"a":1,"a":1}`, `{"a":1,"a":2,"a":1}`,
		`{"\u0061":1,"b":null}`, `{"a":1,"\u0061":2}`, `{"a":1`, `{"é":"x","\u00e9":"x"}`, `{"c":"\"a\":3","b":4}`,
	} {
		v := dialect.Value(text)
		got := make([]dialect.Value, len(keys))
		v.Pick(got, keys...)
		for i, k := range keys {
			if want := v.Get(k); string(got[i]) != string(want) || (got[i] == nil) != (want == nil) {
				t.Errorf("%s: Pick finds %s for %q, Get %s", text, got[i], k, want)
			}
		}
	}
}
