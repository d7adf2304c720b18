package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/subject"
)

// A pull reads one consumer. The client library's own readers take a message without
// data whose headers have a status for a word of the server: whoever may publish could
// stop them with one. What the consumer gives has a reply subject; the server's words
// have none.
type pull struct {
	b    *Bus
	l    *link
	next string // where messages are asked for
	req  pullRequest

	inbox   string
	msgs    chan *nats.Msg
	sub     *nats.Subscription
	pending int  // messages asked for that have not come
	once    bool // asked once: [ErrNotFound] when the request ended
	quiet   *time.Timer
}

// A pullRequest is the body of CONSUMER.MSG.NEXT (ADR-13, ADR-37).
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`

	// Group and ID are of a consumer that serves one reader at a time (ADR-42).
	Group string `json:"group,omitempty"`
	ID    string `json:"id,omitempty"`
}

// newPull begins to read a consumer: at most req.Batch messages are under way. With
// NoWait it reads what is there and ends with [ErrNotFound].
func (b *Bus) newPull(l *link, stream, consumer string, req pullRequest) (*pull, error) {
	const words = 64 // of the server, between messages
	p := &pull{
		b: b, l: l, next: subject.API("CONSUMER.MSG.NEXT", stream, consumer), req: req,
		inbox: l.nc.NewInbox(), msgs: make(chan *nats.Msg, req.Batch+words), quiet: time.NewTimer(requestTimeout),
	}
	var err error
	if p.sub, err = l.nc.ChanSubscribe(p.inbox, p.msgs); err != nil {
		return nil, asErr(context.Background(), err)
	}
	if err := p.ask(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *pull) stop() {
	_ = p.sub.Unsubscribe()
	p.quiet.Stop()
}

// ask asks for as many messages as may be under way.
func (p *pull) ask() error {
	req := p.req
	req.Batch -= p.pending
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	p.pending += req.Batch
	return asErr(context.Background(), p.l.nc.PublishRequest(p.next, p.inbox, body))
}

// take returns the next message. ctx ends with the connection.
func (p *pull) take(ctx context.Context) (*nats.Msg, *nats.MsgMetadata, error) {
	patience := requestTimeout
	if p.req.Heartbeat > 0 {
		patience = 2 * p.req.Heartbeat
	}
	for {
		var m *nats.Msg
		select {
		case m = <-p.msgs:
		default:
			p.quiet.Reset(patience)
			select {
			case m = <-p.msgs:
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			case <-p.quiet.C:
				if err := p.b.denials.of(p.next); err != nil {
					return nil, nil, err
				}
				return nil, nil, fmt.Errorf("%w: nothing heard for %v", ErrUnavailable, patience)
			}
		}
		if m.Reply != "" {
			meta, err := m.Metadata()
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
			p.pending--
			return m, meta, p.refill()
		}
		if err := p.word(m.Header); err != nil {
			return nil, nil, err
		}
	}
}

func (p *pull) refill() error {
	if p.req.NoWait || p.once || p.pending > p.req.Batch/2 {
		return nil
	}
	return p.ask()
}

// word handles what the server says beside messages.
func (p *pull) word(h nats.Header) error {
	status, text := h.Get("Status"), h.Get("Description")
	left, _ := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	switch {
	case status == "100": // it is alive
		return nil
	case status == "404" && p.req.NoWait, status == "408" && p.req.NoWait:
		return fmt.Errorf("%w: no more messages", ErrNotFound)
	case status == "408", status == "409" && (h.Get("Nats-Pending-Messages") != "") && !strings.Contains(strings.ToLower(text), "consumer"):
		p.pending -= left // a request has ended
		if p.once {
			return fmt.Errorf("%w: the request ended: %s", ErrNotFound, text)
		}
		return p.refill()
	case status == "423":
		return errWrongPin
	case status == "503":
		return asErr(context.Background(), nats.ErrNoResponders)
	}
	return fmt.Errorf("%w: the consumer ended: %s %s", ErrUnavailable, status, text)
}

// consumer creates a consumer and returns how many messages it has to give.
func (b *Bus) consumer(ctx context.Context, l *link, stream string, cfg jetstream.ConsumerConfig) (pending uint64, err error) {
	req := map[string]any{"stream_name": stream, "config": cfg, "action": "create"}
	var info struct {
		NumPending uint64 `json:"num_pending"`
	}
	err = b.askOn(ctx, l, strings.TrimPrefix(createSubject(stream, cfg.Name, cfg.FilterSubject), apiRoot), req, &info)
	return info.NumPending, err
}
