package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A follower is a client of a run's stream, or of that of all runs, which goes to
// the next relay when it loses the one it has.
type follower struct {
	urls []string
	path string
	runs map[string]uint64 // what must be told, and the number of its last event
	http *http.Client

	cursor string
	next   map[string]uint64 // number of the event that must come next
	left   int               // runs whose end was not told
	took   atomic.Int64      // events
	moves  int               // times that it went to another relay in the middle
}

func newFollower(c *http.Client, path string, runs map[string]uint64, urls ...string) *follower {
	f := &follower{urls: urls, path: path, runs: runs, http: c, next: map[string]uint64{}, left: len(runs)}
	for run := range runs {
		f.next[run] = 1
	}
	return f
}

// errExact ends a follower that was told something out of place.
var errExact = errors.New("not exact")

// follow reads until everything was told. The error says what was out of place.
func (f *follower) follow(ctx context.Context) error {
	for at := 0; ; at++ {
		err := f.read(ctx, f.urls[at%len(f.urls)])
		switch {
		case f.left == 0:
			return nil
		case errors.Is(err, errExact):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %d runs not told to their end, next %v: %w", f.path, f.left, f.next, err)
		}
		if f.took.Load() > 0 {
			f.moves++
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// read reads one stream to its end.
func (f *follower) read(ctx context.Context, url string) error {
	q, err := http.NewRequestWithContext(ctx, "GET", url+f.path, nil)
	if err != nil {
		return err
	}
	if f.cursor != "" {
		q.Header.Set("Last-Event-ID", f.cursor)
	}
	res, err := f.http.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	sc := bufio.NewScanner(res.Body)
	var id, name, data string
	for f.left > 0 && sc.Scan() {
		field, value, _ := strings.Cut(sc.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if id != "" {
				f.cursor = id
			}
			if data != "" {
				if err := f.take(name, data); err != nil {
					return err
				}
			}
			id, name, data = "", "", ""
		}
	}
	return errors.Join(errors.New("the stream ended"), sc.Err())
}

// take checks an event.
func (f *follower) take(name, text string) error {
	switch name {
	case "ready":
		return nil
	case "gap", "reset", "lost", "run":
		return fmt.Errorf("%w: %s: %s %s", errExact, f.path, name, text)
	}
	var e struct {
		ID   string
		Data json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fmt.Errorf("%w: %s: %.200q: %w", errExact, f.path, text, err)
	}
	run, number, _ := strings.Cut(e.ID, "/")
	want := f.next[run]
	if number != fmt.Sprint(want) || string(e.Data) != data(run, want) {
		return fmt.Errorf("%w: %s: event %s of %s where %d must come, or its data %s", errExact, f.path, number, run, want, e.Data)
	}
	f.next[run]++
	f.took.Add(1)
	if want == f.runs[run] {
		f.left--
	}
	return nil
}
