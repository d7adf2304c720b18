package consumers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/segment/s3"
	"github.com/cbcast/cbcast/test/testbus"
)

const (
	s3Access = "cbcast-test"
	s3Secret = "hush-4d1f0c7a9e"
	s3Net    = 3 * time.Minute // nothing takes that long
)

// s3Tool is a program that fetch made ready.
func s3Tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("CBCAST_CONSUMER_TOOLS")
	if dir == "" {
		t.Skip("needs real servers: make consumers")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make consumers fetches it", err)
	}
	return path
}

// A gateway is a real S3-compatible server over a directory.
type gateway struct {
	t    *testing.T
	bin  string
	dir  string
	addr string
	cmd  *exec.Cmd
}

func startGateway(t *testing.T, buckets ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, bin: s3Tool(t, "bin/versitygw"), dir: t.TempDir()}
	for _, b := range append(buckets, "../meta") {
		if err := os.MkdirAll(filepath.Join(g.dir, "data", b), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	_ = ln.Close()
	g.start()
	t.Cleanup(g.kill)
	return g
}

func (g *gateway) start() {
	g.t.Helper()
	g.cmd = exec.Command(g.bin, "--quiet", "--port", g.addr, "posix", "--sidecar", filepath.Join(g.dir, "meta"), filepath.Join(g.dir, "data"))
	g.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+s3Access, "ROOT_SECRET_ACCESS_KEY="+s3Secret)
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	late := time.Now().Add(s3Net)
	for {
		c, err := net.Dial("tcp", g.addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(late) {
			g.t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (g *gateway) kill() {
	if g.cmd != nil {
		_ = g.cmd.Process.Signal(syscall.SIGKILL)
		_ = g.cmd.Wait()
		g.cmd = nil
	}
}

func (g *gateway) config() s3.Config {
	return s3.Config{
		Endpoint: "http://" + g.addr, Region: "us-east-1", PathStyle: true, AccessKey: s3Access, SecretKey: s3Secret,
		PartSize: 5 << 20, Timeout: time.Minute, Tries: 3,
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(7, uint64(n)))
	for i := 0; i+8 <= n; i += 8 {
		for j, v := 0, r.Uint64(); j < 8; j, v = j+1, v>>8 {
			b[i+j] = byte(v)
		}
	}
	return b
}

// The real server keeps what the archive rests on: of two objects of one name, in one
// part or in several, one is refused, also when many come at once.
func TestS3Store(t *testing.T) {
	g := startGateway(t, "bucket")
	cfg := g.config()
	cfg.Bucket, cfg.Prefix = "bucket", "a/"
	s, err := s3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Sweep(t.Context(), time.Now()); err != nil {
		t.Errorf("Sweep = %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"empty": 0, "small": 1000, "large": 11 << 20} {
		var wg sync.WaitGroup
		won := make([]error, 6)
		for w := range won {
			data := noise(size + 8*w)
			wg.Go(func() {
				won[w] = s.Create(t.Context(), name, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))))
			})
		}
		wg.Wait()
		winner := -1
		for w, err := range won {
			switch {
			case err == nil && winner < 0:
				winner = w
			case err == nil:
				t.Errorf("%s: both %d and %d were told that theirs stands", name, winner, w)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("%s: writer %d: %v", name, w, err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody won: %v", name, won)
		}
		o, err := s.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
		if err != nil || !bytes.Equal(got, noise(size+8*winner)) {
			t.Errorf("%s: read %d bytes, %v; want those of writer %d", name, len(got), err, winner)
		}
		_ = o.Close()
	}
	var keys []string
	for i, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, i.Key)
	}
	if want := []string{"empty", "large", "small"}; !slices.Equal(keys, want) {
		t.Errorf("List = %q, want %q", keys, want)
	}
	if err := s.Delete(t.Context(), "small"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "small"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of what was deleted = %v", err)
	}
	bad := g.config()
	bad.Bucket, bad.SecretKey = "bucket", s3Secret+"x"
	b, err := s3.New(bad)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Check(t.Context()); !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), s3Secret) {
		t.Errorf("with another secret: %v", err)
	}
}

// lines is a run whose events have data of a size that does not compress.
type lines struct {
	run  string
	n    uint64
	size int
}

func (l lines) Event(n uint64) (*event.Event, bool, error) {
	if n > l.n {
		return nil, false, nil
	}
	return &event.Event{
		Tenant: "acme", Run: l.run, Seq: n, Time: time.Unix(1e9, int64(n)).UTC(), Type: "dev.cbcast.claude.raw", Kind: event.Raw,
		Stream: event.Out, ContentType: event.Binary, Data: noise(l.size),
	}, true, nil
}

func (l lines) Wait(_ context.Context, n uint64) error {
	if n > l.n {
		return bus.ErrDone
	}
	return nil
}
func (l lines) Acked(uint64) {}

// An archive in S3: large segments in parts, the server killed in the middle, nothing
// lost or twice, heads in a second bucket; a tail that is cut shows against those.
func TestArchiveInS3(t *testing.T) {
	g := startGateway(t, "bucket", "heads")
	_, b := testbus.Start(t, testbus.Streams)
	var log bytes.Buffer
	var logMu sync.Mutex
	cfg := archive.Config{
		Dest: "s3://bucket/archive", Keys: "s3://bucket/keys", Heads: "s3://heads", HeadsBehind: 1000, SealBytes: 12 << 20,
		SealAge: 300 * time.Millisecond, OpenSegments: 64, Memory: 32 << 20, Window: 50_000, S3: g.config(),
	}
	dir := t.TempDir()
	s, err := archive.New(archive.Options{
		Config: cfg, Bus: b, Partitions: 1, Dir: dir, Log: slog.New(slog.NewTextHandler(lockedWriter{&logMu, &log}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	defer end()
	place, err := cfg.Open()
	if err != nil {
		t.Fatal(err)
	}
	runs := []lines{{"r1", 4, 200 << 10}, {"r2", 150, 200 << 10}, {"r3", 500, 20 << 10}}
	until := func(what string, ok func() bool) {
		t.Helper()
		for late := time.Now().Add(s3Net); !ok(); <-time.After(50 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("not in time: %s; ready: %v", what, s.Ready())
			}
		}
	}
	has := func(n int) func() bool {
		return func() bool {
			for _, r := range runs[:n] {
				if i, err := place.Reader().Run(t.Context(), "acme", r.run); err != nil || i.LastSeq < r.n {
					return false
				}
			}
			return true
		}
	}
	for i, r := range runs {
		if i == 2 {
			g.kill()
		}
		p := &bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: "acme", Run: r.run}, Source: r}
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			until("not ready while the server is away", func() bool { return s.Ready() != nil })
			g.start()
		}
		until(r.run, has(i+1))
	}
	until("ready", func() bool { return s.Ready() == nil })
	end()
	logMu.Lock()
	if strings.Contains(log.String(), s3Secret) {
		t.Error("the log has the secret")
	}
	logMu.Unlock()

	for _, r := range runs {
		n := uint64(0)
		for rec, err := range place.Reader().Records(t.Context(), segment.Query{Tenant: "acme", Run: r.run}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; rec.Seq != n || !bytes.Equal(rec.Data, noise(r.size)) {
				t.Fatalf("run %s: record %d is event %d", r.run, n, rec.Seq)
			}
		}
		if n != r.n {
			t.Errorf("run %s: %d records, want %d", r.run, n, r.n)
		}
	}
	copies, err := cfg.LoadHeads(t.Context(), cfg.Heads)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(heads []*segment.Head) string {
		t.Helper()
		pem, err := os.ReadFile(archive.PublicFile(cfg.SigningFile(dir)))
		if err != nil {
			t.Fatal(err)
		}
		key, err := segment.ParsePublicKey(pem)
		if err != nil {
			t.Fatal(err)
		}
		o := segment.VerifyOptions{Store: place.Store, Heads: heads}
		o.Trust = append(o.Trust, key)
		rep, err := segment.Verify(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var bad []string
		for _, f := range rep.Findings {
			if f.Bad {
				bad = append(bad, fmt.Sprint(f.Code))
			}
		}
		return strings.Join(bad, " ")
	}
	if bad := verify(copies); bad != "" {
		t.Errorf("verify: %s", bad)
	}
	// Somebody cuts the end off, and everything that would show it.
	last := copies[len(copies)-1]
	for i, err := range place.Store.List(t.Context(), "t/") {
		if err != nil {
			t.Fatal(err)
		}
		if last.Segment != nil && (i.Key == last.Segment.Name || strings.HasSuffix(i.Key, fmt.Sprintf("heads/%012d.json", last.Number))) {
			if err := place.Store.Delete(t.Context(), i.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if bad := verify(nil); bad != "" {
		t.Logf("without copies: %s", bad)
	}
	if bad := verify(copies); bad == "" {
		t.Error("a tail that was cut does not show against the copies")
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
