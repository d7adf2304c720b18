package natsd

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

const (
	// hubFormat numbers the layout of the hub's directory. A process that finds
	// a higher one does not serve the store.
	hubFormat = 1

	// dialTimeout bounds the connection to an owner and the wait for its first
	// line.
	dialTimeout = 2 * time.Second

	// maxInfo bounds the first line of a server, which lists its addresses.
	maxInfo = 64 << 10

	// The first port of a store is chosen here: below the ports that systems
	// give to outgoing connections. One of those could hold the port while no
	// owner listens, and a client that dials a free port of that range over and
	// over may be connected to itself.
	firstPort, portCount = 20_000, 10_000
)

// Info is the address file of the local store, hub.json. It holds no secret.
type Info struct {
	Format  int       `json:"format"`
	URL     string    `json:"url"`    // of the NATS server
	Server  string    `json:"server"` // the server's name, new for each owner
	PID     int       `json:"pid"`    // of the owner
	Started time.Time `json:"started"`

	// Relay is the URL of the owner's relay, or of an earlier owner's while
	// the present one has not recorded its own.
	Relay string `json:"relay,omitempty"`
	// Guarded says that this relay asked for more than the loopback's own rule:
	// tokens, TLS, another interface. Who has no such settings does not serve in its
	// place.
	Guarded bool `json:"guarded,omitempty"`
}

func infoFile(dir string) string { return filepath.Join(dir, "hub.json") }

func readInfo(dir string) (Info, error) {
	b, err := os.ReadFile(infoFile(dir))
	if err != nil {
		return Info{}, err
	}
	var i Info
	if err := json.Unmarshal(b, &i); err != nil {
		return Info{}, fmt.Errorf("%s: %w", infoFile(dir), err)
	}
	return i, nil
}

// write replaces the address file. A reader sees the old or the new one whole.
func (i Info) write(dir string) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(infoFile(dir), append(b, '\n'), 0o600)
}

// port is the port of the recorded address, 0 if there is none.
func (i Info) port() int {
	u, err := url.Parse(i.URL)
	if err != nil {
		return 0
	}
	p, err := strconv.Atoi(u.Port())
	if err != nil || p < 1 || p > 65535 {
		return 0
	}
	return p
}

// Find says where the local store in stateDir is served, without taking part
// in it. It returns [ErrNoHub] when nobody serves it.
func Find(ctx context.Context, stateDir string) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := dialOwner(ctx, hubDir(stateDir))
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrNoHub, err)
	}
	_ = c.Close()
	return readInfo(hubDir(stateDir))
}

// dialOwner connects to the server in the address file. A server tells its name
// before anything else; one with another name is a stranger on an old address.
func dialOwner(ctx context.Context, dir string) (net.Conn, error) {
	info, err := readInfo(dir)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(info.URL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	// An owner that is stopped accepts and says nothing: the caller's end counts.
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	line, err := firstLine(ctx, c)
	stop()
	if err == nil && line.name != info.Server {
		err = fmt.Errorf("%s: server %q is not the store's %q", info.URL, line.name, info.Server)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &begunConn{Conn: c, begun: line.read}, nil
}

// greeting is what a server said when it was connected to.
type greeting struct {
	name string
	read []byte // all bytes that were read
}

func firstLine(ctx context.Context, c net.Conn) (greeting, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return greeting{}, err
	}
	r := bufio.NewReaderSize(c, maxInfo)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return greeting{}, fmt.Errorf("server's first line: %w", err)
	}
	rest, _ := r.Peek(r.Buffered())
	var info struct {
		Name string `json:"server_name"`
	}
	const op = "INFO "
	if len(line) < len(op) || string(line[:len(op)]) != op {
		return greeting{}, fmt.Errorf("not a NATS server: it begins with %.20q", line)
	}
	if err := json.Unmarshal(line[len(op):], &info); err != nil {
		return greeting{}, fmt.Errorf("server's first line: %w", err)
	}
	read := append(append([]byte(nil), line...), rest...)
	return greeting{info.Name, read}, c.SetReadDeadline(time.Time{})
}

// begunConn returns what was read from the connection already, then the rest.
type begunConn struct {
	net.Conn
	begun []byte // read by one goroutine, as NATS clients do
}

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begun) > 0 {
		n := copy(p, c.begun)
		c.begun = c.begun[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// serverName returns a name that no other server has.
func serverName() string { return "cbcast-" + rand.Text() }

// somePort returns a random port of the store's range.
func somePort() int {
	n, err := rand.Int(rand.Reader, big.NewInt(portCount))
	if err != nil {
		return 0 // any free port
	}
	return firstPort + int(n.Int64())
}
