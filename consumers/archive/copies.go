package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// A copier sends every head to a second place, in order, at least once. What is to
// be sent lies in a directory until the place has it, so neither a crash of this
// process nor the place's absence loses one.
type copier struct {
	to  headPlace
	dir string
	max int // heads that may wait
	log *slog.Logger

	wake chan struct{}

	mu       sync.Mutex
	next     uint64   // number of the next file
	waiting  []uint64 // numbers of the files, in order
	sent     uint64
	failures uint64
	lastErr  error
	since    time.Time // when the oldest failure without a success behind it was
}

// A headPlace keeps copies of heads.
type headPlace interface {
	// put keeps one head, durably. The same one may come again.
	put(ctx context.Context, head []byte) error
	// String is the place's address, without secrets.
	String() string
}

// errCopiesBehind is why nothing is sealed any more.
var errCopiesBehind = errors.New("too many heads wait for their second destination")

// Waits between tries to send a head.
const (
	firstCopyWait = time.Second
	lastCopyWait  = time.Minute
	copyTimeout   = 30 * time.Second
)

const copySuffix = ".head"

func newCopier(to headPlace, dir string, limit int, log *slog.Logger) *copier {
	return &copier{to: to, dir: dir, max: limit, log: log, wake: make(chan struct{}, 1)}
}

// open looks for what an earlier process could not send.
func (c *copier) open() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("heads to copy: %w", err)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("heads to copy: %w", err)
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), copySuffix)
		if n, err := strconv.ParseUint(base, 10, 64); ok && err == nil {
			c.waiting = append(c.waiting, n)
		} else if strings.Contains(e.Name(), copySuffix+".tmp") {
			os.Remove(filepath.Join(c.dir, e.Name())) // of a write that was not finished
		}
	}
	slices.Sort(c.waiting)
	if n := len(c.waiting); n > 0 {
		c.next = c.waiting[n-1] + 1
	}
	return nil
}

func (c *copier) path(n uint64) string {
	return filepath.Join(c.dir, fmt.Sprintf("%020d%s", n, copySuffix))
}

// room is an error where no further head may wait: sealing stops then, or a place
// that never comes back would let the directory grow without end.
func (c *copier) room() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) < c.max {
		return nil
	}
	if c.lastErr != nil {
		return fmt.Errorf("%w: %d for %s: %w", errCopiesBehind, len(c.waiting), c.to, c.lastErr)
	}
	return fmt.Errorf("%w: %d for %s", errCopiesBehind, len(c.waiting), c.to)
}

// add keeps a head until it is copied. After it returns nil, the head is sent even
// if the process ends now.
func (c *copier) add(head []byte) error {
	c.mu.Lock()
	n := c.next
	c.next++
	c.mu.Unlock()
	if err := durable.WriteFile(c.path(n), head, 0o600); err != nil {
		return fmt.Errorf("head to copy: %w", err)
	}
	c.mu.Lock()
	i, _ := slices.BinarySearch(c.waiting, n)
	c.waiting = slices.Insert(c.waiting, i, n)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// run sends until ctx ends.
func (c *copier) run(ctx context.Context) {
	wait := firstCopyWait
	for {
		n, ok := c.first()
		if !ok {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := c.send(ctx, n)
		if ctx.Err() != nil {
			return
		}
		if c.note(err) {
			wait = firstCopyWait
			continue
		}
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		wait = min(2*wait, lastCopyWait)
	}
}

func (c *copier) first() (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return 0, false
	}
	return c.waiting[0], true
}

func (c *copier) send(ctx context.Context, n uint64) error {
	head, err := os.ReadFile(c.path(n))
	if err != nil {
		return fmt.Errorf("head to copy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	if err := c.to.put(ctx, head); err != nil {
		return err
	}
	if err := durable.Remove(c.path(n)); err != nil {
		return fmt.Errorf("head that was copied: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w uint64) bool { return w == n })
	return nil
}

// note counts what became of a try, and says it in the log when that changes.
func (c *copier) note(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.lastErr != nil {
			c.log.Info("heads are copied again", "to", c.to.String(), "after", time.Since(c.since).Round(time.Second))
		}
		c.sent++
		c.lastErr = nil
		return true
	}
	c.failures++
	if c.lastErr == nil {
		c.since = time.Now()
		c.log.Warn("head not copied, it is tried again", "to", c.to.String(), "error", err)
	}
	c.lastErr = err
	return false
}

// drain waits a little until everything is sent.
func (c *copier) drain(ctx context.Context) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWait)
	defer cancel()
	t := time.NewTicker(drainWait / 100)
	defer t.Stop()
	for {
		if st := c.state(); st.Waiting == 0 || st.Err != nil {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// drainWait bounds the wait for heads at the end of the process.
const drainWait = 2 * time.Second

// copyState is what a copier has done.
type copyState struct {
	Waiting        int
	Sent, Failures uint64
	Err            error
	Since          time.Time
}

func (c *copier) state() copyState {
	if c == nil {
		return copyState{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return copyState{Waiting: len(c.waiting), Sent: c.sent, Failures: c.failures, Err: c.lastErr, Since: c.since}
}
