package child_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
)

// A brief command reads its stdin and its own environment only; its code, its stderr
// and its end by ctx are told.
func TestBrief(t *testing.T) {
	sh := func(ctx context.Context, script, in string) (int, string, error) {
		code, stderr, err := child.Brief(ctx, []string{"/bin/sh", "-c", script}, []string{"A=b"}, []byte(in))
		return code, string(stderr), err
	}
	if code, out, err := sh(t.Context(), `read x; echo "$x $A $HOME" >&2; exit 3`, "hello\n"); code != 3 || out != "hello b \n" || err != nil {
		t.Errorf("code %d, stderr %q, error %v", code, out, err)
	}
	if code, _, err := sh(t.Context(), `exit 0`, strings.Repeat("x", 1<<20)); code != 0 || err != nil {
		t.Errorf("stdin not read: code %d, error %v", code, err)
	}
	if _, out, _ := sh(t.Context(), `head -c 100000 /dev/zero >&2`, ""); len(out) != 16<<10 {
		t.Errorf("%d bytes of stderr", len(out))
	}
	if code, _, err := sh(t.Context(), `kill -9 $$`, ""); code != -1 || err == nil {
		t.Errorf("killed: code %d, error %v", code, err)
	}
	if code, _, err := child.Brief(t.Context(), []string{"/no/such/program"}, nil, nil); code != -1 || err == nil {
		t.Errorf("no program: code %d, error %v", code, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if code, _, err := sh(ctx, `sleep 1000 & sleep 1000`, ""); code != -1 || err == nil {
		t.Errorf("too long: code %d, error %v", code, err)
	}
}
