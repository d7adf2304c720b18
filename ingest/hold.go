package ingest

import (
	"context"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
)

// quiet is how long nothing must be open before a held EOF is passed on: a
// wake-up turn follows its task's end within milliseconds.
const quiet = time.Second

// holds reports whether the parent's EOF is kept back. An agent that reads a
// prompt as text begins with its end: there is nothing to hold, and nothing that
// could be written to it.
func (o *Options) holds(d dialect.Name) bool {
	if o.Drive != nil {
		return true
	}
	if !o.HoldStdin {
		return false
	}
	if out := dialect.OutputOf(o.Argv); out == dialect.OutputText || out == dialect.OutputJSON {
		return false
	}
	return readsStream(o.Argv) || d == dialect.Unknown
}

// holdStdin passes a held EOF on once nothing is open, and returns a function
// that ends and awaits the watch.
func (e *edge) holdStdin(ctx context.Context, p *child.Process) (stop func()) {
	if !e.holds || e.o.Drive != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with ctx, or when the EOF is passed on
		defer close(done)
		e.rec.untilIdle(ctx)
		p.ReleaseStdin()
	}()
	return func() { cancel(); <-done }
}

// untilIdle waits until nothing has been open for a while, or ctx ends.
func (r *recorder) untilIdle(ctx context.Context) {
	t := time.NewTimer(quiet)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.active:
			t.Reset(quiet)
		case <-t.C:
			if r.idle() {
				return
			}
		}
	}
}

// readsStream reports whether a child was told to read messages from stdin.
func readsStream(argv []string) bool {
	in, _ := flagValue(argv, "--input-format")
	return in == "stream-json" || appServer(argv)
}

// flagValue finds the value of a flag in a child's arguments, the last one where
// it stands twice.
func flagValue(argv []string, flag string) (value string, ok bool) {
	for i, a := range argv {
		switch {
		case a == "--":
			return value, ok
		case a == flag && i+1 < len(argv):
			value, ok = argv[i+1], true
		case len(a) > len(flag) && a[:len(flag)] == flag && a[len(flag)] == '=':
			value, ok = a[len(flag)+1:], true
		}
	}
	return value, ok
}
