package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/subject"
)

// A Topology is what the streams and buckets should be. Every one has a bound
// in bytes and in time: a broker that fills its disk stops for everybody.
type Topology struct {
	Partitions int // of the events; 0 is 1
	Replicas   int // 1, 3 or 5; 0 is 1

	MaxAge   time.Duration // of events, control facts and registry keys; 0 is [DefaultMaxAge]
	MaxBytes int64         // of each partition; 0 is [DefaultMaxBytes]

	// SideBytes is for the streams beside the events together; 0 is
	// [DefaultSideBytes]. They hold small messages with an expiry of their own,
	// so this is a fuse.
	SideBytes int64

	// Duplicates is how long message ids are remembered, 2 minutes if 0. A
	// server keeps 152 bytes of memory for each id; a busy one takes 30 s.
	Duplicates time.Duration
}

// The defaults of a [Topology].
const (
	DefaultMaxAge   = 7 * 24 * time.Hour
	DefaultMaxBytes = 8 << 30

	DefaultSideBytes = 192 << 20
)

// Shares of SideBytes.
const (
	commandShare  = 2
	controlShare  = 4
	runsShare     = 4
	presenceShare = 1
	sessionsShare = 1
	shares        = commandShare + controlShare + runsShare + presenceShare + sessionsShare
)

const (
	commandAge   = 24 * time.Hour
	commandDedup = 10 * time.Minute

	// markerTTL is how long a bucket says that a key was given up.
	markerTTL = time.Hour
)

// Local is the topology of the store on one machine, inside a server that
// keeps at most maxStore bytes in all.
func Local(maxStore int64) Topology {
	side := min(DefaultSideBytes, maxStore/4)
	return Topology{MaxBytes: maxStore - side, SideBytes: side}
}

func (t Topology) defaults() Topology {
	set := func(p *int) {
		if *p == 0 {
			*p = 1
		}
	}
	set(&t.Partitions)
	set(&t.Replicas)
	if t.MaxAge == 0 {
		t.MaxAge = DefaultMaxAge
	}
	if t.MaxBytes == 0 {
		t.MaxBytes = DefaultMaxBytes
	}
	if t.SideBytes == 0 {
		t.SideBytes = DefaultSideBytes
	}
	if t.Duplicates == 0 {
		t.Duplicates = 2 * time.Minute
	}
	return t
}

// streams lists the configuration of every stream. Buckets are streams too,
// in the form that NATS key-value clients expect (ADR-8).
func (t Topology) streams() []jetstream.StreamConfig {
	t = t.defaults()
	side := func(share int64) int64 { return t.SideBytes / shares * share }
	base := func(name, subjects string, maxBytes int64, age, dup time.Duration) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Subjects: []string{subjects},
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
			MaxConsumers: -1, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
			MaxBytes: maxBytes, MaxAge: age, Duplicates: min(dup, age),
			Replicas: t.Replicas, AllowDirect: true,
		}
	}
	bucket := func(name string, maxBytes int64) jetstream.StreamConfig {
		c := base(kvStream(name), kvRoot(name)+">", maxBytes, 0, 2*time.Minute)
		c.Duplicates = 2 * time.Minute
		c.MaxMsgsPerSubject = 1 // else old revisions come back when the last one expires
		// No markers for what expires: they need roll-ups, and with those whoever may
		// write one key can purge them all. Readers watch the time themselves.
		c.AllowMsgTTL, c.DenyDelete = true, true
		return c
	}
	var all []jetstream.StreamConfig
	for p := range t.Partitions {
		c := base(subject.EventStream(p), subject.EventStreamSubjects(p), t.MaxBytes, t.MaxAge, t.Duplicates)
		c.AllowBatchPublish, c.DenyDelete = true, true
		all = append(all, c)
	}
	cmd := base(subject.CommandStream, subject.CommandStreamSubjects, side(commandShare), commandAge, commandDedup)
	cmd.AllowMsgTTL = true
	cmd.RePublish = &jetstream.RePublish{
		Source: subject.CommandStreamSubjects, Destination: subject.HintSubjects, HeadersOnly: true,
	}
	ctl := base(subject.ControlStream, subject.ControlStreamSubjects, side(controlShare), t.MaxAge, t.Duplicates)
	return append(all, cmd, ctl, bucket(subject.RunsBucket, side(runsShare)), bucket(subject.PresenceBucket, side(presenceShare)),
		bucket(subject.SessionsBucket, side(sessionsShare)))
}

// A Change is one way in which the bus differs from a topology.
type Change struct {
	Stream string
	Field  string // "" when the whole stream is missing
	Want   string
	Have   string
}

func (c Change) String() string {
	if c.Field == "" {
		return c.Stream + ": missing"
	}
	return fmt.Sprintf("%s: %s is %s, not %s", c.Stream, c.Field, c.Have, c.Want)
}

// Plan says what [Bus.Ensure] would create, and which existing streams differ
// from t and how. It changes nothing. It waits for a connection while ctx allows.
func (b *Bus) Plan(ctx context.Context, t Topology) ([]Change, error) {
	if err := b.WaitConnected(ctx); err != nil {
		return nil, err
	}
	var all []Change
	for _, want := range t.streams() {
		info, err := b.streamState(ctx, want.Name)
		var api *apiError
		if errors.As(err, &api) && api.ErrCode == codeNoStream {
			all = append(all, Change{Stream: want.Name})
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, drift(want, info.Config)...)
	}
	return all, nil
}

// stateTries is how often a stream's state is asked for: a request or its answer
// may be lost, and a server that begins or has much to do may answer late.
const stateTries = 4

// streamState is streamInfo, asked again where no answer came.
func (b *Bus) streamState(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	for tries := 1; ; tries++ {
		info, err := b.streamInfo(ctx, stream)
		var answered *apiError
		if err == nil || errors.As(err, &answered) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) || tries == stateTries {
			return info, err
		}
		b.log.Debug("stream's state not known, asking again", "stream", stream, "error", err)
		if err := b.pause(ctx, tries); err != nil {
			return nil, err
		}
	}
}

// createTries is how often a stream is created again that another process may be
// creating at the same time.
const createTries = 10

// create makes a stream that was missing a moment ago. Another process may be
// quicker: its stream is compared like any other. A server that has too little
// storage for two of them says so also where one exists already.
func (b *Bus) create(ctx context.Context, want jetstream.StreamConfig) error {
	const nameInUse, noStorage = 10058, 10047
	for tries := 0; ; tries++ {
		err := b.ask(ctx, "STREAM.CREATE."+want.Name, want, nil)
		var api *apiError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &api) && api.ErrCode == nameInUse:
			return nil
		case !errors.As(err, &api) || api.ErrCode != noStorage || tries >= createTries:
			return err
		}
		if _, err := b.streamInfo(ctx, want.Name); err == nil {
			return nil
		}
		if err := b.pause(ctx, 1); err != nil {
			return err
		}
	}
}

// Ensure creates the streams of t that are missing and returns how the existing
// ones differ. Those are never altered: a smaller bound deletes events, and
// which of two configurations is right is for a person to say. Several
// processes may call it at once. An edge does not need it.
func (b *Bus) Ensure(ctx context.Context, t Topology) (drifts []Change, err error) {
	missing, err := b.Plan(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("check streams: %w", err)
	}
	for _, want := range t.streams() {
		if !slices.Contains(missing, Change{Stream: want.Name}) {
			continue
		}
		if err := b.create(ctx, want); err != nil {
			return nil, fmt.Errorf("create stream %s: %w", want.Name, err)
		}
	}
	if drifts, err = b.Plan(ctx, t); err != nil {
		return nil, fmt.Errorf("check streams: %w", err)
	}
	return drifts, nil
}

// drift compares what matters to us. What a server adds by itself does not.
func drift(want, have jetstream.StreamConfig) []Change {
	var all []Change
	add := func(field string, w, h any) {
		if ws, hs := fmt.Sprint(w), fmt.Sprint(h); ws != hs {
			all = append(all, Change{want.Name, field, ws, hs})
		}
	}
	add("subjects", want.Subjects, have.Subjects)
	add("retention", want.Retention, have.Retention)
	add("storage", want.Storage, have.Storage)
	add("discard", want.Discard, have.Discard)
	add("max_age", want.MaxAge, have.MaxAge)
	add("max_bytes", want.MaxBytes, have.MaxBytes)
	add("max_msgs", want.MaxMsgs, have.MaxMsgs)
	add("max_msgs_per_subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	add("max_msg_size", want.MaxMsgSize, have.MaxMsgSize)
	add("duplicate_window", want.Duplicates, have.Duplicates)
	add("num_replicas", want.Replicas, have.Replicas)
	add("allow_direct", want.AllowDirect, have.AllowDirect)
	add("allow_batched", want.AllowBatchPublish, have.AllowBatchPublish)
	add("allow_msg_ttl", want.AllowMsgTTL, have.AllowMsgTTL)
	add("allow_rollup_hdrs", want.AllowRollup, have.AllowRollup)
	add("deny_delete", want.DenyDelete, have.DenyDelete)
	add("subject_delete_marker_ttl", want.SubjectDeleteMarkerTTL, have.SubjectDeleteMarkerTTL)
	add("republish", republish(want.RePublish), republish(have.RePublish))
	return all
}

func republish(r *jetstream.RePublish) string {
	if r == nil {
		return "none"
	}
	return r.Source + " to " + r.Destination + ", headers only " + strconv.FormatBool(r.HeadersOnly)
}
