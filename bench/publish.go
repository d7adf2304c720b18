package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
)

// publish compares the whole edge path, from a frame's bytes to the
// acknowledgement, with what publishes the same frames without an edge.
func publish(ctx context.Context, o options) error {
	l, err := startLab(ctx)
	if err != nil {
		return err
	}
	defer l.stop()
	for _, w := range []struct{ size, n int }{{512, 150_000}, {4 << 10, 50_000}, {64 << 10, 5_000}} {
		all := frames(o.scaled(w.n), w.size)
		stream := append(bytes.Join(all, []byte("\n")), '\n')
		rate := func(name string, f func(context.Context, *lab, string) error) *candidate {
			c := &candidate{name: name}
			c.run = func(ctx context.Context) (float64, error) {
				if err := l.empty(ctx); err != nil {
					return 0, err
				}
				theirs, ours := cpu(l.pid)
				begin := time.Now()
				if err := f(ctx, l, nuid.Next()); err != nil {
					return 0, err
				}
				took := time.Since(begin)
				t, u := cpu(l.pid)
				c.theirs = append(c.theirs, 1e6*(t-theirs)/float64(len(all)))
				c.ours = append(c.ours, 1e6*(u-ours)/float64(len(all)))
				if n, err := l.stored(ctx); err != nil || n < uint64(len(all)) {
					return 0, fmt.Errorf("%d of %d stored, %v", n, len(all), err)
				}
				return float64(len(all)) / took.Seconds(), nil
			}
			return c
		}
		plain := rate("plain async publish", func(ctx context.Context, l *lab, run string) error { return async(ctx, l, run, all, false) })
		full := rate("async with ids and headers", func(ctx context.Context, l *lab, run string) error { return async(ctx, l, run, all, true) })
		fast := rate("fast-ingest with ids and headers", func(ctx context.Context, l *lab, run string) error { return fastIngest(ctx, l, run, all, true) })
		edge := rate("edge path", func(ctx context.Context, l *lab, _ string) error { return edgePath(ctx, l, bytes.NewReader(stream)) })
		cs := []*candidate{plain, full, fast, edge}
		if err := interleave(ctx, o.rounds, cs); err != nil {
			return err
		}
		table(fmt.Sprintf("**Publishing, %d B a frame** (%d frames, server in another process, R1)", w.size, len(all)-1),
			"frames/s", cs, plain, full, fast)
	}
	return nil
}

// edgePath is a recorded stream through a real edge: cut into frames, classified,
// masked, folded, spooled, published, acknowledged.
func edgePath(ctx context.Context, l *lab, r io.Reader) error {
	root, err := os.MkdirTemp(l.dir, "spool-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	out, err := ingest.Import(ctx, ingest.Options{
		Config: ingest.Config{
			Tenant: tenant, ExitFlush: time.Hour, SpoolRunMax: 1 << 30, SpoolMax: 4 << 30, CaptureStdin: "control",
			PresenceTTL: 30 * time.Second,
		},
		Dialect: dialect.Claude, SpoolRoot: root, Key: []byte("0123456789abcdef0123456789abcdef"),
		Partitions: 1, Version: "bench", SyncInterval: time.Second, Source: "import",
		Dial: func(ctx context.Context) (*bus.Bus, error) { return bus.Connect(ctx, bus.Config{URL: l.url}, nil) },
		Log:  slog.New(slog.DiscardHandler),
	}, r)
	if err == nil && (!out.Shipped || out.Lost.Frames > 0) {
		err = fmt.Errorf("not all shipped: %+v", out)
	}
	return err
}

// asyncWindow is how many messages of an async publisher are under way.
const asyncWindow = 1024

func async(ctx context.Context, l *lab, run string, all [][]byte, full bool) error {
	nc, err := nats.Connect(l.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(asyncWindow))
	if err != nil {
		return err
	}
	c := newCheap(run, true)
	for i, data := range all {
		m := c.make(uint64(i+1), data)
		sent := &nats.Msg{Subject: m.Subject, Data: data} // kept by the client until its ack
		if full {
			sent.Header = make(nats.Header, len(m.Header))
			for k, v := range m.Header {
				sent.Header[k] = []string{v[0]}
			}
		}
		if _, err := js.PublishMsgAsync(sent, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Windows of the raw fast-ingest publisher: acknowledged every fastFlow, two of
// them under way.
const fastFlow, fastWindow = 100, 200

// fastIngest is the least that publishes over fast-ingest (ADR-50): one batch,
// no recovery.
func fastIngest(ctx context.Context, l *lab, run string, all [][]byte, ids bool) error {
	nc, err := nats.Connect(l.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	prefix := nc.NewInbox()
	acks := make(chan *nats.Msg, 4*fastWindow)
	if _, err := nc.ChanSubscribe(prefix+".>", acks); err != nil {
		return err
	}
	base := prefix + "." + nuid.Next() + "." + strconv.Itoa(fastFlow) + ".fail."
	reply := func(seq uint64, op string) string { return base + strconv.FormatUint(seq, 10) + "." + op + ".$FI" }
	c := newCheap(run, ids)
	var acked uint64
	wait := func() (done bool, err error) {
		var m *nats.Msg
		select {
		case m = <-acks:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		var a struct {
			Type  string
			Seq   uint64
			Batch string
			Count uint64
			Error any
		}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return false, err
		}
		switch {
		case a.Error != nil || a.Type == "gap":
			return false, fmt.Errorf("server: %s", m.Data)
		case a.Type == "ack":
			acked = max(acked, a.Seq)
			return false, nil
		case a.Count != uint64(len(all)):
			return false, errors.New("batch ended early")
		}
		return true, nil
	}
	for i, data := range all {
		seq := uint64(i + 1)
		for seq > 1 && seq-acked > fastWindow || seq == 2 && acked == 0 {
			if seq == 2 { // the first acknowledgement admits the batch
				if _, err := wait(); err != nil {
					return err
				}
				break
			}
			if _, err := wait(); err != nil {
				return err
			}
		}
		m := c.make(seq, data)
		op := "1"
		if i == 0 {
			op = "0"
		}
		m.Reply = reply(seq, op)
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
	}
	if err := nc.PublishMsg(&nats.Msg{Subject: c.msg.Subject, Reply: reply(uint64(len(all))+1, "3")}); err != nil {
		return err
	}
	for {
		if done, err := wait(); done || err != nil {
			return err
		}
	}
}
