package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/natsd"
)

// role is a process of its own.
func role(name string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch name {
	case "role-server":
		s, err := natsd.Start(natsd.Options{Dir: args[0], MaxStore: 16 << 30})
		if err != nil {
			return err
		}
		fmt.Println(s.ClientURL())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return s.Shutdown(context.Background())
	case "role-raw":
		return raw(ctx, args[0])
	case "role-nothing":
		return nothing(ctx, args[0], args[1])
	}
	return errors.New("unknown role")
}

// say tells how many events were handled, now and then.
func say(n int) {
	if n%500 == 0 {
		fmt.Println(n)
	}
}

// raw reads with the client library's own pull consumer and acks each message.
func raw(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := js.CreateConsumer(ctx, "EV_0", jetstream.ConsumerConfig{Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: bus.DefaultWindow})
	if err != nil {
		return err
	}
	fmt.Println(0)
	n := 0
	cc, err := c.Consume(func(m jetstream.Msg) {
		_ = m.Ack()
		n++
		say(n)
	}, jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	<-ctx.Done()
	cc.Drain()
	<-cc.Closed()
	return nc.FlushTimeout(10e9)
}

// A none does nothing with what it gets.
type none struct{ n int }

func (h *none) Handle(context.Context, *consume.Entry) error {
	h.n++
	say(h.n)
	return nil
}

func (h *none) Commit(context.Context, bool) (map[bus.Log]bus.Place, error) { return nil, nil }

func nothing(ctx context.Context, url, dir string) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println(0)
	c, err := consume.New(consume.Config{Name: "cbcast-nothing", Bus: b, Logs: []bus.Log{0}, Dir: dir}, &none{})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
