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
