package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// reloadEvery is how often files that say who may do what are looked at: a token
// that is taken out of its file is worth nothing that much later.
const reloadEvery = 2 * time.Second

// A gate knows who may come in. It reads the tokens and certificates again when
// their files change.
type gate struct {
	r       *Relay
	local   *grant // nil without a local token
	proxies []netip.Prefix
	codes   codes
	slots   slots
	guests  guests
	cert    *certificate // nil without TLS
	bad     error        // of the configuration; Run returns it

	current atomic.Pointer[grants]
	again   chan struct{} // capacity 1: read now

	mu   sync.Mutex // guards the rest, held while files are read
	list []*grant   // without local
	seen []byte     // of the file, as far as it was read
	told string     // trouble that is in the log
	env  []Token
}

func newGate(r *Relay) *gate {
	g := &gate{r: r, again: make(chan struct{}, 1)}
	g.slots.open = map[string]int{}
	g.guests.g, g.guests.byAddr, g.guests.byConn = g, map[netip.Addr]int{}, map[net.Conn]*guest{}
	if r.token != "" {
		g.local = localGrant(r.token)
	}
	var errs []error
	if s := r.cfg.Tokens; s != "" {
		list, err := ParseTokens([]byte(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("CBCAST_RELAY_TOKENS: %w", err))
		}
		g.env = list
	}
	for _, p := range r.cfg.Proxies {
		prefix, err := parseProxy(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("CBCAST_RELAY_PROXIES: %w", err))
		}
		g.proxies = append(g.proxies, prefix)
	}
	if err := g.readTokens(); err != nil {
		errs = append(errs, err)
	}
	cert, err := newCertificate(r.cfg.TLSCert, r.cfg.TLSKey)
	if err != nil {
		errs = append(errs, err)
	}
	g.cert = cert
	if g.bad = errors.Join(errs...); g.bad != nil {
		g.replace(nil) // nobody but the machine's own user
	}
	return g
}

// parseProxy reads an address or a range of them.
func parseProxy(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	if ip, err := netip.ParseAddr(s); err == nil {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no address and no range of addresses", s)
	}
	return p.Masked(), nil
}

// Check says what is wrong with the configuration: a list of tokens, a certificate or
// a proxy that cannot be read. [Relay.Run] returns it, too.
func (r *Relay) Check() error { return r.gate.bad }

// Reload reads tokens and certificates again, without waiting for the files to be
// looked at.
func (r *Relay) Reload() {
	select {
	case r.gate.again <- struct{}{}:
	default:
	}
}

// run reads the files again until ctx ends, and ends what was granted.
func (g *gate) run(ctx context.Context) {
	defer g.close()
	if g.r.cfg.TokensFile == "" && g.cert == nil {
		<-ctx.Done()
		return
	}
	t := time.NewTicker(reloadEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-g.again:
		case <-ctx.Done():
			return
		}
		g.reload()
	}
}

func (g *gate) reload() {
	var errs []error
	if err := g.readTokens(); err != nil {
		g.r.met.reloadFailed("tokens")
		errs = append(errs, fmt.Errorf("tokens not read, the old ones stay: %w", err))
	}
	changed, err := g.cert.read()
	if err != nil {
		g.r.met.reloadFailed("certificate")
		errs = append(errs, fmt.Errorf("certificate not read, the old one stays: %w", err))
	} else if changed {
		g.r.log.Info("certificate read", "expires", g.cert.expires())
	}
	err = errors.Join(errs...)
	g.r.met.reloadOK(err == nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch told := g.told; {
	case err == nil:
		g.told = ""
		if told != "" {
			g.r.log.Info("tokens and certificates are read again")
		}
	case err.Error() != told:
		g.told = err.Error()
		g.r.log.Error("access files", "error", err)
	}
}

// readTokens puts the tokens of the file and the environment in force, where they
// are others than before. After an error the old ones stay.
func (g *gate) readTokens() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := g.r.cfg.TokensFile
	all := g.env
	if name != "" {
		data, err := durable.ReadRegular(name, maxTokensFile)
		if err != nil {
			return err
		}
		if g.seen != nil && bytes.Equal(data, g.seen) {
			return nil
		}
		list, err := ParseTokens(data)
		if err == nil {
			all = append(append([]Token{}, g.env...), list...)
			err = unique(all)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		g.seen = data
	}
	g.replace(all)
	if name != "" {
		g.r.log.Info("tokens read", "file", name, "tokens", len(all))
	}
	return nil
}

// replace puts a list in force. What is in it as before goes on; the rest ends.
func (g *gate) replace(all []Token) {
	list := make([]*grant, 0, len(all)+1)
	old := map[string]*grant{}
	for _, o := range g.list {
		old[o.id] = o
	}
	for _, t := range all {
		sum, _ := t.check() // parsed, so it has one
		n := newGrant(t, sum)
		if o := old[n.id]; o != nil && o.equal(n) {
			n.end()
			delete(old, o.id)
			n = o
		}
		list = append(list, n)
	}
	g.list = list
	if g.local != nil {
		list = append(list[:len(list):len(list)], g.local)
	}
	g.current.Store(newGrants(list))
	for _, o := range old {
		o.end()
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.list {
		o.end()
	}
	if g.local != nil {
		g.local.end()
	}
}
