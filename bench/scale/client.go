package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A client asks the relay and takes the time.
type client struct {
	url     string
	http    http.Client
	nothing []float64 // lists without a run
}

func newClient(url string) *client { return &client{url: url} }

func (c *client) get(ctx context.Context, path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, "GET", c.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(q)
	if err == nil && res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		err = fmt.Errorf("%s: status %d", path, res.StatusCode)
	}
	return res, err
}

func millis(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// lists gets pages of the list, and pages on which there is nothing.
func (c *client) lists(ctx context.Context, n int) (all []float64, err error) {
	for i := range 2 * n {
		path := "/v1/runs"
		if i%2 == 1 {
			path = "/v1/runs?state=waiting"
		}
		begin := time.Now()
		res, err := c.get(ctx, path)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, err
		}
		if i%2 == 1 {
			c.nothing = append(c.nothing, millis(begin))
		} else {
			all = append(all, millis(begin))
		}
	}
	return all, nil
}

// replay reads a run's stream to its end.
func (c *client) replay(ctx context.Context, run string, want int, t *times) error {
	begin := time.Now()
	res, err := c.get(ctx, "/v1/runs/"+run+"/stream")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var first, all float64
	n, sc := 0, bufio.NewScanner(res.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if bytes.HasPrefix(sc.Bytes(), []byte("data: ")) {
			if n++; n == 1 {
				first = millis(begin)
			}
			if n == want {
				all = millis(begin)
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d events, want %d: %w", n, want, sc.Err())
	}
	t.first, t.all = append(t.first, first), append(t.all, all)
	return nil
}
