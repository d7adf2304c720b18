// Command gosse follows runs with github.com/tmaxmax/go-sse.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/cbcast/cbcast/test/sse/clients/go/say"
)

// retryable makes an error of what a relay or a proxy says while it is not ready:
// go-sse tries again after errors only.
type retryable struct{}

func (retryable) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := http.DefaultTransport.RoundTrip(q)
	if err == nil && (r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests) {
		_ = r.Body.Close()
		return nil, fmt.Errorf("status %d", r.StatusCode)
	}
	return r, err
}

var errEnded = errors.New("the run has ended")

func follow(ctx context.Context, address, token string, tell func(sse.Event)) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	c := sse.Client{
		HTTPClient: &http.Client{Transport: retryable{}},
		ResponseValidator: func(r *http.Response) error {
			if r.StatusCode == http.StatusNoContent {
				return errEnded
			}
			return sse.DefaultValidator(r)
		},
		Backoff: sse.Backoff{MaxInterval: 10 * time.Second},
	}
	conn := c.NewConnection(q)
	conn.Buffer(nil, 256<<20) // 64 KiB by default; an agent writes longer lines
	conn.SubscribeToAll(func(e sse.Event) {
		if e.Data != "" { // else it was the retry field
			tell(e)
		}
	})
	if err := conn.Connect(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func main() {
	say.Each(func(address string, tell func(id, name, data string)) error {
		return follow(context.Background(), address, say.Token(), func(e sse.Event) { tell(e.LastEventID, e.Type, e.Data) })
	})
}
