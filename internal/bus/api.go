package bus

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const apiRoot = "$JS.API."

// A stored is one message of a stream.
type stored struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
	data    []byte

	// copied says that the server wrote it, not a client that may: the answer to
	// somebody's direct get, for which they named one of our subjects as the place.
	copied bool
}

// isCopy reports whether a stored message's headers are those of an answer.
func isCopy(h nats.Header) bool { return len(h[jetstream.SubjectHeader]) > 0 }

// ask sends a request to the JetStream API and decodes the answer into v.
func (b *Bus) ask(ctx context.Context, subject string, req, v any) error {
	l, err := b.now()
	if err != nil {
		return err
	}
	return b.askOn(ctx, l, subject, req, v)
}

// createSubject is where a consumer is created (the form of nats-server 2.9):
// with its name and its filter, so that both can be permitted.
func createSubject(stream, name, filter string) string {
	return apiRoot + "CONSUMER.CREATE." + stream + "." + name + "." + filter
}

// askOn is ask on the connection l.
func (b *Bus) askOn(ctx context.Context, l *link, subject string, req, v any) (err error) {
	ctx, cancel, fault := b.call(ctx, l, apiRoot+subject)
	defer cancel()
	var body []byte
	if req != nil {
		if body, err = json.Marshal(req); err != nil {
			return err
		}
	}
	m, err := l.nc.RequestWithContext(ctx, apiRoot+subject, body)
	if err != nil {
		return fault(err)
	}
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("%w: answer to %s: %v", ErrUnavailable, subject, err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, v); err != nil {
		return fmt.Errorf("%w: answer to %s: %v", ErrUnavailable, subject, err)
	}
	return nil
}

// A getRequest is the body of STREAM.MSG.GET and DIRECT.GET (ADR-8, ADR-31).
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`

	// StartTime stands in place of Seq: from the first message stored then or later.
	StartTime *time.Time `json:"start_time,omitempty"`
}

// get asks the leader of stream for one message: its answer includes everything
// acknowledged so far.
func (b *Bus) get(ctx context.Context, stream string, req getRequest) (*stored, error) {
	var r struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  string    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := b.ask(ctx, "STREAM.MSG.GET."+stream, req, &r); err != nil {
		return nil, fmt.Errorf("get from %s: %w", stream, err)
	}
	s := &stored{subject: r.Message.Subject, seq: r.Message.Seq, time: r.Message.Time, data: r.Message.Data}
	if r.Message.Header != "" {
		raw, err := base64.StdEncoding.DecodeString(r.Message.Header)
		if err == nil {
			s.header, err = nats.DecodeHeadersMsg(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("headers of %s %d: %w", stream, s.seq, err)
		}
		s.copied = isCopy(s.header)
	}
	return s, nil
}

// direct asks any replica of stream for one message. The answer may be behind.
func (b *Bus) direct(ctx context.Context, stream string, req getRequest) (*stored, error) {
	l, err := b.now()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	return b.directOn(ctx, l, stream, apiRoot+"DIRECT.GET."+stream, body)
}

// lastOf asks any replica of stream for the last message that matches filter. The
// filter is part of the request's subject, so that a server can permit a client
// this question and no other (ADR-31). The answer may be behind.
func (b *Bus) lastOf(ctx context.Context, stream, filter string) (*stored, error) {
	l, err := b.now()
	if err != nil {
		return nil, err
	}
	return b.directOn(ctx, l, stream, apiRoot+"DIRECT.GET."+stream+"."+filter, nil)
}

func (b *Bus) directOn(ctx context.Context, l *link, stream, subject string, body []byte) (*stored, error) {
	ctx, cancel, fault := b.call(ctx, l, subject)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", stream, fault(err))
	}
	return fromDirect(stream, m)
}

// said is a header that the server has added to a message's own, which may have one of
// this name, too.
func said(h nats.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// statusOf is the server's word in place of a message, "" where it is a message,
// whatever its own headers say.
func statusOf(m *nats.Msg) string {
	if len(m.Header[jetstream.SubjectHeader]) > 0 {
		return ""
	}
	return m.Header.Get("Status")
}

// fromDirect reads the answer to a direct get.
func fromDirect(stream string, m *nats.Msg) (*stored, error) {
	if status := statusOf(m); status != "" {
		code, _ := strconv.Atoi(status)
		return nil, fmt.Errorf("get from %s: %w", stream, &apiError{Code: code, Description: m.Header.Get("Description")})
	}
	seq, err := strconv.ParseUint(said(m.Header, jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: answer without a sequence", ErrUnavailable)
	}
	s := &stored{subject: said(m.Header, jetstream.SubjectHeader), seq: seq, header: m.Header, data: m.Data}
	s.copied = len(m.Header[jetstream.SubjectHeader]) > 1 // one is of this answer
	return s, nil
}

// publish stores one message and returns its PubAck.
func (b *Bus) publish(ctx context.Context, m *nats.Msg) (pubAck, error) {
	l, err := b.now()
	if err != nil {
		return pubAck{}, err
	}
	ctx, cancel, fault := b.call(ctx, l, m.Subject)
	defer cancel()
	r, err := l.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return pubAck{}, fault(err)
	}
	var a pubAck
	if err := json.Unmarshal(r.Data, &a); err != nil {
		return a, fmt.Errorf("%w: answer to a message: %v", ErrUnavailable, err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}

// A pubAck is every answer a stream gives to a publisher: the PubAck of one
// message or of a batch, and the flow messages of fast-ingest (ADR-50).
type pubAck struct {
	Type      string    `json:"type"`  // ack, gap, err; "" is a PubAck
	Seq       uint64    `json:"seq"`   // of the batch in a flow message, else of the stream
	Messages  int       `json:"msgs"`  // how often the server acknowledges from now on
	Batch     string    `json:"batch"` // of a batch's PubAck
	Count     uint64    `json:"count"` // how many of the batch are stored
	Duplicate bool      `json:"duplicate"`
	Stream    string    `json:"stream"`
	Error     *apiError `json:"error"`
}

// streamInfo asks for a stream's state and configuration.
func (b *Bus) streamInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	var info jetstream.StreamInfo
	if err := b.ask(ctx, "STREAM.INFO."+stream, nil, &info); err != nil {
		return nil, fmt.Errorf("state of %s: %w", stream, err)
	}
	return &info, nil
}

// subjects lists the subjects under filter that stream has messages of.
func (b *Bus) subjects(ctx context.Context, stream, filter string) ([]string, error) {
	var all []string
	for {
		var page struct {
			Total int `json:"total"` // of subjects; a page holds 100 000
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		req := map[string]any{"subjects_filter": filter, "offset": len(all)}
		if err := b.ask(ctx, "STREAM.INFO."+stream, req, &page); err != nil {
			return nil, fmt.Errorf("subjects of %s: %w", stream, err)
		}
		all = slices.AppendSeq(all, maps.Keys(page.State.Subjects))
		if len(page.State.Subjects) == 0 || len(all) >= page.Total {
			return all, nil
		}
	}
}

// kvStream is the stream behind a bucket, kvRoot the prefix of its subjects.
func kvStream(bucket string) string { return "KV_" + bucket }
func kvRoot(bucket string) string   { return "$KV." + bucket + "." }

// kvKey is the key in a bucket's subject.
func kvKey(bucket, subject string) string { return strings.TrimPrefix(subject, kvRoot(bucket)) }
