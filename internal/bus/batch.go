package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

func formatSeq(n uint64) string { return strconv.FormatUint(n, 10) }

// errAgain ends a batch that must be followed by a recovery, without anything
// being wrong that somebody should know.
var errAgain = errors.New("ended early")

// Operations of fast-ingest, in the reply subject of each message (ADR-50):
// <inbox>.<batch>.<flow>.<gap mode>.<seq in batch>.<operation>.$FI
const (
	opStart  = "0"
	opAppend = "1"
	opEnd    = "3" // end without storing
	opPing   = "4"
)

// early is how many messages may follow the first one of a batch before the
// server admitted it. It refuses all of them if it refuses the first.
const early = 16

// A batch is one fast-ingest batch under way.
type batch struct {
	r      *shipper
	id     string // with a dot at its end, as it begins a reply subject
	base   string // reply subject up to the sequence
	topic  string // a subject of the stream
	n      uint64 // messages sent
	acked  uint64
	bytes  int // under way
	flow   uint64
	open   bool // the server has admitted it
	ending bool // nothing more is sent
}

// several publishes what there is, as one batch or, if it is one message, as
// that. It returns nil when all of it is stored.
func (r *shipper) several(ctx context.Context) error {
	// A lone message needs no batch. Whether it is one shows only after it was
	// made, because that moves the feed on.
	m, at := r.feed.take()
	more, err := r.feed.load()
	if err != nil {
		return err
	}
	if !more || at.seq == 1 { // that of the run's first event tells its place
		return r.sendOne(ctx, m, at)
	}
	r.under = r.under[:0]
	fl := min(r.flow, max(1, windowBytes/2/r.feed.enc.size()))
	id := r.prefix + "." + r.newID() + "."
	b := &batch{r: r, id: id, base: id + strconv.Itoa(fl) + ".fail.", topic: m.Subject, flow: uint64(fl)}
	r.p.stats.batches.Add(1)
	r.feed.fenceOn(r.sseq)
	if err := b.send(m, at, opStart); err != nil {
		return err
	}
	return b.run(ctx)
}

// newID returns a token for a batch or a lone message that no other publisher
// uses: a stream knows its batches, of all publishers, by this alone. At most 64
// characters are allowed.
func (r *shipper) newID() string {
	r.ids++
	return r.self + "-" + strconv.FormatUint(r.ids, 36)
}

func (b *batch) reply(seq uint64, op string) string {
	return b.base + formatSeq(seq) + "." + op + ".$FI"
}

func (b *batch) send(m *nats.Msg, at pos, op string) error {
	b.n++
	m.Reply = b.reply(b.n, op)
	size := b.r.feed.enc.size()
	b.bytes += size
	b.r.under = append(b.r.under, sentMsg{at, size})
	return b.r.hand(m, at)
}

// hand gives a message to the connection.
func (r *shipper) hand(m *nats.Msg, at pos) error {
	r.p.stats.messages.Add(1)
	if r.sent.less(at) {
		r.sent = at
	} else {
		r.p.stats.resent.Add(1)
	}
	if err := r.nc.PublishMsg(m); err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

// room reports whether another message may be sent now.
func (b *batch) room() bool {
	if b.ending || !b.open && b.n >= early {
		return false
	}
	return b.n-b.acked < uint64(b.r.window) && b.bytes < windowBytes
}

// end asks for the PubAck: nothing comes after what was sent.
func (b *batch) end() error {
	b.ending = true
	m := &nats.Msg{Subject: b.topic, Reply: b.reply(b.n+1, opEnd)}
	if err := b.r.nc.PublishMsg(m); err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

func (b *batch) ping() error {
	return b.r.nc.PublishMsg(&nats.Msg{Subject: b.topic, Reply: b.reply(b.n, opPing)})
}

// run sends what the feed has and handles what the server says, until the
// batch's PubAck.
func (b *batch) run(ctx context.Context) error {
	timer := time.NewTimer(pingAfter)
	defer timer.Stop()
	for silent := 0; ; {
		var m *nats.Msg
		if b.room() {
			select {
			case m = <-b.r.acks:
			case <-b.r.link.ctx.Done():
				return errBroken
			default:
				if err := b.more(); err != nil {
					return err
				}
				continue
			}
		} else {
			if b.stuck() {
				if err := b.end(); err != nil {
					return err
				}
			}
			select {
			case m = <-b.r.acks:
			case <-b.r.link.ctx.Done():
				return errBroken
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-timer.C:
				if silent++; silent == int(ackWait/pingAfter) {
					b.r.p.stats.timeouts.Add(1)
					if err := b.r.p.Bus.denials.of(b.topic); err != nil {
						return err
					}
					return fmt.Errorf("%w: no acknowledgement for %v", ErrUnavailable, ackWait)
				}
				if err := b.ping(); err != nil {
					return fmt.Errorf("%w: %v", ErrUnavailable, err)
				}
				timer.Reset(pingAfter)
				continue
			}
		}
		if !strings.HasPrefix(m.Subject, b.id) {
			continue // of an earlier batch
		}
		before, open := b.acked, b.open
		done, err := b.take(m)
		if done || err != nil {
			return err
		}
		if b.acked > before || b.open != open { // an answer to a ping alone is no progress
			silent = 0
			timer.Reset(pingAfter)
		}
	}
}

// more sends the next message, or ends the batch when there is none: an
// acknowledgement comes only every few messages otherwise.
func (b *batch) more() error {
	ok, err := b.r.feed.load()
	if err != nil {
		return err
	}
	if !ok {
		return b.end()
	}
	m, at := b.r.feed.take()
	return b.send(m, at, opAppend)
}

// stuck reports whether the byte window is full although the server owes no
// acknowledgement yet.
func (b *batch) stuck() bool {
	return b.open && !b.ending && b.bytes >= windowBytes && b.n-b.acked < b.flow
}

// take handles one answer. done means that the batch ended and all of it is
// stored.
func (b *batch) take(m *nats.Msg) (done bool, err error) {
	a, err := parseAck(m)
	if err != nil {
		return false, err
	}
	r := b.r
	switch {
	case a.Type == "ack":
		b.open = true
		if a.Messages > 0 {
			b.flow = uint64(a.Messages)
		}
		b.stored(a.Seq)
	case a.Type == "gap":
		r.p.stats.gaps.Add(1) // the PubAck follows
	case a.Type == "err":
		if a.Error == nil {
			return false, errAgain
		}
		return false, r.refused(a.Error, b.at(a.Seq))
	case a.Error != nil:
		return false, r.refused(a.Error, b.at(1))
	case a.Batch == "":
		// An ordinary PubAck: this server does not know batches.
		r.noBatches(errors.New("the server does not know batches"))
		return false, errAgain
	case a.Duplicate:
		r.p.stats.duplicates.Add(1)
		return false, errAgain
	default:
		b.stored(a.Count)
		if a.Count < b.n {
			return false, errAgain // the server ended it at a gap
		}
		r.sseq = a.Seq
		return true, nil
	}
	return false, nil
}

// at is the message with this sequence in the batch, if it is under way.
func (b *batch) at(seq uint64) pos {
	i := seq - b.acked - 1 // wraps for one that was acknowledged
	if i >= uint64(len(b.r.under)) {
		return pos{}
	}
	return b.r.under[i].at
}

// stored says that the stream has the first n messages of the batch.
func (b *batch) stored(n uint64) {
	if n <= b.acked || n > b.n {
		return
	}
	r := b.r
	to := b.at(n)
	stored := r.under[:n-b.acked]
	for _, s := range stored {
		b.bytes -= s.size
	}
	r.under = append(r.under[:0], r.under[len(stored):]...)
	b.acked = n
	r.advance(to)
}

func parseAck(m *nats.Msg) (pubAck, error) {
	var a pubAck
	if len(m.Data) == 0 {
		return a, asErr(context.Background(), nats.ErrNoResponders)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("%w: acknowledgement: %v", ErrUnavailable, err)
	}
	return a, nil
}
