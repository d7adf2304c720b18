// Package ingest is the edge of one child: it takes what the child says from
// the pass-through, gives every line a number, keeps it in the spool, ships it to
// the bus, and writes commands from the bus to the child's stdin.
//
// Data path and owners: ingest/child copies bytes and hands them to a bounded
// queue; one goroutine ([recorder]) turns them into events in the spool; one
// goroutine (bus.Publisher) ships them; the [commander] has one for each command
// that waits to be written. Nothing on this path can block the copy.
package ingest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Config is what the environment says about an edge. The tags name the
// variables without their CBCAST_ prefix.
type Config struct {
	// Tenant is the first word of everything the run publishes.
	Tenant string `env:"TENANT" envDefault:"default"`
	// RunID is the run's id, made before its start so that its permissions could be:
	// a UUIDv7 that no run has had. "" makes one.
	RunID string `env:"RUN_ID"`
	// ExitFlush is how long the end of a run waits for the bus to acknowledge
	// the rest. What is left stays in the spool for later.
	ExitFlush time.Duration `env:"EXIT_FLUSH" envDefault:"1s"`
	// SpoolRunMax bounds one run's spool in bytes. Past it events are replaced
	// by a gap event that counts them.
	SpoolRunMax int64 `env:"SPOOL_RUN_MAX" envDefault:"1073741824"`
	// SpoolMax bounds the spools of all runs together, in bytes.
	SpoolMax int64 `env:"SPOOL_MAX" envDefault:"4294967296"`
	// CaptureStdin is control (control messages only) or all (prompts, too).
	CaptureStdin string `env:"CAPTURE_STDIN" envDefault:"control"`
	// CaptureOutputs publishes what tasks left in files, when they end.
	CaptureOutputs bool `env:"CAPTURE_OUTPUTS" envDefault:"1"`
	// RedactEnv names further variables of the child whose values are masked.
	RedactEnv []string `env:"REDACT_ENV"`
	// RedactPatterns are further regular expressions (RE2) of text to mask.
	RedactPatterns []string `env:"REDACT_PATTERNS" envSeparator:"\n"`
	// PresenceTTL is how long after its last sign of life an edge is taken for
	// gone. It renews three times as often.
	PresenceTTL time.Duration `env:"PRESENCE_TTL" envDefault:"30s"`
	// KillAfterResult ends a one-shot child that stays although its result is
	// written: stdin closed, SIGTERM, SIGKILL. 0 leaves it alone, as a bare
	// pipe would.
	KillAfterResult time.Duration `env:"KILL_AFTER_RESULT"`
	// Policy is a file of JSON that says which asks are decided without a person,
	// and what becomes of one that nobody answers. "" is none.
	Policy string `env:"POLICY"`
	// StallAfter is the silence inside a turn, and the time that an ask is open,
	// after which a watchdog says so once, as a fact; it does nothing else. 0
	// turns it off.
	StallAfter time.Duration `env:"STALL_AFTER" envDefault:"10m"`
	// Escalate are the times that the first three rungs of an escalation may take:
	// the interrupt, stop_task, SIGTERM. Empty are those that the agent needs.
	Escalate []time.Duration `env:"ESCALATE"`
}

// minRung is the least time of a rung. A child that obeys at once needs less.
const minRung = 50 * time.Millisecond

// minSpool holds a run's first and last words, and a little between.
const minSpool = 64 << 10

// isTenant reports whether t has the form of a tenant.
func isTenant(t string) bool {
	for i := range len(t) {
		c := t[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !word && (i == 0 || strings.IndexByte("._/-", c) < 0) {
			return false
		}
	}
	return 1 <= len(t) && len(t) <= 64
}

// Validate says what is wrong with c, in words that tell what to write instead.
func (c *Config) Validate() error {
	if !isTenant(c.Tenant) {
		return fmt.Errorf("CBCAST_TENANT %q: use 1 to 64 of letters, digits, '.', '_', '/', '-', beginning with a letter or digit", c.Tenant)
	}
	if id, err := uuid.Parse(c.RunID); c.RunID != "" && (err != nil || id.Version() != 7 || id.String() != c.RunID) {
		return fmt.Errorf("CBCAST_RUN_ID %q: use a UUIDv7 in lower case, as cbcast auth run makes it, or nothing", c.RunID)
	}
	if c.CaptureStdin != "control" && c.CaptureStdin != "all" {
		return fmt.Errorf("CBCAST_CAPTURE_STDIN %q: use control or all", c.CaptureStdin)
	}
	if c.SpoolRunMax < minSpool {
		return fmt.Errorf("CBCAST_SPOOL_RUN_MAX %d: use %d or more", c.SpoolRunMax, minSpool)
	}
	for _, v := range []struct {
		name string
		d    time.Duration
	}{
		{"CBCAST_EXIT_FLUSH", c.ExitFlush}, {"CBCAST_KILL_AFTER_RESULT", c.KillAfterResult}, {"CBCAST_STALL_AFTER", c.StallAfter},
	} {
		if v.d < 0 {
			return fmt.Errorf("%s %s: use 0 or more", v.name, v.d)
		}
	}
	if len(c.Escalate) != 0 && (len(c.Escalate) != 3 || slices.Min(c.Escalate) < minRung) {
		return fmt.Errorf("CBCAST_ESCALATE %v: use three times of %s or more, for the interrupt, stop_task and SIGTERM", c.Escalate, minRung)
	}
	if c.PresenceTTL < 2*time.Second {
		return fmt.Errorf("CBCAST_PRESENCE_TTL %s: use 2s or more", c.PresenceTTL)
	}
	if _, err := c.LoadPolicy(); err != nil {
		return fmt.Errorf("CBCAST_POLICY: %w", err)
	}
	for _, p := range c.RedactPatterns {
		if _, err := regexp.Compile(p); err != nil {
			return fmt.Errorf("CBCAST_REDACT_PATTERNS: %w", err)
		}
	}
	return nil
}
