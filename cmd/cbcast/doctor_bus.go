package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// reachTime bounds the way to the bus or the relay.
	reachTime = 5 * time.Second
	// Differences of the clocks: commands expire 30 s after they were given, by the
	// giver's clock.
	smallSkew = 2 * time.Second
	largeSkew = 20 * time.Second
)

// bus says whether runs get onto the bus.
func (d *doctor) bus(ctx context.Context) {
	cfg, topology, ok := d.whichBus(ctx)
	if !ok {
		return
	}
	cfg.Name = "cbcast doctor"
	rctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	b, err := bus.Connect(rctx, cfg, nil)
	if err != nil {
		d.fail("bus", "check CBCAST_NATS_URL, the credentials and the network; until then runs stay in the spool",
			"%s: %v", bus.RedactURL(cfg.URL), hideSecrets(err, cfg))
		return
	}
	defer b.Close()
	d.ok("bus", "%s", b.Server())
	d.streams(ctx, b, topology)
	d.permissions(ctx, b)
	d.clock(ctx, b)
}

// whichBus finds the bus that a run would use; false where there is nothing to
// connect to, which is said then.
func (d *doctor) whichBus(ctx context.Context) (bus.Config, bus.Topology, bool) {
	cfg := d.a.cfg.Bus
	if cfg.URL != "" {
		return cfg, d.a.topology(), true
	}
	if d.a.cfg.Hub == hubNever {
		d.warn("bus", "set CBCAST_NATS_URL, or CBCAST_HUB=auto for a hub on this machine",
			"none: CBCAST_HUB is never (the default where CI is set); runs stay in the spool")
		return cfg, bus.Topology{}, false
	}
	info, held, err := natsd.Held(d.a.cfg.StateDir)
	switch {
	case err != nil:
		d.fail("hub", "correct or remove what is in the hub folder of the state directory", "%v", err)
		return cfg, bus.Topology{}, false
	case !held:
		d.ok("hub", "no process serves the local store now; the first command that needs it does")
		return cfg, bus.Topology{}, false
	}
	found, err := natsd.Find(ctx, d.a.cfg.StateDir)
	if err != nil {
		d.fail("hub", "end that process, or wait for it", "the local store is held by process %d, which does not answer: %v", info.PID, err)
		return cfg, bus.Topology{}, false
	}
	d.ok("hub", "process %d serves the local store since %s", found.PID, found.Started.Local().Format("2006-01-02 15:04:05"))
	t := bus.Local(d.a.cfg.MaxBytes)
	t.MaxAge = d.a.cfg.MaxAge
	return bus.Config{URL: found.URL, Nkey: natsd.KeyFile(d.a.cfg.StateDir)}, t, true
}

// hideSecrets is err without the passwords of cfg.
func hideSecrets(err error, cfg bus.Config) string {
	s := err.Error()
	for _, secret := range []string{cfg.Token, cfg.Password} {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "xxxxx")
		}
	}
	for one := range strings.SplitSeq(cfg.URL, ",") {
		s = strings.ReplaceAll(s, one, bus.RedactURL(one))
	}
	return s
}

// streams compares what is there with what this configuration wants.
func (d *doctor) streams(ctx context.Context, b *bus.Bus, t bus.Topology) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	changes, err := b.Plan(ctx, t)
	if err != nil {
		d.warn("streams", "an edge with narrow permissions cannot ask; cbcast provision --plan with others can", "cannot be compared: %v", err)
		return
	}
	missing := 0
	for _, c := range changes {
		if c.Field == "" {
			missing++
			d.fail("streams", "cbcast provision makes it", "%s", c)
		} else {
			d.warn("streams", "change the stream or the configuration; cbcast alters nothing that exists", "%s", c)
		}
	}
	if len(changes) == 0 {
		d.ok("streams", "all there, as this configuration wants them")
	}
}

// permissions tries what an edge and a relay do.
func (d *doctor) permissions(ctx context.Context, b *bus.Bus) {
	var may []string
	run := d.a.cfg.Edge.RunID
	for _, f := range b.Check(ctx, d.a.cfg.Edge.Tenant, run, subject.Partition(run, d.a.partitions())) {
		switch {
		case f.Err == nil:
			may = append(may, f.What)
		case f.Optional && errors.Is(f.Err, bus.ErrDenied):
			d.warn("permissions", "a run whose session is known before can have it: cbcast auth run --session", "an edge may not %s: %v", f.What, f.Err)
		case f.Edge && errors.Is(f.Err, bus.ErrDenied):
			d.fail("permissions", "allow it for this user, or use credentials of cbcast auth (docs/security.md); one of a run needs its CBCAST_RUN_ID", "an edge may not %s: %v", f.What, f.Err)
		case errors.Is(f.Err, bus.ErrDenied):
			d.warn("permissions", "only a relay and the commands of cbcast need it", "may not %s: %v", f.What, f.Err)
		case f.Edge:
			d.fail("permissions", "", "an edge cannot %s: %v", f.What, f.Err)
		default:
			d.warn("permissions", "", "cannot %s: %v", f.What, f.Err)
		}
	}
	if len(may) > 0 {
		d.ok("permissions", "may %s", strings.Join(may, ", "))
	}
}

// clock compares the clocks.
func (d *doctor) clock(ctx context.Context, b *bus.Bus) {
	ahead, trip, err := b.Clock(ctx, 0)
	if err != nil {
		d.warn("clock", "", "cannot be compared: %v", err)
		return
	}
	text := fmt.Sprintf("the server's is %s ahead, give or take %s", ahead.Round(time.Millisecond), (trip / 2).Round(time.Microsecond))
	const do = "set the clocks; commands expire by the time at which they were given"
	switch skew(ahead, trip) {
	case isFail:
		d.fail("clock", do, "%s", text)
	case isWarn:
		d.warn("clock", do, "%s", text)
	default:
		d.ok("clock", "%s", text)
	}
}

// skew judges a difference of the clocks by what it is at least.
func skew(ahead, trip time.Duration) string {
	switch off := max(ahead, -ahead) - trip/2; {
	case off > largeSkew:
		return isFail
	case off > smallSkew:
		return isWarn
	}
	return isOK
}

// relay says whether a relay answers, and takes this user's token.
func (d *doctor) relay(ctx context.Context) {
	at, sure := d.a.relayAt(ctx)
	if at == "" {
		d.ok("relay", "none is known here; cbcast up serves one, CBCAST_RELAY_ADDR names another address")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	code, err := d.ask(ctx, http.MethodGet, at+"/readyz", "")
	switch {
	case err != nil && !sure:
		d.ok("relay", "none at %s; cbcast up serves one, CBCAST_RELAY_ADDR names another address", at)
		return
	case err != nil:
		d.fail("relay", "cbcast up serves one", "%s: %v", at, err)
		return
	case code != http.StatusOK:
		d.warn("relay", "wait, or look at the bus", "%s answers, and is not ready: HTTP %d", at, code)
	default:
		d.ok("relay", "%s is ready", at)
	}
	token, err := os.ReadFile(d.a.tokenFile())
	if err == nil {
		err = private(d.a.tokenFile())
	}
	if err != nil {
		d.warn("token", "commands to the relay need the token in its state directory", "%v", err)
		return
	}
	// A run that does not exist: whether the token is taken shows first.
	code, err = d.ask(ctx, http.MethodPost, at+"/v1/runs/doctor/interrupt", strings.TrimSpace(string(token)))
	switch {
	case err != nil:
		d.warn("token", "", "%v", err)
	case code == http.StatusUnauthorized:
		d.warn("token", "the relay has another state directory; use the token in that", "%s does not take the token in %s", at, d.a.tokenFile())
	default:
		d.ok("token", "%s is taken", d.a.tokenFile())
	}
}

func (d *doctor) ask(ctx context.Context, method, url, token string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(""))
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// Straight there: a proxy is no way to this machine.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: d.a.relayTLS()}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}
