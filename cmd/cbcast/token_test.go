package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A token for runs that cannot be is refused: it would see nothing, and nobody would
// know why.
func TestTokenRuns(t *testing.T) {
	const id = "0198f3c2-7a10-7c3e-9f00-3a2c3d1d9a10"
	for runs, ok := range map[string]bool{
		id: true, id + "*": true, "0198f3c2-*": true, "0198f3c2*": true, "0*": true, "0198f3c2-7a10-7*": true, id + ",0198*": true,
		"nightly-*": false, "0198f3c2": false, "*": false, "": false, strings.ToUpper(id): false, id + "0": false, "0198f3c27*": false,
		"0198-*": false, "01*98*": false, "last": false, "0198f3c2-*,nightly-1": false, " 0198*": false, "é*": false,
	} {
		var out bytes.Buffer
		file := filepath.Join(t.TempDir(), "tokens.json")
		a := &app{io: stdio{out: &out, err: &out}}
		err := a.token("ci", tokenOptions{scopes: []string{"read"}, runs: strings.Split(runs, ","), add: file}, time.Now())
		if (err == nil) != ok {
			t.Errorf("%q: %v, want taken %v", runs, err, ok)
		}
		if ok {
			continue
		}
		var usage *exitError
		if !errors.As(err, &usage) || usage.code != exitUsage {
			t.Errorf("%q: %v is no usage error", runs, err)
		}
		if _, err := os.Stat(file); err == nil || out.Len() > 0 {
			t.Errorf("%q: a token was made: %s", runs, &out)
		}
	}
}
