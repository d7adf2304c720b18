package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

var (
	// ErrNotFound is returned when the bus answered and has no such event,
	// command, fact, run or key.
	ErrNotFound = errors.New("not found")

	// ErrUnavailable is returned when the bus could not be asked, or could not
	// answer for now: no connection, no JetStream, no leader, a stream that is
	// missing or full. The same call may succeed later.
	ErrUnavailable = errors.New("bus unavailable")

	// ErrConflict is returned when a fence refused a write: somebody else wrote
	// first. The caller reads again and decides.
	ErrConflict = errors.New("written by another")

	// ErrEpoch is returned when a stream is not the one that was read before:
	// it was made again, or lost its end. Stream sequences from before mean
	// nothing now; the caller starts from its cursors within the runs.
	ErrEpoch = errors.New("stream began anew")

	// ErrRunUsed is returned by a [Publisher] that finds events of another program
	// under the id of its run.
	ErrRunUsed = errors.New("another program published under this run id")

	// ErrForeign is returned for a message that nobody wrote who may: one that the
	// server was made to write, or another program's.
	ErrForeign = errors.New("not written by cbcast")

	// ErrClosed is returned after [Bus.Close].
	ErrClosed = errors.New("bus closed")

	// ErrOneByOne is what [Publisher.Notice] hears when events go out one at a
	// time, each waiting for its acknowledgement, because the server or the stream
	// does not take batches.
	ErrOneByOne = errors.New("publishing one event at a time")

	// ErrDone is returned by [Source.Wait] when the source has ended and the
	// event waited for will never exist.
	ErrDone = errors.New("no more events")
)

// Error codes of the JetStream API (server/errors.json), as far as they decide
// what happens next.
const (
	codeNoMessage      = 10037 // no message found
	codeNoStream       = 10059 // stream not found
	codeNotEnabled     = 10076 // JetStream not enabled
	codeNotEnabledAcc  = 10039 // JetStream not enabled for account
	codeWrongLast      = 10071 // wrong last sequence
	codeWrongLastConst = 10164 // wrong last sequence, a check is in flight
	codeDupConflict    = 10158 // duplicate of a message still in flight
	codeTooManyBatches = 10211 // batch publish too many inflight
	codeBatchDisabled  = 10205 // batch publish not enabled on stream
	codeBatchUnknown   = 10208 // batch publish ID unknown
	codeTooBig         = 10054 // message size exceeds maximum allowed
	codeHeaderTooBig   = 10097 // header size exceeds maximum allowed of 64k
)

// An apiError is the JetStream API's own word for what went wrong.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d/%d)", e.Description, e.Code, e.ErrCode)
}

// Is sorts API errors into the sentinels of this package.
func (e *apiError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.ErrCode == codeNoMessage || e.Code == 404 && e.ErrCode != codeNoStream
	case ErrNoLog:
		return e.ErrCode == codeNoStream
	case ErrUnavailable:
		return e.ErrCode == codeNoStream || e.Code >= 500 || e.Code == 429
	case ErrConflict:
		return e.ErrCode == codeWrongLast || e.ErrCode == codeWrongLastConst
	}
	return false
}

// asErr gives an error of nats.go its place among the sentinels, keeping the
// caller's own end apart: a context that ended stays what it is.
func asErr(ctx context.Context, err error) error {
	var api *apiError
	switch {
	case err == nil, errors.As(err, &api), errors.Is(err, ErrUnavailable), errors.Is(err, ErrNotFound):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: nobody answers (JetStream off, or stream missing)", ErrUnavailable)
	default:
		return fmt.Errorf("%w: %s", ErrUnavailable, strings.TrimPrefix(err.Error(), "nats: "))
	}
}
