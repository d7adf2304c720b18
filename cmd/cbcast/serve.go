package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

// runRelay serves until the station closes. With a hub it listens where the last
// owner's relay did, so that addresses stay true.
func (s *station) runRelay(hub *natsd.Hub) {
	err := s.serveRelay(hub)
	if errors.Is(err, errGuarded) {
		s.log.Warn("relay not served", "error", err)
	}
	s.mu.Lock()
	first := s.relayAt == "" && s.relayBad == nil
	if err != nil && s.ctx.Err() == nil {
		s.relayBad = err
	}
	s.mu.Unlock()
	if first {
		close(s.relayUp)
	}
}

// errGuarded is why the relay of a guarded one is not continued by a process that
// would serve the same runs to everybody at its address.
var errGuarded = errors.New("the relay of this machine had access settings that this process has not; " +
	"start cbcast up again, or put them into cbcast.env, which every process reads")

func (s *station) serveRelay(hub *natsd.Hub) error {
	guarded := s.a.cfg.Relay.Guarded()
	if hub != nil && hub.Info().Guarded && !guarded && !s.serve {
		return errGuarded
	}
	token, err := secretFile(s.a.tokenFile())
	if err != nil {
		return err
	}
	secret, err := s.a.relaySecret()
	if err != nil {
		return err
	}
	b, err := s.connectRelay(hub)
	if err != nil {
		return err
	}
	defer b.Close()
	o := relay.Options{
		Config: s.a.cfg.Relay, Bus: b, Token: string(token), Secret: secret, Partitions: s.a.partitions(), Log: s.log,
	}
	if s.others != nil {
		o.Others, o.Gather, o.Also = s.others.ready, s.others.gather, s.others.also()
	}
	if c := &s.a.cfg.Archive; c.Dest != "" {
		p, err := c.Open()
		if err != nil {
			return err
		}
		o.Archive = p.Reader() // what the streams have let go is read from there
	}
	r := relay.New(o)
	if err := r.Check(); err != nil {
		return err
	}
	ln, err := s.listen(hub)
	if err != nil {
		return err
	}
	at := s.a.relayScheme() + ln.Addr().String()
	if hub != nil && hub.Owner() {
		if err := hub.SetRelay(at, guarded); err != nil {
			s.log.Warn("record the relay's address", "error", err)
		}
	}
	s.mu.Lock()
	s.relay = r
	s.relayAt = at
	s.mu.Unlock()
	close(s.relayUp)
	return r.Serve(s.ctx, ln)
}

// openRelay says what an up with access settings cannot keep while another process of
// this machine serves the hub's relay without any.
func (s *station) openRelay() error {
	if s.hub == nil || s.hub.Owner() || !s.a.cfg.Relay.Guarded() {
		return nil
	}
	i := s.hub.Info()
	if i.Guarded || i.Relay == "" {
		return nil
	}
	if s.own {
		s.log.Warn("another relay of this machine lets everybody on it read", "url", i.Relay, "pid", i.PID)
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("process %d serves the relay of this machine at %s without these access settings: "+
		"put them into cbcast.env, which every process reads, and try again when that one has ended", i.PID, i.Relay)}
}

// relaySecret is what was configured, nil without.
func (a *app) relaySecret() ([]byte, error) {
	name, secret := "CBCAST_RELAY_SECRET", []byte(a.cfg.RelaySecret)
	if file := a.cfg.RelaySecretFile; file != "" {
		if len(secret) > 0 {
			return nil, errors.New("CBCAST_RELAY_SECRET and CBCAST_RELAY_SECRET_FILE: only one of them may be set")
		}
		b, err := durable.ReadRegular(file, durable.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("CBCAST_RELAY_SECRET_FILE: %w", err)
		}
		if secret = bytes.TrimSpace(b); len(secret) == 0 {
			return nil, fmt.Errorf("CBCAST_RELAY_SECRET_FILE: %s is empty", file)
		}
		name = file
	}
	if len(secret) > 0 && len(secret) < relay.MinSecret {
		return nil, fmt.Errorf("%s: the relay's secret has %d bytes; it needs at least %d", name, len(secret), relay.MinSecret)
	}
	return secret, nil
}

// connectRelay is connect without opening: it runs within open.
func (s *station) connectRelay(hub *natsd.Hub) (*bus.Bus, error) {
	cfg := s.a.cfg.Bus
	if hub != nil {
		cfg = bus.Config{InProcess: hub, Nkey: hub.KeyFile()}
	}
	cfg.Name = "cbcast relay"
	b, err := bus.Open(cfg, s.log)
	if err != nil || hub == nil {
		return b, err
	}
	err = b.WaitConnected(s.ctx)
	if err == nil {
		_, err = b.Ensure(s.ctx, s.topology())
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// listen takes the configured address. The hub's relay goes where the last owner's
// was, so that addresses stay true, and to any free port where another program
// (another user's hub) has the default one.
func (s *station) listen(hub *natsd.Hub) (net.Listener, error) {
	addr := s.a.cfg.Relay.Addr
	tries := []string{addr}
	if hub != nil && addr == defaultRelayAddr {
		tries = []string{addr, "127.0.0.1:0"}
		if u, err := url.Parse(hub.Info().Relay); err == nil && u.Host != "" {
			tries = slices.Insert(tries, 0, u.Host)
		}
	}
	var errs []error
	for _, addr := range tries {
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return ln, nil
		}
		if hub != nil && !hub.Owner() {
			if i := hub.Info(); i.Relay == s.a.relayScheme()+addr {
				err = fmt.Errorf("%w; process %d of cbcast, which has this machine's hub, serves its relay there", err, i.PID)
			}
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("listen for the relay: %w", errors.Join(errs...))
}

// relayURL is where the relay is served, by this process or the hub's owner.
func (s *station) relayURL(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, hubPatience)
	defer cancel()
	if s.hub != nil && !s.hub.Owner() && !s.own {
		if r := s.hub.Info().Relay; r != "" {
			return r, nil
		}
	}
	select {
	case <-s.relayUp:
	case <-ctx.Done():
		return "", errors.New("the relay does not come up")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relayAt, s.relayBad
}

// loginURL logs a browser in, where this process serves the relay.
func (s *station) loginURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return ""
	}
	return s.relayAt + s.relay.LoginCode().Path
}

// reload has the relay read its tokens and certificates again.
func (s *station) reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay != nil {
		s.relay.Reload()
	}
}

func (s *station) relayErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relayBad
}

func (s *station) natsURL() string {
	if s.hub != nil {
		return s.hub.URL()
	}
	return s.a.cfg.Bus.URL
}

// streamURL is where a run can be followed, or words that say why not.
func (s *station) streamURL(ctx context.Context, id string) string {
	at, err := s.relayURL(ctx)
	if err != nil || at == "" {
		return fmt.Sprintf("(no relay: %v)", err)
	}
	return at + "/v1/runs/" + id + "/stream"
}
