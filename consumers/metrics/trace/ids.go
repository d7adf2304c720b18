package trace

import (
	"crypto/sha256"

	"github.com/cbcast/cbcast/internal/run"
)

// What names a run's trace; metrics name the same in their exemplars.
type (
	// A TraceID names a trace.
	TraceID = run.TraceID
	// A SpanID names a span of a trace.
	SpanID = run.SpanID
	// A Context is where a run's spans belong.
	Context = run.TraceContext
)

// sampled is the flag of a trace that is recorded.
const sampled = 1

// ContextOf is [run.TraceContextOf].
func ContextOf(runID, traceParent string) Context { return run.TraceContextOf(runID, traceParent) }

// SpanOf is the id of a run's span; path says which one: "run", "turn/1" ….
func SpanOf(runID, path string) (id SpanID) {
	sum := sha256.Sum256([]byte("cbcast span\x00" + runID + "\x00" + path))
	copy(id[:], sum[:])
	if id.IsZero() {
		id[7] = 1
	}
	return id
}
