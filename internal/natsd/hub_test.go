package natsd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/natsd"
)

// eventually is a deadline for what happens in well under two seconds on a
// machine with nothing else to do.
const eventually = 60 * time.Second

// participantArg is the first argument of a process that is a participant; the
// second is its state directory.
const participantArg = "natsd-participant"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == participantArg {
		if err := participant(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// participant is a process that takes part in the store until its stdin ends.
// It prints "joined URL" or "owned URL", and "owned URL" later if it takes over.
func participant(dir string) error {
	h, err := natsd.Open(context.Background(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		return err
	}
	if !h.Owner() {
		fmt.Fprintln(os.Stdout, "joined", h.URL())
	}
	eof := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(eof) }()
	select {
	case <-h.Owned():
		fmt.Fprintln(os.Stdout, "owned", h.URL())
		<-eof
	case <-eof:
	}
	return h.Close(context.Background())
}

type proc struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // closed when the process has ended
}

func run(t *testing.T, dir string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], participantArg, dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, cmd: cmd, stdin: in, lines: make(chan string, 8)} // it prints fewer
	var wg sync.WaitGroup
	wg.Go(func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			p.lines <- sc.Text()
		}
		close(p.lines)
		_ = cmd.Wait()
	})
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); wg.Wait() })
	return p
}

// next is the next line that the participant prints.
func (p *proc) next() (word, rest string) {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatal("participant ended")
		}
		word, rest, _ = strings.Cut(l, " ")
		return word, rest
	case <-time.After(eventually):
		p.t.Fatal("participant says nothing")
	}
	return "", ""
}

func (p *proc) is(word, rest string) {
	p.t.Helper()
	if w, r := p.next(); w != word || r != rest {
		p.t.Fatalf("participant says %q, want %q", w+" "+r, word+" "+rest)
	}
}

func (p *proc) kill()  { _ = p.cmd.Process.Kill() }
func (p *proc) leave() { _ = p.stdin.Close() }

func keyFile(dir string) string { return filepath.Join(dir, "hub", "key") }

// connect returns a client and a channel that gets a value when it reconnects.
func connect(t *testing.T, url, dir string, opts ...nats.Option) (*nats.Conn, chan struct{}) {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(keyFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{}, 16)
	closed := make(chan struct{})
	opts = append(opts, key, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc, again
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(eventually):
		t.Fatal("never: " + what)
	}
}

func fill(t *testing.T, nc *nats.Conn, n int) {
	t.Helper()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := js.Publish("s", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func isFilled(t *testing.T, nc *nats.Conn, n int) {
	t.Helper()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i := range n {
		m, err := js.GetMsg("S", uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		got, want = append(got, string(m.Data)), append(want, fmt.Sprint(i))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("messages after the take-over (-want +got):\n%s", d)
	}
}

func TestTakeOver(t *testing.T) {
	for name, end := range map[string]func(*proc){"exit": (*proc).leave, "kill": (*proc).kill} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := run(t, dir)
			_, url := first.next()
			second := run(t, dir)
			second.is("joined", url)
			nc, again := connect(t, url, dir)
			fill(t, nc, 100)

			start := time.Now()
			end(first)
			second.is("owned", url)
			t.Logf("served again after %v", time.Since(start))
			wait(t, again, "the client reconnects by itself")
			isFilled(t, nc, 100)

			// And on, to a third one.
			third := run(t, dir)
			third.is("joined", url)
			end(second)
			third.is("owned", url)
			wait(t, again, "the client reconnects by itself")
			isFilled(t, nc, 100)
		})
	}
}

// A client that connects through its hub follows the store into this process.
func TestTakeOverByThisProcess(t *testing.T) {
	dir := t.TempDir()
	first := run(t, dir)
	_, url := first.next()
	h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	nc, again := connect(t, "", dir, nats.InProcessServer(h))
	fill(t, nc, 10)
	if h.Owner() {
		t.Fatal("two owners")
	}
	if err := h.SetRelay("http://x", false); !errors.Is(err, natsd.ErrNotOwner) {
		t.Errorf("relay of a participant = %v", err)
	}

	first.kill()
	wait(t, h.Owned(), "this process takes over")
	if got := h.URL(); got != url {
		t.Errorf("url = %s, want %s", got, url)
	}
	wait(t, again, "the client reconnects in-process")
	isFilled(t, nc, 10)

	if err := h.SetRelay("http://127.0.0.1:1", true); err != nil {
		t.Fatal(err)
	}
	found, err := natsd.Find(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h.Info(), found); d != "" || found.Relay != "http://127.0.0.1:1" || found.PID != os.Getpid() {
		t.Errorf("address file = %+v, owner's %+v", found, h.Info())
	}
	nc.Close()
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.InProcessConn(); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("connection after close = %v", err)
	}
	if _, err := natsd.Find(t.Context(), dir); !errors.Is(err, natsd.ErrNoHub) {
		t.Errorf("find after the last one left = %v, want %v", err, natsd.ErrNoHub)
	}
}

func TestManyStartAtOnce(t *testing.T) {
	dir := t.TempDir()
	var procs []*proc
	for range 6 {
		procs = append(procs, run(t, dir))
	}
	words, urls := map[string]int{}, map[string]int{}
	for _, p := range procs {
		word, url := p.next()
		words[word]++
		urls[url]++
	}
	if d := cmp.Diff(map[string]int{"owned": 1, "joined": 5}, words); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(urls) != 1 {
		t.Errorf("addresses = %v, want one", urls)
	}
}

// Whoever took the port while nobody served the store keeps it, and is neither
// believed to be the hub nor spoken to.
func TestPortTakenByStranger(t *testing.T) {
	dir := t.TempDir()
	h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	old := h.URL()
	nc, _ := connect(t, "", dir, nats.InProcessServer(h))
	fill(t, nc, 10)
	nc.Close()
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	u, err := url.Parse(old)
	if err != nil {
		t.Fatal(err)
	}
	port, err := net.LookupPort("tcp", u.Port())
	if err != nil {
		t.Fatal(err)
	}
	start(t, natsd.Options{Port: port}) // another NATS server, open to all
	if i, err := natsd.Find(t.Context(), dir); !errors.Is(err, natsd.ErrNoHub) {
		t.Errorf("find = %+v, %v; want %v", i, err, natsd.ErrNoHub)
	}

	h, err = natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if h.URL() == old {
		t.Fatalf("served on the stranger's address %s", old)
	}
	nc, _ = connect(t, h.URL(), dir)
	isFilled(t, nc, 10)
}

func TestHubAuth(t *testing.T) {
	dir := t.TempDir()
	h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if nc, err := nats.Connect(h.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connect without the key = %v, %v; want %v", nc, err, nats.ErrAuthorization)
	}
	other := t.TempDir()
	oh, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: other})
	if err != nil {
		t.Fatal(err)
	}
	defer oh.Close(context.Background())
	key, err := nats.NkeyOptionFromSeed(oh.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(h.URL(), key); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connect with another key = %v, %v; want %v", nc, err, nats.ErrAuthorization)
	}
	for file, want := range map[string]os.FileMode{"": 0o700, "key": 0o600, "lock": 0o600, "hub.json": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, "hub", file))
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("mode of hub/%s = %04o, want %04o", file, got, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	put := func(t *testing.T, path, data string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error  // if known
		says    string // part of the message
	}{
		"store of a newer version": {func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "hub", "hub.json"), `{"format":99,"url":"nats://127.0.0.1:1"}`, 0o600)
		}, natsd.ErrNewer, "format 99"},
		"state dir is a file": {func(t *testing.T, dir string) {
			put(t, dir, "", 0o600)
		}, nil, "not a directory"},
		"hub dir is a file": {func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "hub"), "", 0o600)
		}, nil, "not a directory"},
		"store is a file": {func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "hub", "store"), "", 0o600)
		}, nil, "/store: "},
		"key readable by others": {func(t *testing.T, dir string) {
			put(t, keyFile(dir), "x", 0o644)
		}, natsd.ErrExposed, "0644"},
		"dir writable by others": {func(t *testing.T, dir string) {
			put(t, keyFile(dir), "x", 0o600)
			if err := os.Chmod(filepath.Join(dir, "hub"), 0o777); err != nil {
				t.Fatal(err)
			}
		}, natsd.ErrExposed, "0777"},
		"key is garbage": {func(t *testing.T, dir string) {
			put(t, keyFile(dir), "x", 0o600)
		}, nil, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			tc.prepare(t, dir)
			h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
			if err == nil {
				_ = h.Close(context.Background())
				t.Fatal("opened")
			}
			if tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error = %q, want %v and %q", err, tc.want, tc.says)
			}
			if !strings.HasPrefix(err.Error(), "hub: ") || strings.HasPrefix(err.Error(), "hub: hub: ") {
				t.Errorf("error %q does not say once where it is from", err)
			}
		})
	}
}

// A damaged address file costs the address, not the store.
func TestDamagedAddressFile(t *testing.T) {
	dir := t.TempDir()
	for _, damage := range []string{"", "{", `{"url":"nats://127.0.0.1:99999999"}`, `{"url":"%zz"}`, "null"} {
		file := filepath.Join(dir, "hub", "hub.json")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
		if err != nil {
			t.Fatalf("address file %q: %v", damage, err)
		}
		nc, _ := connect(t, h.URL(), dir)
		nc.Close()
		var got natsd.Info
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || got.URL != h.URL() {
			t.Errorf("address file = %q (%v), want %s", b, err, h.URL())
		}
		if err := h.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// The holder of the lock that serves nothing is waited for, not joined and not
// robbed.
func TestOpenGivesUp(t *testing.T) {
	dir := t.TempDir()
	h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if err := os.Remove(filepath.Join(dir, "hub", "hub.json")); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no more time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
	defer cancel()
	_, err = natsd.Open(ctx, natsd.HubOptions{StateDir: dir})
	if !errors.Is(err, natsd.ErrNoHub) || !errors.Is(err, cause) {
		t.Errorf("open = %v, want %v and %v", err, natsd.ErrNoHub, cause)
	}
}
