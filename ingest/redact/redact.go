// Package redact masks secrets in the bytes that leave the machine. It sees a
// run's frames before the spool does; what the parent process reads is never
// changed by it.
//
// A mask replaces bytes by "[redacted:<rule>]", inside a JSON string or, for a
// value that is masked as a whole, as a JSON string of its own: a frame that
// was valid JSON stays valid JSON. Every mask is named by an [event.Span]; all
// other bytes stay as they were, see [Matches].
//
// # What is masked
//
//	account      the account block of a control_response (of initialize; for cbc
//	             its token is the API key)
//	mcp          env, headers, args, and of urls userinfo and query, below
//	             mcpServers of a control_response or of a control_request on stdin
//	settings     env, headers, http_headers, args elsewhere in such a frame; of
//	             Codex such frames are its results and its host's requests
//	prompt       system prompts in an initialize request, unless stdin is captured
//	bearer       credentials behind Bearer, Authorization and x-api-key
//	api_key      the shapes of keys of Anthropic, OpenAI, GitHub, GitLab, Slack, AWS, Google, Stripe
//	jwt          JSON web tokens
//	slack_hook   paths of Slack webhook URLs
//	private_key  PEM private keys
//	env          values of environment variables, see Config.EnvNames
//	token        values remembered from the account block and other masked places
//	echo         stdin that a child repeats on stderr or in a parse error
//	pattern      Config.Patterns
//	frame        a whole frame whose masks could not be kept inside JSON strings,
//	             or a control_response too long to be read
//	many         see event.LimitSpans
//
// # What is not found
//
// A secret that is encoded in another way than raw or JSON-escaped once or
// twice (base64, URL encoding), one that a child spreads over several frames
// (text deltas), and one of fewer than 8 bytes.
package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"sync"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	// holdBack is how many bytes at the end of a piece wait for the next one at
	// least, so that a key across the border is seen. Longer remembered values
	// make it longer.
	holdBack = 4 << 10
	// maxHold bounds what waits when a secret reaches the end of a piece. One
	// that is longer is masked in the piece, and its rest is not recognised.
	maxHold = 64 << 10
)

// Config says what is secret beside what always is.
type Config struct {
	// Key is for keyed hashes: random, secret, the same for all runs of a host.
	Key []byte
	// Env is the child's environment, "name=value". Values of at least 8 bytes
	// whose name is in EnvNames or one of the default names are remembered.
	Env []string
	// EnvNames are names or path.Match patterns, beside DefaultEnvNames.
	EnvNames []string
	// Patterns are regular expressions (RE2); what they match is masked. They
	// run over every frame: about 20 ns a byte each.
	Patterns []string
	// CaptureStdin says that prompts are published anyway: no prompt and no echo
	// is masked then.
	CaptureStdin bool
}

// A Redactor masks the frames of one run. It is safe for concurrent use.
type Redactor struct {
	key      []byte
	patterns []*regexp.Regexp
	capture  bool

	mu      sync.Mutex // guards the fields below
	match   matcher
	known   map[string]bool // remembered values
	longest int             // bytes of the longest literal remembered
	pieces  map[event.Stream]*piece
	pem     map[event.Stream]int // lines that a key on plain text may still have
	stdin   echoes
	counts  map[string]uint64
	spans   []span // of the frame in hand
}

// A piece is the state of a line that comes in several pieces.
type piece struct {
	held []byte
	all  bool // mask everything until the line ends
}

// A Result is what may be published for a frame or piece.
type Result struct {
	Data    []byte       // the input itself when nothing was masked
	Spans   []event.Span // in order
	RawLen  int          // bytes before masking; 0 when nothing was masked
	RawHash string       // keyed hash of the bytes before masking, "" likewise
}

// Changed reports whether something was masked.
func (r Result) Changed() bool { return len(r.Spans) > 0 }

// New makes the Redactor of one run. The error names a pattern that is none.
func New(c Config) (*Redactor, error) {
	r := &Redactor{
		key: c.Key, capture: c.CaptureStdin,
		known: map[string]bool{}, pieces: map[event.Stream]*piece{}, pem: map[event.Stream]int{}, counts: map[string]uint64{},
	}
	for _, p := range c.Patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("redact pattern: %w", err)
		}
		r.patterns = append(r.patterns, re)
	}
	for i, a := range anchors {
		r.match.add(a.text, target{anchor: i})
	}
	if err := r.rememberEnv(c.Env, c.EnvNames); err != nil {
		return nil, err
	}
	return r, nil
}

// Frame masks one frame, given without the LF that ends it. The result may share
// memory with data.
//
// A line too long to be a frame comes in pieces, more set on all but the last.
// A secret may lie across the border, so the end of a piece (the longest
// remembered value less one byte, at least 4 KiB, at most 64 KiB when a secret
// begins there) waits and is published with the next piece: the concatenation
// of all results is the masked line. Data may then be empty: publish nothing.
// When the last piece never comes, call Flush.
func (r *Redactor) Frame(stream event.Stream, data []byte, more bool) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pieces[stream]
	if p == nil && !more {
		return r.frame(stream, data, len(data))
	}
	if p == nil {
		p = &piece{}
		r.pieces[stream] = p
		p.all = controlFrame(stream, data)
	}
	data = append(p.held, data...)
	p.held = nil
	if p.all {
		if !more {
			delete(r.pieces, stream)
		}
		r.spans = append(r.spans[:0], span{0, len(data), "frame", true})
		return r.apply(data)
	}
	if !more {
		delete(r.pieces, stream)
		return r.frame(stream, data, len(data))
	}
	limit := max(0, len(data)-max(holdBack, r.longest-1))
	res := r.frame(stream, data, limit)
	raw := len(res.Data)
	if res.Changed() {
		raw = res.RawLen
	}
	p.held = append([]byte(nil), data[raw:]...)
	return res
}

// Flush returns what waits of a line whose last piece will not come.
func (r *Redactor) Flush(stream event.Stream) (Result, bool) {
	r.mu.Lock()
	p := r.pieces[stream]
	r.mu.Unlock()
	if p == nil {
		return Result{}, false
	}
	res := r.Frame(stream, nil, false)
	return res, len(res.Data) > 0
}

// frame masks data up to limit, or somewhat less or more where a secret lies
// across it; len(data) is all of it.
func (r *Redactor) frame(stream event.Stream, data []byte, limit int) Result {
	if res, in := r.pemLine(stream, data); in {
		return res
	}
	r.spans = r.spans[:0]
	found := r.scan(stream, data)
	if found.control || rpcFrame(stream, data) {
		r.structure(stream, data)
	}
	if !r.capture {
		if found.echo {
			r.parseEcho(data)
		}
		if stream == event.Err {
			r.spans = r.stdin.find(data, r.spans)
		}
	}
	for _, re := range r.patterns {
		for _, m := range re.FindAllIndex(data, -1) {
			r.spans = append(r.spans, span{m[0], m[1], "pattern", false})
		}
	}
	if len(r.spans) == 0 {
		return Result{Data: data[:limit:limit]}
	}
	r.merge(data)
	r.pemBegins(stream, data)
	if limit < len(data) {
		limit = r.cut(limit, len(data))
	}
	return r.apply(data[:limit:limit])
}

// cut moves limit out of a span and forgets the spans behind it.
func (r *Redactor) cut(limit, size int) int {
	for i, s := range r.spans {
		if s.end <= limit {
			continue
		}
		switch {
		case s.start >= limit:
		case size-s.start <= maxHold:
			limit = s.start
		default:
			limit, i = s.end, i+1
		}
		r.spans = r.spans[:i]
		break
	}
	return limit
}

// Hash is the keyed hash of b, as in Result.RawHash: the first 16 bytes of
// HMAC-SHA256, in hex. Equal bytes are recognised on one host, and nobody
// without its key can try out what they were.
func (r *Redactor) Hash(b []byte) string {
	h := hmac.New(sha256.New, r.key)
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Counts is how many masks each rule has set so far.
func (r *Redactor) Counts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
