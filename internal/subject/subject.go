// Package subject builds and parses the NATS subjects, stream names and
// key-value keys that cbcast uses. Nothing else spells one: ids come from
// outside (a child's frames, a user's environment), so every id passes through
// [Token] before it becomes part of a subject.
package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

const (
	// Unknown is the token of an id that is not known (yet). [Token] never
	// returns it for a real id: the id "_" itself is escaped.
	Unknown = "_"

	// MaxToken bounds an encoded token in bytes. A longer encoding is cut and
	// ends in a hash of the whole id, so subjects stay far below the server's
	// control-line limit whatever a child calls its tasks.
	MaxToken = 128

	// Streams and buckets. See subjects.md for what each holds.
	CommandStream  = "CMD"
	ControlStream  = "CTL"
	RunsBucket     = "runs"
	PresenceBucket = "presence"
	SessionsBucket = "sessions"

	// Durable consumers on the streams, one for each program that reads on where it was.
	NotifyConsumer  = "cbcast-notify"
	MetricsConsumer = "cbcast-metrics"
	TraceConsumer   = "cbcast-trace"
	ArchiveConsumer = "cbcast-archive"

	eventRoot   = "cbc.ev."
	commandRoot = "cbc.cmd."
	hintRoot    = "cbc.hint."
	controlRoot = "cbc.ctl."
)

// ErrSubject is returned when a string is not a subject of the expected form.
var ErrSubject = errors.New("not a cbcast subject")

const hexDigits = "0123456789ABCDEF"

// Token encodes an id as one subject token. Bytes of [A-Za-z0-9_-] stay as
// they are, every other byte becomes "=" and two upper-case hex digits, and the
// empty id becomes [Unknown]. The encoding is injective up to [MaxToken];
// past it the token is a prefix, "=h" and 128 bits of the id's SHA-256, which
// [Untoken] cannot reverse (events carry the whole id in an attribute).
func Token(id string) string {
	if id == "" {
		return Unknown
	}
	if id != Unknown && len(id) <= MaxToken && clean(id) {
		return id
	}
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		if plain(c) && id != Unknown {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	if b.Len() <= MaxToken {
		return b.String()
	}
	sum := sha256.Sum256([]byte(id))
	prefix := b.String()[:MaxToken-2-32]
	// Do not cut an escape in two.
	if i := strings.LastIndexByte(prefix, '='); i > len(prefix)-3 {
		prefix = prefix[:i]
	}
	return prefix + "=h" + hex.EncodeToString(sum[:16])
}

// Untoken reverses [Token]. ok is false for a token that Token never returns
// and for one that was cut, whose id is not in it.
func Untoken(token string) (id string, ok bool) {
	if token == Unknown {
		return "", true
	}
	if len(token) == 0 || len(token) > MaxToken {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		if c != '=' || i+2 >= len(token) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	id = b.String()
	return id, Token(id) == token
}

// cut reports whether token has the form that [Token] gives to an id too long
// to be encoded whole.
func cut(token string) bool {
	i := strings.LastIndex(token, "=h")
	return i >= 0 && len(token) <= MaxToken && len(token)-i == 2+32 &&
		clean(strings.ReplaceAll(token, "=", ""))
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func clean(s string) bool {
	for i := range len(s) {
		if !plain(s[i]) {
			return false
		}
	}
	return true
}

// Partition is the partition of a run's events among n: FNV-1a of the run id
// modulo n. It is recorded in the registry, so n may change for new runs.
func Partition(run string, n int) int {
	if n <= 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(run))
	return int(h.Sum32() % uint32(n))
}

// EventStream is the name of the stream that holds partition p.
func EventStream(p int) string { return "EV_" + strconv.Itoa(p) }

// EventStreamSubjects is the subject filter of partition p's stream.
func EventStreamSubjects(p int) string { return eventRoot + strconv.Itoa(p) + ".>" }

// CommandStreamSubjects and the two below are the filters of their streams.
const (
	CommandStreamSubjects = commandRoot + ">"
	ControlStreamSubjects = controlRoot + ">"
	HintSubjects          = hintRoot + ">"
)

// An Event is the subject of one event of a run. The tokens are plain ids;
// String encodes them.
type Event struct {
	Partition int
	Tenant    string
	Run       string
	Session   string // "" is unknown
	Task      string // "" is none
	Kind      string
}

func (e Event) String() string {
	return eventRoot + strconv.Itoa(e.Partition) + "." + Token(e.Tenant) + "." + Token(e.Run) + "." +
		Token(e.Session) + "." + Token(e.Task) + "." + Token(e.Kind)
}

// ParseEvent parses the subject of an event. Session and task that were cut by
// [Token] come back as "" with no error; the event's attributes have them.
func ParseEvent(s string) (Event, error) {
	rest, ok := strings.CutPrefix(s, eventRoot)
	if !ok {
		return Event{}, fmt.Errorf("%w: %q", ErrSubject, s)
	}
	f := strings.Split(rest, ".")
	if len(f) != 6 {
		return Event{}, fmt.Errorf("%w: %q has %d tokens", ErrSubject, s, len(f)+2)
	}
	p, err := strconv.Atoi(f[0])
	if err != nil || p < 0 || strconv.Itoa(p) != f[0] {
		return Event{}, fmt.Errorf("%w: %q: partition %q", ErrSubject, s, f[0])
	}
	e := Event{Partition: p}
	var okT, okR, okS, okA, okK bool
	e.Tenant, okT = Untoken(f[1])
	e.Run, okR = Untoken(f[2])
	e.Session, okS = Untoken(f[3])
	e.Task, okA = Untoken(f[4])
	e.Kind, okK = Untoken(f[5])
	if !okT || !okR || !okK || !okS && !cut(f[3]) || !okA && !cut(f[4]) || e.Run == "" || e.Kind == "" {
		return Event{}, fmt.Errorf("%w: %q", ErrSubject, s)
	}
	return e, nil
}

// EventsFilter matches the events of partition p of one tenant and one kind; "" is
// every one.
func EventsFilter(p int, tenant, kind string) string {
	if tenant == "" && kind == "" {
		return EventStreamSubjects(p)
	}
	t, k := "*", "*"
	if tenant != "" {
		t = Token(tenant)
	}
	if kind != "" {
		k = Token(kind)
	}
	return eventRoot + strconv.Itoa(p) + "." + t + ".*.*.*." + k
}

// RunFilter matches every event of one run, and is the subject of the fence
// that a run's publisher puts on each batch.
func RunFilter(p int, tenant, run string) string {
	return eventRoot + strconv.Itoa(p) + "." + Token(tenant) + "." + Token(run) + ".>"
}

// Command is the subject of one command. Its hint is republished, headers
// only, on [Hint].
func Command(tenant, run, id string) string {
	return commandRoot + Token(tenant) + "." + Token(run) + "." + Token(id)
}

// CommandFilter matches every command to one run.
func CommandFilter(tenant, run string) string {
	return commandRoot + Token(tenant) + "." + Token(run) + ".>"
}

// CommandByID matches the command with this id, whatever its run.
func CommandByID(id string) string { return commandRoot + "*.*." + Token(id) }

// Hint matches the wake-up copies of every command to one run.
func Hint(tenant, run string) string {
	return hintRoot + Token(tenant) + "." + Token(run) + ".>"
}

// ParseCommand parses the subject of a command.
func ParseCommand(s string) (tenant, run, id string, err error) { return parse3(s, commandRoot) }

// Control is the subject of a fact about a run that its edge did not write.
// what is one of the constants below, or "audit-" and a command id.
func Control(tenant, run, what string) string {
	return controlRoot + Token(tenant) + "." + Token(run) + "." + Token(what)
}

// ControlFilter matches every control fact of one run.
func ControlFilter(tenant, run string) string {
	return controlRoot + Token(tenant) + "." + Token(run) + ".>"
}

// ControlsFilter matches every control fact about the runs of a tenant.
func ControlsFilter(tenant string) string { return controlRoot + Token(tenant) + ".>" }

// ParseControl parses the subject of a control fact.
func ParseControl(s string) (tenant, run, what string, err error) { return parse3(s, controlRoot) }

// Liveness is what a control fact is called that says whether a run's edge is
// gone (lost) or has come back (resumed). Both share one subject, so that the
// last one holds and a fence on it makes each happen once.
const Liveness = "liveness"

// CommandFact is what a control fact about a command is called.
func CommandFact(id string) string { return "cmd-" + id }

// Audit is what the audit fact of a command is called.
func Audit(id string) string { return "audit-" + id }

func parse3(s, root string) (tenant, run, last string, err error) {
	rest, ok := strings.CutPrefix(s, root)
	f := strings.Split(rest, ".")
	if !ok || len(f) != 3 {
		return "", "", "", fmt.Errorf("%w: %q", ErrSubject, s)
	}
	var okT, okR, okL bool
	tenant, okT = Untoken(f[0])
	run, okR = Untoken(f[1])
	last, okL = Untoken(f[2])
	if !okT || !okR || !okL || run == "" || last == "" {
		return "", "", "", fmt.Errorf("%w: %q", ErrSubject, s)
	}
	return tenant, run, last, nil
}

// Key is the key of a run in the registry and in the presence bucket.
func Key(run string) string { return Token(run) }

// A Conversation names what an agent goes on with when it resumes.
type Conversation struct {
	Tenant, Dialect, Session string
	// Host keeps ids apart that are no UUIDs: on another machine the same name is
	// another conversation.
	Host string
}

// Key is the key of a conversation in the bucket of sessions.
func (c Conversation) Key() string {
	key := Token(c.Tenant) + "." + Token(c.Dialect) + "." + Token(c.Session)
	if !isUUID(c.Session) {
		key += "." + Token(c.Host)
	}
	return key
}

func isUUID(s string) bool {
	for i := range len(s) {
		if c := s[i]; i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return len(s) == 36
}
