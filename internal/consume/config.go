package consume

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A Config says what a [Consumer] reads and what its bounds are. Zero values are the
// defaults.
type Config struct {
	// Name is that of the durable consumers on the server: cbcast-notify.
	Name string
	Bus  *bus.Bus
	Logs []bus.Log
	// Dir is the program's own directory: the dead letters are in its dead, and a file
	// for each log says where reading was. It is made, and held by one process at a time.
	Dir string
	// Headers fills [bus.Raw.Header] of every entry.
	Headers bool

	// Commits come after Events entries or Bytes of them, and Every after the first one
	// that is not committed: 5000, 8 MiB, 1 s.
	Every  time.Duration
	Events int
	Bytes  int64

	// Window is how many messages of a log the server gives without an ack:
	// [bus.DefaultWindow].
	Window int

	// Tries is how often an entry is handled before it is a dead letter: 8. Between the
	// first two lies Pause, then twice as long each time, at most MaxPause: 100 ms, 10 s.
	Tries           int
	Pause, MaxPause time.Duration

	// Parked bounds the bytes of entries that wait for their run; past it nothing is
	// read: 64 MiB.
	Parked int64
	// MaxDead bounds the number of dead letters; past it an entry waits instead: 10 000.
	MaxDead int

	// StopWait bounds the last commit and its ack when Run ends: 20 s.
	StopWait time.Duration

	Log *slog.Logger

	sources func(bus.Log, begin) source // for tests
}

func (c Config) defaults() (Config, error) {
	if c.Name == "" || c.Dir == "" || len(c.Logs) == 0 {
		return c, errors.New("consume: a name, a directory and logs are needed")
	}
	seen := map[bus.Log]bool{}
	for _, l := range c.Logs {
		if seen[l] {
			return c, fmt.Errorf("consume: log %v twice", l)
		}
		seen[l] = true
	}
	c.Every = cmp.Or(c.Every, time.Second)
	c.Events = cmp.Or(c.Events, 5000)
	c.Bytes = cmp.Or(c.Bytes, 8<<20)
	c.Window = cmp.Or(c.Window, bus.DefaultWindow)
	c.Tries = cmp.Or(c.Tries, 8)
	c.Pause = cmp.Or(c.Pause, 100*time.Millisecond)
	c.MaxPause = cmp.Or(c.MaxPause, 10*time.Second)
	c.Parked = cmp.Or(c.Parked, 64<<20)
	c.MaxDead = cmp.Or(c.MaxDead, 10_000)
	c.StopWait = cmp.Or(c.StopWait, 20*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("consumer", c.Name)
	return c, nil
}

// Logs are the logs of events of a bus with so many partitions, and the control facts.
func Logs(partitions int) []bus.Log {
	all := []bus.Log{bus.ControlLog}
	for p := range max(partitions, 1) {
		all = append(all, bus.Log(p))
	}
	return all
}
