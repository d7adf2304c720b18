package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds what is read of an answer; the rest is left there.
	maxAnswer = 64 << 10

	// maxQuoted bounds what an error quotes of one, in characters.
	maxQuoted = 160

	// maxAfter bounds how long a destination can ask to be left alone.
	maxAfter = time.Hour
)

// A trace tells how far a request has come.
type trace struct{ connected atomic.Bool }

// with follows a request made with the context. Before a connection is there, with
// its TLS, nothing of the request has left.
func (t *trace) with(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) }})
}

// failed is the outcome of a request without an answer. The text of err is not used:
// it has addresses in it.
func (t *trace) failed(err error) Outcome {
	v, why := Retry, reason(err)
	switch {
	case t.connected.Load():
		v, why = Unknown, why+" after the request was sent"
	case errors.Is(err, ErrBlocked):
		return Outcome{Verdict: Refused, Err: errors.New(why)}
	}
	return Outcome{Verdict: v, Err: errors.New(why)}
}

// reason says in words of ours why a connection failed. Errors of net, of TLS and of
// net/http name addresses, which may be secrets.
func reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var record tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, ErrBlocked):
		return blockedReason(err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the host's name is not known"
	case errors.As(err, &dns):
		return "the host's name could not be looked up"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "the host cannot be reached"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "TLS: the certificate is signed by nobody who is trusted"
	case errors.As(err, new(x509.HostnameError)):
		return "TLS: the certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "TLS: the certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "TLS: the certificate is not valid"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // of net/http, without a type
		return "TLS: the other side does not speak it"
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // of crypto/tls, an alert
		return "TLS: no common ground with the other side"
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	return unnamed
}

// unnamed is the reason of what reason does not know.
const unnamed = "the connection failed"

// blockedReason is the text of a guard's error, which holds no address.
func blockedReason(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if inner := errors.Unwrap(e); inner == ErrBlocked { //nolint:errorlint // the one that wraps it has the text
			return e.Error()
		}
	}
	return ErrBlocked.Error()
}

// An answer is what a destination said.
type answer struct {
	status int
	header http.Header
	body   []byte // at most maxAnswer
}

// do makes a request. err is nil where there is an answer.
func do(client *http.Client, q *http.Request) (*answer, Outcome) {
	var t trace
	r, err := client.Do(q.WithContext(t.with(q.Context())))
	if err != nil {
		return nil, t.failed(err)
	}
	defer r.Body.Close()
	// What came before an error is enough: the status says what happened.
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	return &answer{r.StatusCode, r.Header, body}, Outcome{}
}

// outcome reads a status as the rules of webhooks say. quiet hides what must not be
// quoted of the body.
func (a *answer) outcome(now time.Time, quiet *Hidden) Outcome {
	o := Outcome{Err: fmt.Errorf("answered %d%s", a.status, a.quote(quiet))}
	switch s := a.status; {
	case s >= 200 && s < 300:
		return Outcome{Verdict: Delivered}
	case s >= 300 && s < 400:
		o.Verdict, o.Err = Refused, fmt.Errorf("answered %d, a redirect%s; it is not followed", s, a.elsewhere(quiet))
	case s == http.StatusGone:
		o.Verdict = Gone
	case s == http.StatusTooManyRequests, s == http.StatusBadGateway, s == http.StatusServiceUnavailable, s == http.StatusGatewayTimeout:
		o.Verdict, o.Throttled, o.After = Retry, true, retryAfter(a.header, now)
	case s >= 500, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		o.Verdict, o.After = Retry, retryAfter(a.header, now)
	default:
		o.Verdict = Refused
	}
	return o
}

// elsewhere names the host of a redirect, and nothing else of it.
func (a *answer) elsewhere(quiet *Hidden) string {
	u, err := url.Parse(a.header.Get("Location"))
	switch {
	case err != nil || a.header.Get("Location") == "":
		return ""
	case u.Host == "":
		return " within the host"
	}
	return " to the host " + short(quiet.Clean(u.Host), 100)
}

// quote is the beginning of the body, where that is text.
func (a *answer) quote(quiet *Hidden) string {
	text := short(quiet.Clean(string(a.body)), maxQuoted)
	if text == "" || strings.HasPrefix(strings.TrimSpace(text), "<") {
		return "" // a page for people
	}
	return fmt.Sprintf(": %q", text)
}

// retryAfter reads a Retry-After: seconds, or a date. 0 is none that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		if n != n || n < 0 { // not a number
			return 0
		}
		return time.Duration(min(n, maxAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), maxAfter))
}
