package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// commandGrace is how long a command outlives its delivery time on the bus,
	// so that an edge that comes back can still say that it expired.
	commandGrace = 10 * time.Minute

	// commandCheck is how often an edge looks for commands whose hint got lost
	// on the way: one small question, answered by any replica.
	commandCheck = 30 * time.Second

	// forgetWait bounds the deletion of a consumer.
	forgetWait = time.Second

	// maxHints bounds hints not yet looked at. One is enough to look, so more
	// than this may be dropped.
	maxHints = 64
)

// A Command is an instruction to a run.
type Command struct {
	ID     string
	Tenant string
	Run    string
	Name   string // interrupt, stop_task
	Data   []byte // JSON, may be empty

	Time      time.Time // when it was given
	DeliverBy time.Time // not written to the child after this
	EffectBy  time.Time // its effect is awaited until then

	Actor string // who: token name or verified identity
	From  string // from where: address or program
}

// Names of a command's own extensions.
const (
	extName     = "command"
	extExpiry   = "expirytime" // CloudEvents expiry extension
	extEffectBy = "effectby"
	extActor    = "actor"
	extFrom     = "origin"
)

func (c Command) event() *event.Event {
	e := &event.Event{
		Tenant: c.Tenant, Run: c.Run, Ref: c.ID, Time: c.Time, Type: event.TypeCmd, Kind: event.Cmd,
		ContentType: event.JSON, Data: c.Data,
		Ext: map[string]string{extName: c.Name, extExpiry: c.DeliverBy.UTC().Format(time.RFC3339Nano)},
	}
	if !c.EffectBy.IsZero() {
		e.Ext[extEffectBy] = c.EffectBy.UTC().Format(time.RFC3339Nano)
	}
	for name, v := range map[string]string{extActor: c.Actor, extFrom: c.From} {
		if v != "" {
			e.Ext[name] = v
		}
	}
	return e
}

func commandOf(s *stored) (Command, error) {
	e, err := decodeStored(s)
	if err != nil {
		return Command{}, err
	}
	_, _, id, err := subject.ParseCommand(s.subject)
	if err != nil {
		return Command{}, err
	}
	c := Command{
		ID: id, Tenant: e.Tenant, Run: e.Run, Name: e.Ext[extName], Data: e.Data, Time: e.Time,
		Actor: e.Ext[extActor], From: e.Ext[extFrom],
	}
	if c.DeliverBy, err = time.Parse(time.RFC3339Nano, e.Ext[extExpiry]); err != nil {
		return Command{}, fmt.Errorf("command %s: expiry: %w", id, err)
	}
	if v := e.Ext[extEffectBy]; v != "" {
		if c.EffectBy, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return Command{}, fmt.Errorf("command %s: effect time: %w", id, err)
		}
	}
	return c, nil
}

// SendCommand stores a command and returns after the stream's acknowledgement,
// which is the fact "accepted". A command with this id that the run has got
// already is not stored again: duplicate is true and the first one counts,
// whatever it said. After an error the command may or may not be stored; sending
// it again is safe. DeliverBy must be set and in the future.
func (b *Bus) SendCommand(ctx context.Context, c Command) (duplicate bool, err error) {
	left := time.Until(c.DeliverBy)
	if left <= 0 {
		return false, fmt.Errorf("send command %s: its delivery time %v has passed", c.ID, c.DeliverBy)
	}
	if c.ID == "" || c.Run == "" || c.Name == "" {
		return false, fmt.Errorf("send command %q to run %q: id, run and name are needed", c.ID, c.Run)
	}
	m := encode(c.event(), subject.Command(c.Tenant, c.Run, c.ID))
	m.Header.Set(hdrTTL, ttl(left+commandGrace))
	// The id catches a resend in flight, the fence one that comes after the
	// window of ids.
	m.Header.Set(hdrMsgID, c.Run+"/"+c.ID)
	m.Header.Set(hdrExpect, "0")
	a, err := b.publish(ctx, m)
	if errors.Is(err, ErrConflict) || err == nil && a.Duplicate {
		return b.resendCommand(ctx, c, m)
	}
	if err != nil {
		return false, fmt.Errorf("send command %s: %w", c.ID, err)
	}
	return false, nil
}

// resendCommand looks at the command that the stream says to have. It may be none, or
// gone: the server may have been made to write there, or to note the id. Then m goes
// out behind it, under no id, with the fence alone.
func (b *Bus) resendCommand(ctx context.Context, c Command, m *nats.Msg) (duplicate bool, err error) {
	s, err := b.get(ctx, subject.CommandStream, getRequest{LastFor: m.Subject})
	seq := uint64(0)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return false, fmt.Errorf("send command %s: %w", c.ID, err)
	default:
		if _, err := commandOf(s); !errors.Is(err, ErrForeign) {
			return true, nil
		}
		seq = s.seq
	}
	m.Header.Del(hdrMsgID)
	m.Header.Set(hdrExpect, strconv.FormatUint(seq, 10))
	_, err = b.publish(ctx, m)
	switch {
	case errors.Is(err, ErrConflict): // another has sent it meanwhile
		return true, nil
	case err != nil:
		return false, fmt.Errorf("send command %s: %w", c.ID, err)
	}
	return false, nil
}

// ttl formats d as the server wants it, in whole seconds, at least one.
func ttl(d time.Duration) string {
	return strconv.FormatInt(int64(max((d+time.Second-1)/time.Second, 1)), 10)
}

// FindCommand returns the command with this id, or [ErrNotFound] when there was
// none or it has left the bus: [commandGrace] after its delivery time.
func (b *Bus) FindCommand(ctx context.Context, id string) (Command, error) {
	s, err := b.get(ctx, subject.CommandStream, getRequest{LastFor: subject.CommandByID(id)})
	if err != nil {
		return Command{}, fmt.Errorf("command %s: %w", id, err)
	}
	return commandOf(s)
}

// Commands calls fn for each command to the run, in order and each once, those
// stored before the call included, until ctx ends; it returns its cause. Expired
// ones are given as well: that is the edge's fact to state. The bus may come and
// go. When the stream was made anew, what is on it is given from its beginning,
// which may include commands given before if it was restored from a backup; the
// caller knows the ids. An edge needs the right to create one consumer, with the
// run's name and filter, to read from it and to delete it, and nothing else of the API.
func (b *Bus) Commands(ctx context.Context, tenant, run string, fn func(Command)) error {
	w := commandReader{b: b, tenant: tenant, run: run, fn: fn}
	for failed := 0; ; {
		l, err := b.link(ctx)
		if err == nil {
			err = w.read(ctx, l, &failed)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		b.log.Debug("commands go on", "run", run, "after", w.last, "error", err)
		failed++
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A commandReader is one edge's way to its commands.
type commandReader struct {
	b           *Bus
	tenant, run string
	fn          func(Command)
	last        uint64    // stream sequence of the command given last
	stamp       time.Time // when that one was stored
}

// read waits for hints and catches up after each, and at once, until the
// connection ends.
func (w *commandReader) read(ctx context.Context, l *link, failed *int) error {
	hints := make(chan *nats.Msg, maxHints)
	// Where the server does not permit it, commands come when they are looked for.
	sub, err := l.nc.ChanSubscribe(subject.Hint(w.tenant, w.run), hints)
	if err != nil {
		return asErr(ctx, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	check := time.NewTicker(commandCheck)
	defer check.Stop()
	for {
		if err := w.catchUp(ctx, l); err != nil {
			return err
		}
		*failed = 0
		select {
		case h := <-hints:
			w.hint(h)
			for len(hints) > 0 {
				w.hint(<-hints)
			}
		case <-check.C:
		case <-l.ctx.Done():
			return errBroken
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hint looks at a wake-up copy. A command stored later than the one given last
// but with no higher sequence is on a stream that was made anew.
func (w *commandReader) hint(m *nats.Msg) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err == nil && seq <= w.last && at.After(w.stamp) {
		w.b.log.Warn("the command stream began anew", "run", w.run, "after", w.last, "at", seq)
		w.last = 0
	}
}

// catchUp gives every command behind w.last that the stream has. The consumer's
// create subject carries its name, which is the run's, and its filter: so a server
// can permit an edge its own commands and no others.
func (w *commandReader) catchUp(ctx context.Context, l *link) error {
	pending, err := w.consumer(ctx, l)
	if isExists(err) { // of an earlier connection
		w.forget(ctx, l)
		pending, err = w.consumer(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	defer w.forget(ctx, l)
	if err := w.take(ctx, l, pending); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read commands: %w", err)
	}
	return nil
}

// isExists reports whether there is a consumer of this name.
func isExists(err error) bool {
	const consumerExists, consumerNameExists = 10148, 10013
	var api *apiError
	return errors.As(err, &api) && (api.ErrCode == consumerExists || api.ErrCode == consumerNameExists)
}

// consumer makes the run's consumer and returns how many commands it has.
func (w *commandReader) consumer(ctx context.Context, l *link) (uint64, error) {
	return w.b.consumer(ctx, l, subject.CommandStream, jetstream.ConsumerConfig{
		Name:              subject.Key(w.run),
		Description:       nuid.Next(), // never the one that is there, which may have given some already
		FilterSubject:     subject.CommandFilter(w.tenant, w.run),
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       w.last + 1,
		InactiveThreshold: requestTimeout,
		MemoryStorage:     true,
		Replicas:          1,
	})
}

// forget deletes the run's consumer, so that the next one can have another start. One
// that stays ends by itself.
func (w *commandReader) forget(ctx context.Context, l *link) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetWait)
	defer cancel()
	err := w.b.askOn(ctx, l, "CONSUMER.DELETE."+subject.CommandStream+"."+subject.Key(w.run), nil, nil)
	if err != nil && !errors.Is(err, ErrNotFound) {
		w.b.log.Debug("delete the consumer of commands", "run", w.run, "error", err)
	}
}

// take gives the commands that the consumer has.
func (w *commandReader) take(ctx context.Context, l *link, pending uint64) error {
	ctx, cancel := l.with(ctx)
	defer cancel()
	for pending > 0 {
		n := min(pending, maxHints)
		p, err := w.b.newPull(l, subject.CommandStream, subject.Key(w.run), pullRequest{Batch: int(n), NoWait: true})
		if err != nil {
			return err
		}
		err = w.several(ctx, p, n)
		p.stop()
		if err != nil {
			return err // or the rest has expired meanwhile
		}
		pending -= n
	}
	return nil
}

func (w *commandReader) several(ctx context.Context, p *pull, n uint64) error {
	for range n {
		m, meta, err := p.take(ctx)
		if err != nil {
			return err
		}
		w.last, w.stamp = meta.Sequence.Stream, meta.Timestamp
		c, err := commandOf(&stored{subject: m.Subject, seq: w.last, header: m.Header, data: m.Data, copied: isCopy(m.Header)})
		if err != nil {
			w.b.log.Warn("command not readable, left out", "stream_seq", w.last, "error", err)
			continue
		}
		w.fn(c)
	}
	return nil
}
