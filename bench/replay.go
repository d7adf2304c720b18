package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	replayEvents = 1_000_000
	replayRuns   = 100
	replayBatch  = 1024 // messages of one direct-get batch
)

// replay reads single runs out of a stream of many interleaved ones, through
// bus.History and with direct-get batches alone.
func replay(ctx context.Context, o options) error {
	l, err := startLab(ctx)
	if err != nil {
		return err
	}
	defer l.stop()
	lens, first, err := load(ctx, l, o.scaled(replayEvents))
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	b, err := bus.Connect(ctx, bus.Config{URL: l.url}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	// Every measurement reads the next run, and the candidates of a round the
	// same one, so that none finds what only it has warmed.
	turn := map[string]int{}
	rate := func(name string, f func(ctx context.Context, run int) (int, error)) *candidate {
		return &candidate{name: name, run: func(ctx context.Context) (float64, error) {
			run := turn[name] % replayRuns
			turn[name]++
			begin := time.Now()
			n, err := f(ctx, run)
			if err == nil && n != lens[run] {
				err = fmt.Errorf("%d events of %d", n, lens[run])
			}
			return float64(n) / time.Since(begin).Seconds(), err
		}}
	}
	ref := func(run int) bus.Ref { return bus.Ref{Tenant: tenant, Run: runName(run), First: first[run]} }
	raw := rate("direct-get batches", func(ctx context.Context, run int) (int, error) {
		return direct(ctx, l, run, first[run])
	})
	history := rate("bus.History", func(ctx context.Context, run int) (int, error) {
		return read(ctx, b, ref(run), 0)
	})
	blind := rate("bus.History, place unknown", func(ctx context.Context, run int) (int, error) {
		return read(ctx, b, bus.Ref{Tenant: tenant, Run: runName(run)}, 0)
	})
	cs := []*candidate{raw, history, blind}
	if err := interleave(ctx, 3*o.rounds, cs); err != nil {
		return err
	}
	table(fmt.Sprintf("**Replay of one run of %d events out of %d in %d interleaved runs**", lens[0], o.scaled(replayEvents), replayRuns),
		"events/s", cs, raw)

	half := &candidate{name: "from the middle", run: func(ctx context.Context) (float64, error) {
		run := turn["half"] % replayRuns
		turn["half"]++
		begin := time.Now()
		for _, err := range b.History(ctx, ref(run), uint64(lens[run]/2)) {
			if err != nil {
				return 0, err
			}
			break
		}
		return float64(time.Since(begin).Microseconds()) / 1000, nil
	}}
	begin := &candidate{name: "from the beginning", run: func(ctx context.Context) (float64, error) {
		run := turn["begin"] % replayRuns
		turn["begin"]++
		begin := time.Now()
		for _, err := range b.History(ctx, ref(run), 0) {
			if err != nil {
				return 0, err
			}
			break
		}
		return float64(time.Since(begin).Microseconds()) / 1000, nil
	}}
	cs = []*candidate{begin, half}
	if err := interleave(ctx, 3*o.rounds, cs); err != nil {
		return err
	}
	table("**First event of a replay, same stream**", "ms", cs)
	return nil
}

func runName(i int) string { return fmt.Sprintf("replay-%d", i) }

// load stores n events of about 512 B in bursts of random runs, and returns the
// length and the first stream sequence of each.
func load(ctx context.Context, l *lab, n int) (lens []int, first []uint64, err error) {
	lens, first = make([]int, replayRuns), make([]uint64, replayRuns)
	data := frames(1000, 400)[1:]
	makers := make([]*cheap, replayRuns)
	for i := range makers {
		makers[i] = newCheap(runName(i), false)
	}
	r := rand.New(rand.NewPCG(7, 7))
	js, err := jetstream.New(l.nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return nil, nil, err
	}
	for seq := 1; seq <= n; {
		run := r.IntN(replayRuns)
		for range min(1+r.IntN(20), n-seq+1) {
			if lens[run]++; lens[run] == 1 {
				first[run] = uint64(seq)
			}
			m := makers[run].make(uint64(lens[run]), data[seq%len(data)])
			sent := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: make(nats.Header, len(m.Header))}
			for k, v := range m.Header {
				sent.Header[k] = []string{v[0]}
			}
			if _, err := js.PublishMsgAsync(sent, jetstream.WithStallWait(time.Minute)); err != nil {
				return nil, nil, err
			}
			seq++
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	return lens, first, nil
}

func read(ctx context.Context, b *bus.Bus, r bus.Ref, after uint64) (n int, err error) {
	for _, err := range b.History(ctx, r, after) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func direct(ctx context.Context, l *lab, run int, from uint64) (n int, err error) {
	filter := subject.RunFilter(0, tenant, runName(run))
	for {
		got := 0
		msgs, err := jetstreamext.GetBatch(ctx, l.js, "EV_0", replayBatch,
			jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchSubject(filter))
		if err != nil {
			return n, err
		}
		for m, err := range msgs {
			if err != nil {
				return n, err
			}
			got++
			from = m.Sequence + 1
		}
		if n += got; got < replayBatch {
			return n, nil
		}
	}
}
