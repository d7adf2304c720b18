package sink

import (
	"net"
	"net/netip"
	"time"
)

// For tests.
var (
	Visible  = visible
	Public   = func(s string) string { return public(netip.MustParseAddr(s)) }
	AskHash  = askHash
	Asked    = asked
	Mrkdwn   = mrkdwn
	Mention  = mention
	SafeLink = safeLink
)

// SetGap sets how far apart messages in one channel are.
func (s *Slack) SetGap(d time.Duration) { s.gap = d }

// SetResolver sets who looks up names.
func (g *Guard) SetResolver(r *net.Resolver) { g.resolver = r }

// CutMrkdwn cuts as the Slack sinks do.
func CutMrkdwn(s string, units, bytes int) (string, int) {
	return cutText(s, budget{units, bytes}, mrkdwnRune)
}

// CutPlain cuts as the others do.
func CutPlain(s string, units int) (string, int) { return cutText(s, budget{units: units}, plain) }

// Units counts as Slack may.
func Units(s string) int { return units(s) }

// Sections cuts for a modal.
func Sections(s string) []string { return sections(s) }

// Age makes what was clicked look as old as d.
func (s *Slack) Age(d time.Duration) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	for _, g := range s.keys.byKey {
		if g.Used != nil {
			u := *g.Used
			u.At = u.At.Add(-d)
			g.Used = &u
		}
	}
}
