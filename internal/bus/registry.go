package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// RunInfo is what the registry says about a run: enough to list it and to find
// its events. The events decide; this follows.
type RunInfo struct {
	Run       string   `json:"run"`
	Tenant    string   `json:"tenant"`
	Partition int      `json:"partition"`
	First     uint64   `json:"first,omitempty"` // stream sequence of the first event, a hint
	Dialect   string   `json:"dialect,omitempty"`
	Name      string   `json:"name,omitempty"`
	Sessions  []string `json:"sessions,omitempty"` // the main one first
	// Resume is what the run was told to go on with. It stands beside Sessions: a
	// child may give the conversation another id.
	Resume *event.Resume `json:"resume,omitempty"`

	State string `json:"state,omitempty"`
	// WaitingFor is approval or input while State is waiting, resume where the run
	// has ended on a question; OpenAsks is how many asks are open.
	WaitingFor string `json:"waiting_for,omitempty"`
	OpenAsks   int    `json:"open_asks,omitempty"`

	Verdict string    `json:"verdict,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	LastSeq uint64    `json:"last_seq,omitempty"` // of the events, as far as known here

	Host         string            `json:"host,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Versions     map[string]string `json:"versions,omitempty"`
	// Abilities is what the agent can do, as its edge has found out.
	Abilities *event.Capabilities `json:"abilities,omitempty"`
}

// Ref says where the run's events are.
func (r RunInfo) Ref() Ref {
	return Ref{Tenant: r.Tenant, Run: r.Run, Partition: r.Partition, First: r.First}
}

// PutRun writes the run's entry, replacing what was there: the last writer
// wins, and an entry has one writer at a time. The entry expires when the events
// stored up to now do.
func (b *Bus) PutRun(ctx context.Context, r RunInfo) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := b.putKey(ctx, subject.RunsBucket, r.Run, data, b.eventAge(ctx, r.Partition)); err != nil {
		return fmt.Errorf("put run %s: %w", r.Run, err)
	}
	return nil
}

// putKey writes a key that expires after age. The key-value clients' own Put
// has no expiry; it is a message with a TTL (ADR-43, ADR-8).
func (b *Bus) putKey(ctx context.Context, bucket, run string, data []byte, age time.Duration) (uint64, error) {
	m := &nats.Msg{
		Subject: kvRoot(bucket) + subject.Key(run),
		Header:  nats.Header{hdrTTL: {ttl(age)}},
		Data:    data,
	}
	a, err := b.publish(ctx, m)
	return a.Seq, err
}

// eventAge is how long events stay. An edge without the right to ask takes what it
// was told, or the default: its question would be about everybody's events.
func (b *Bus) eventAge(ctx context.Context, partition int) time.Duration {
	b.mu.Lock()
	age := b.maxAge
	b.mu.Unlock()
	if age != 0 {
		return age
	}
	if b.cfg.MaxAge != 0 {
		return b.cfg.MaxAge
	}
	info, err := b.streamInfo(ctx, subject.EventStream(partition))
	if err != nil || info.Config.MaxAge == 0 {
		return DefaultMaxAge
	}
	b.mu.Lock()
	b.maxAge = info.Config.MaxAge
	b.mu.Unlock()
	return info.Config.MaxAge
}

// Run returns the run's entry, from the leader, or [ErrNotFound].
func (b *Bus) Run(ctx context.Context, run string) (RunInfo, error) {
	s, err := b.get(ctx, kvStream(subject.RunsBucket), getRequest{LastFor: kvRoot(subject.RunsBucket) + subject.Key(run)})
	if err != nil {
		return RunInfo{}, fmt.Errorf("run %s: %w", run, err)
	}
	if gone(s) && !s.copied {
		return RunInfo{}, fmt.Errorf("run %s: %w", run, ErrNotFound)
	}
	return runOf(s)
}

func runOf(s *stored) (RunInfo, error) {
	var r RunInfo
	if s.copied {
		return RunInfo{}, fmt.Errorf("registry key %s: %w: it is the answer to a request", s.subject, ErrForeign)
	}
	if err := json.Unmarshal(s.data, &r); err != nil {
		return RunInfo{}, fmt.Errorf("registry key %s: %w", s.subject, err)
	}
	if kvRoot(subject.RunsBucket)+subject.Key(r.Run) != s.subject {
		return RunInfo{}, fmt.Errorf("registry key %s: %w: it is about run %q", s.subject, ErrForeign, r.Run)
	}
	return r, nil
}

// gone reports whether a key's message says that the key is no more: deleted or
// purged, or expired (a marker of a server whose bucket an earlier version made).
func gone(s *stored) bool {
	return s.header.Get(hdrMarker) != "" || s.header.Get(hdrKVOperation) != ""
}

// expired reports whether it is no more because nobody renewed it.
func expired(s *stored) bool { return s.header.Get(hdrMarker) == "MaxAge" }

// Runs returns every entry, those that are written while they are read last. Such
// a one moves behind the others, and may do so again whenever it is looked for: at
// the end the bus is asked for each that is still missing by its key.
func (b *Bus) Runs(ctx context.Context) ([]RunInfo, error) {
	var all []RunInfo
	stream, keys := kvStream(subject.RunsBucket), kvRoot(subject.RunsBucket)+">"
	entry := func(s *stored) error {
		if gone(s) && !s.copied {
			run, _ := subject.Untoken(kvKey(subject.RunsBucket, s.subject))
			all = slices.DeleteFunc(all, func(o RunInfo) bool { return o.Run == run })
			return nil
		}
		r, err := runOf(s)
		if err != nil {
			b.log.Warn("registry entry not readable, left out", "key", s.subject, "error", err)
			return nil
		}
		all = append(all, r)
		return nil
	}
	last, err := b.get(ctx, stream, getRequest{LastFor: keys})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err == nil:
		err = b.scan(ctx, stream, keys, 1, last.seq, entry)
	}
	if err == nil {
		err = b.moved(ctx, stream, keys, last.seq, all, entry)
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return newest(all), nil
}

// moved calls fn for the keys that were written behind seq and are not in have.
func (b *Bus) moved(ctx context.Context, stream, keys string, seq uint64, have []RunInfo, fn func(*stored) error) error {
	last, err := b.get(ctx, stream, getRequest{LastFor: keys})
	if errors.Is(err, ErrNotFound) || err == nil && last.seq <= seq {
		return nil
	}
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(have))
	for _, r := range have {
		known[kvRoot(subject.RunsBucket)+subject.Key(r.Run)] = true
	}
	all, err := b.subjects(ctx, stream, keys)
	if err != nil {
		return err
	}
	for _, key := range all {
		if known[key] {
			continue
		}
		s, err := b.get(ctx, stream, getRequest{LastFor: key})
		if errors.Is(err, ErrNotFound) {
			continue // it has expired meanwhile
		}
		if err == nil {
			err = fn(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newest keeps the last entry of each run.
func newest(all []RunInfo) []RunInfo {
	seen := make(map[string]bool, len(all))
	for i, r := range slices.Backward(all) {
		if seen[r.Run] {
			all[i].Run = "" // it was written again
		}
		seen[r.Run] = true
	}
	return slices.DeleteFunc(all, func(r RunInfo) bool { return r.Run == "" })
}

// WatchRuns calls fn for every entry there is and for each change from then on,
// until ctx ends; it returns its cause, or [ErrEpoch] when the bucket was made
// anew. gone means that the entry expired or was deleted; only Run is set then.
// ready (may be nil) comes after the entries there are. One call of either is made
// at a time.
func (b *Bus) WatchRuns(ctx context.Context, ready func(), fn func(r RunInfo, gone bool)) error {
	ended := func(key string) { fn(RunInfo{Run: runOfKey(key)}, true) }
	return b.watchKeys(ctx, subject.RunsBucket, ready, func(key string, s *stored) {
		if gone(s) {
			ended(key)
			return
		}
		if r, err := runOf(s); err == nil {
			fn(r, false)
		}
	}, ended)
}
