package relay

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cbcast/cbcast/internal/bus"
)

// A Code says what is wrong with a request. The set is closed.
type Code string

// The codes, with their HTTP status.
const (
	CodeBadRequest   Code = "bad_request"        // 400: a parameter or the body cannot be read
	CodeBadCursor    Code = "bad_cursor"         // 400: Last-Event-ID, after or after_seq is no seq
	CodeUnauthorized Code = "unauthorized"       // 401: the token is missing or wrong
	CodeForbidden    Code = "forbidden"          // 403: the token has not this scope
	CodeBadToken     Code = "bad_resume_token"   // 403: the resumeToken is none that this run gave
	CodeBadHost      Code = "bad_host"           // 403: the Host header names another host
	CodeBadOrigin    Code = "bad_origin"         // 403: a page of another origin asked
	CodeNotFound     Code = "not_found"          // 404: no such run, command or path
	CodeBadMethod    Code = "method_not_allowed" // 405
	CodeEnded        Code = "already_ended"      // 409: the run has ended; nothing was written to the child
	CodeReused       Code = "id_reused"          // 409: the command id was used for another command
	CodeAnswered     Code = "already_answered"   // 409: another answer to this ask was first
	CodeUnanswerable Code = "not_answerable"     // 409: only the agent's own host can answer this ask
	CodeAskClosed    Code = "ask_closed"         // 410: the ask is open no more
	CodeTooLarge     Code = "too_large"          // 413: the body is over 1 MiB, or a message on the bus cannot carry it
	CodeTooOften     Code = "too_many_requests"  // 429: a token or an address has too many requests open
	CodeNoStreaming  Code = "no_streaming"       // 500: something in between cannot flush
	CodeUnmappable   Code = "not_mappable"       // 500: an event has more to say than the workflow protocol can number
	CodeInternal     Code = "internal"           // 500
	CodeUnavailable  Code = "unavailable"        // 503: the bus is away, or the relay starts or ends
	CodeTooMany      Code = "too_many_streams"   // 503
)

var statusOf = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeBadCursor: http.StatusBadRequest, CodeUnauthorized: http.StatusUnauthorized,
	CodeForbidden: http.StatusForbidden, CodeBadToken: http.StatusForbidden, CodeBadHost: http.StatusForbidden, CodeBadOrigin: http.StatusForbidden,
	CodeNotFound: http.StatusNotFound, CodeUnmappable: http.StatusInternalServerError,
	CodeBadMethod: http.StatusMethodNotAllowed, CodeEnded: http.StatusConflict, CodeReused: http.StatusConflict,
	CodeAnswered: http.StatusConflict, CodeUnanswerable: http.StatusConflict, CodeAskClosed: http.StatusGone,
	CodeTooLarge: http.StatusRequestEntityTooLarge, CodeNoStreaming: http.StatusInternalServerError,
	CodeInternal: http.StatusInternalServerError, CodeUnavailable: http.StatusServiceUnavailable,
	CodeTooOften: http.StatusTooManyRequests, CodeTooMany: http.StatusServiceUnavailable,
}

// An ErrorBody is the JSON of every error answer.
type ErrorBody struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // for people
	// Retryable says that the same request may succeed later.
	Retryable bool           `json:"retryable"`
	NodeID    *string        `json:"nodeId"` // the task concerned, null without one
	Details   map[string]any `json:"details"`
}

// apiErr is an error on its way to the client.
type apiErr struct {
	code    Code
	message string
	details map[string]any
}

func fail(code Code, message string) *apiErr { return &apiErr{code: code, message: message} }

func (e *apiErr) Error() string { return e.message }

// CodeOf returns what an error of a [Giver] says about the request, "" for an error
// of the bus.
func CodeOf(err error) Code {
	var aerr *apiErr
	if errors.As(err, &aerr) {
		return aerr.code
	}
	return ""
}

// DetailsOf returns the details of an error of a [Giver].
func DetailsOf(err error) map[string]any {
	var aerr *apiErr
	if errors.As(err, &aerr) {
		return aerr.details
	}
	return nil
}

func (e *apiErr) with(key string, v any) *apiErr {
	if e.details == nil {
		e.details = map[string]any{}
	}
	e.details[key] = v
	return e
}

// notFound is the one answer for every run or command that is not there.
func notFound() *apiErr { return fail(CodeNotFound, "there is no such thing here") }

// busErr turns an error of the bus into an answer. What it says inside stays inside.
func (r *Relay) busErr(err error) *apiErr {
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return notFound()
	case errors.Is(err, errArchive):
		r.log.Warn("archive not read", "error", err)
		return fail(CodeUnavailable, "the archive cannot be read, and the bus has it not; try again")
	case errors.Is(err, bus.ErrUnavailable), errors.Is(err, bus.ErrClosed), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled), errors.Is(err, bus.ErrConflict):
		r.log.Debug("request failed for now", "error", err)
		return fail(CodeUnavailable, "the bus does not answer; try again")
	}
	r.log.Error("request failed", "error", err)
	return fail(CodeInternal, "something went wrong; the relay's log has it")
}

func retryable(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
}

func (e *apiErr) write(w http.ResponseWriter) {
	status := statusOf[e.code]
	body := ErrorBody{Code: e.code, Message: e.message, Retryable: retryable(status), Details: e.details}
	if body.Details == nil {
		body.Details = map[string]any{}
	}
	if body.Retryable {
		w.Header().Set("Retry-After", "1")
	}
	if e.code == CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cbcast"`)
	}
	writeJSON(w, status, body)
}

// writeJSON answers with v. The status line is out before v can fail, so v is
// something that marshals.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	writeBody(w, status, append(b, '\n'))
}

func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
