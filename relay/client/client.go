package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Client speaks to one relay, or to several behind one address. Its methods are
// safe for concurrent use.
type Client struct {
	URL   string // of the relay, "http://127.0.0.1:8420"
	Token string // "" where none is needed

	// HTTP makes the requests; nil is [http.DefaultClient]. A client with a Timeout
	// cuts streams, which then go on where they were.
	HTTP *http.Client

	// OnBehalfOf is for whom commands and answers are given, where the token has the
	// scope delegate: the audit names both.
	OnBehalfOf string

	// Idle is how long a stream may be silent before it is connected anew; 0 is 45 s.
	// A relay sends a comment at least every 15 s.
	Idle time.Duration
}

// An Error is the relay's answer to a request that it refused. docs/api.md lists the
// codes.
type Error struct {
	Status    int             `json:"-"` // of HTTP
	Code      string          `json:"code"`
	Message   string          `json:"message"`
	Retryable bool            `json:"retryable"` // the same request may succeed later
	Details   json.RawMessage `json:"details"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("relay: %s (%d %s)", cmp.Or(e.Message, http.StatusText(e.Status)), e.Status, cmp.Or(e.Code, "no code"))
}

const (
	// maxAnswer bounds an answer that is no stream. A state is some 100 KiB; a page
	// of events has 8 MiB.
	maxAnswer = 64 << 20

	// maxEvent bounds one event of a stream. Agents write lines of some 10 MiB.
	maxEvent = 256 << 20
)

// request builds a request to path, which is escaped already.
func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var data io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("body of %s %s: %w", method, path, err)
		}
		data = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, data)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.OnBehalfOf != "" && method != http.MethodGet {
		q.Header.Set("Cbcast-On-Behalf-Of", c.OnBehalfOf)
	}
	if c.Token != "" {
		q.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return q, nil
}

func (c *Client) http() *http.Client { return cmp.Or(c.HTTP, http.DefaultClient) }

// call sends one request and reads the answer into v. A refusal is an [*Error].
func (c *Client) call(ctx context.Context, method, path string, body, v any) error {
	q, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	r, err := c.http().Do(q)
	if err != nil {
		return err // names method and address
	}
	defer r.Body.Close()
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("the answer to %s %s is over %d bytes", method, path, maxAnswer)
	case r.StatusCode >= 300:
		return refusal(r.StatusCode, data)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("the answer to %s %s is no JSON of a relay: %w", method, path, err)
	}
	return nil
}

// refusal reads an error body. What stands between may have sent another.
func refusal(status int, data []byte) *Error {
	e := &Error{}
	if json.Unmarshal(data, e) != nil {
		*e = Error{Retryable: status >= 500 || status == http.StatusTooManyRequests}
	}
	e.Status = status
	return e
}

// asError returns the relay's refusal in err, nil where there is none.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Asks returns GET /v1/runs/{run}/asks: what the agent asks and asked.
func (c *Client) Asks(ctx context.Context, run string) (json.RawMessage, error) {
	var doc json.RawMessage
	err := c.call(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(run)+"/asks", nil, &doc)
	return doc, err
}

// State returns GET /v1/runs/{run}: what the list says of the run (info), and its
// state folded from the events.
func (c *Client) State(ctx context.Context, run string) (json.RawMessage, error) {
	var doc json.RawMessage
	err := c.call(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(run), nil, &doc)
	return doc, err
}
