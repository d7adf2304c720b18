// Command launchdarkly follows runs with github.com/launchdarkly/eventsource.
package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/launchdarkly/eventsource"

	"github.com/cbcast/cbcast/test/sse/clients/go/say"
)

func follow(ctx context.Context, address, token string, tell func(eventsource.Event)) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	var end error // set before Events is closed
	stream, err := eventsource.SubscribeWithRequestAndOptions(q,
		eventsource.StreamOptionUseBackoff(10*time.Second), eventsource.StreamOptionUseJitter(0.5),
		eventsource.StreamOptionCanRetryFirstConnection(-1), // for ever
		eventsource.StreamOptionReadTimeout(45*time.Second), // a relay sends a comment every 15 s
		eventsource.StreamOptionErrorHandler(func(err error) eventsource.StreamErrorHandlerResult {
			var refused eventsource.SubscriptionError
			if !errors.As(err, &refused) || refused.Code >= 500 || refused.Code == http.StatusTooManyRequests {
				return eventsource.StreamErrorHandlerResult{} // it comes back
			}
			if refused.Code != http.StatusNoContent { // which says that the run has ended
				end = err
			}
			return eventsource.StreamErrorHandlerResult{CloseNow: true}
		}))
	if err != nil {
		return end
	}
	for e := range stream.Events {
		if e.Data() != "" { // else it was the retry field
			tell(e)
		}
	}
	return end
}

func main() {
	say.Each(func(address string, tell func(id, name, data string)) error {
		return follow(context.Background(), address, say.Token(), func(e eventsource.Event) { tell(e.Id(), e.Event(), e.Data()) })
	})
}
