package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
)

// Waits between the tries of one request.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// An opError says what failed at which object. Its text has no secret; what it
// wraps is only asked for its kind.
type opError struct {
	text string
	kind error // fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, a context's, or nil
}

func (e *opError) Error() string { return e.text }
func (e *opError) Unwrap() error { return e.kind }

// Codes of answers.
const (
	codePrecondition = "PreconditionFailed"
	codeConflict     = "ConditionalRequestConflict" // two at once; either may win
)

// wrap makes an error of this package of one of the library's.
func (s *Store) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var mine *opError
	if errors.As(err, &mine) {
		return err
	}
	e := &opError{text: fmt.Sprintf("s3: %s %s: ", op, s.key(name))}
	r := response(err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.kind = context.DeadlineExceeded
		if errors.Is(err, context.Canceled) {
			e.kind = context.Canceled
		}
		e.text += e.kind.Error()
		return e
	case r.Code == "" && r.StatusCode == 0:
		e.text += s.keys.clean(network(err))
		return e
	case r.Code == "NoSuchKey", r.StatusCode == http.StatusNotFound && r.Code != "NoSuchBucket" && r.Code != "NoSuchUpload":
		e.kind = fs.ErrNotExist
	case r.Code == codePrecondition, r.StatusCode == http.StatusPreconditionFailed:
		e.kind = fs.ErrExist
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		e.kind = fs.ErrPermission
	}
	e.text += s.keys.clean(fmt.Sprintf("%s: %s (status %d)", r.Code, r.Message, r.StatusCode))
	return e
}

// response is the server's word, zero where it is not one.
func response(err error) minio.ErrorResponse {
	var r minio.ErrorResponse
	_ = errors.As(err, &r)
	return r
}

// network is the cause of a failure on the way, without the request's address,
// which may carry more than it should.
func network(err error) string {
	var u *url.Error
	if errors.As(err, &u) && u.Err != nil {
		err = u.Err
	}
	return err.Error()
}

// passing reports whether err may not come again.
func passing(err error) bool {
	if r := response(err); r.Code != "" || r.StatusCode != 0 {
		switch r.Code {
		case codeConflict, "OperationAborted", "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling":
			return true
		}
		return r.StatusCode >= 500 && r.StatusCode != http.StatusNotImplemented || r.StatusCode == http.StatusTooManyRequests
	}
	var n net.Error
	var u *url.Error
	return errors.As(err, &n) || errors.As(err, &u) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// try makes a request until it succeeds, fails for good, or was made often enough.
// fn is told how many tries there were before.
func (s *Store) try(ctx context.Context, fn func(ctx context.Context, n int) error) error {
	for n, wait := 0, firstWait; ; n++ {
		err := s.once(ctx, n, fn)
		if err == nil || ctx.Err() != nil || n+1 >= s.cfg.Tries {
			return err
		}
		if !passing(err) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		wait = min(2*wait, lastWait)
	}
}

func (s *Store) once(ctx context.Context, n int, fn func(context.Context, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return fn(ctx, n)
}
