package run

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// A TraceID names a trace.
type TraceID [16]byte

// A SpanID names a span of a trace.
type SpanID [8]byte

func (t TraceID) String() string { return hex.EncodeToString(t[:]) }
func (s SpanID) String() string  { return hex.EncodeToString(s[:]) }

// IsZero reports whether s names no span.
func (s SpanID) IsZero() bool { return s == SpanID{} }

// A TraceContext is where a run's spans belong.
type TraceContext struct {
	Trace  TraceID
	Parent SpanID // of the CI's own span; zero where nobody named one
	Flags  byte   // of the W3C trace parent; 1 is sampled
}

// sampled is the flag of a trace that is recorded.
const sampled = 1

// TraceContextOf is the context of a run. It is that of the CI job's span where
// traceParent, the ce-traceparent of the run's first event, names one; else the trace
// id follows from the run's id alone.
func TraceContextOf(run, traceParent string) TraceContext {
	if c, ok := ParseTraceParent(traceParent); ok {
		return c
	}
	sum := sha256.Sum256([]byte("cbcast trace\x00" + run))
	c := TraceContext{Flags: sampled}
	copy(c.Trace[:], sum[:])
	return c
}

// ParseTraceParent reads a trace parent of W3C Trace Context.
func ParseTraceParent(v string) (c TraceContext, ok bool) {
	if len(v) < 55 || v[:2] == "ff" || v[2] != '-' || v[35] != '-' || v[52] != '-' || v != strings.ToLower(v) {
		return c, false
	}
	if len(v) > 55 && (v[:2] == "00" || v[55] != '-') {
		return c, false
	}
	var flags, version [1]byte
	for _, part := range []struct {
		into []byte
		text string
	}{{version[:], v[:2]}, {c.Trace[:], v[3:35]}, {c.Parent[:], v[36:52]}, {flags[:], v[53:55]}} {
		if _, err := hex.Decode(part.into, []byte(part.text)); err != nil {
			return TraceContext{}, false
		}
	}
	c.Flags = flags[0]
	if c.Trace == (TraceID{}) || c.Parent.IsZero() {
		return TraceContext{}, false
	}
	return c, true
}
