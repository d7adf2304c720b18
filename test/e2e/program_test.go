package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// patience bounds every wait. Nothing waits that long unless it is broken: the
// slowest thing here is cbc, which reports an idle interrupt after 30 s.
const patience = 90 * time.Second

// A model is a running scripted model.
type model struct {
	*mockmodel.Model
	t    *testing.T
	addr string
}

// newModel serves turns on loopback until the test ends.
func newModel(t *testing.T, turns ...mockmodel.Turn) *model {
	t.Helper()
	if os.Getenv(envCLIs) == "" {
		t.Skip("the real agent programs are not here: `make e2e` fetches them and runs this")
	}
	m := &model{Model: mockmodel.New(turns...), t: t}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	srv := &http.Server{Handler: m.Model, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		if t.Failed() {
			t.Logf("the model was asked:\n%s", m.Log())
		}
	})
	return m
}

// await waits until the named turn or gate was reached n times.
func (m *model) await(name string, n int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	if err := m.Await(ctx, name, n); err != nil {
		m.t.Fatal(err)
	}
}

// atGate is a shell command that waits at a gate of the model.
func (m *model) atGate(gate string) string {
	host, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s; printf 'GET /gate/%s HTTP/1.0\r\n\r\n' >&3; cat <&3`, host, port, gate)
}

// A program is an agent as its host would start it.
type program struct {
	dialect dialect.Name
	path    string
	args    []string
	env     []string // the whole environment
	dir     string   // its working directory
	asks    bool     // it asks before it uses a tool
}

// cli is the path of a fetched program.
func cli(name string) string { return filepath.Join(os.Getenv(envCLIs), name) }

// scratch is a directory that goes away after the test. Agents may still write
// to it while it does, so that is not an error, unlike t.TempDir.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cbcast-e2e-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// home returns a scratch home and a working directory in it.
func home(t *testing.T) (home, dir string) {
	t.Helper()
	home = scratch(t)
	dir = filepath.Join(home, "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return home, dir
}
