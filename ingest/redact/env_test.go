package redact_test

import (
	"path"
	"testing"

	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/event"
)

// TestEnvNames: a variable is secret exactly when path.Match says so.
func TestEnvNames(t *testing.T) {
	const value = "correct-horse-battery"
	for _, pattern := range []string{"A_KEY", "*_KEY", "*", "", "A*", "*_K?Y", "*[KX]EY", `\*_KEY`, "**_KEY"} {
		for _, name := range []string{"A_KEY", "_KEY", "B_KEYS", "a/b_KEY", "*_KEY", "A", ""} {
			r, err := redact.New(redact.Config{Key: []byte("k"), Env: []string{name + "=" + value}, EnvNames: []string{pattern}})
			if err != nil {
				t.Fatal(err)
			}
			want, err := path.Match(pattern, name)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Frame(event.Out, []byte(value), false).Changed(); got != want {
				t.Errorf("%q, variable %q: masked %v, want %v", pattern, name, got, want)
			}
		}
	}
}
