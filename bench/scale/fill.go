package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/subject"
)

const tenant = "scale"

func runName(i int) string { return fmt.Sprintf("0197d2a0-7c1e-7000-8000-%012d", i) }

// A filler writes the runs: the events as edges do, in the attributes that they
// have at least, and the registry.
type filler struct {
	o   options
	url string
	bus *bus.Bus
}

// inFlight bounds the messages of one connection that wait for their PubAck.
const inFlight = 8192

// fill returns how long the events took, 0 where they are there already.
func (f *filler) fill(ctx context.Context) (time.Duration, error) {
	top := bus.Topology{Partitions: f.o.partitions, MaxBytes: 32 << 30, SideBytes: 2 << 30, Duplicates: time.Second}
	if _, err := f.bus.Ensure(ctx, top); err != nil {
		return 0, err
	}
	if list, err := f.bus.Runs(ctx); err != nil || len(list) == f.o.runs {
		return 0, err
	}
	begin := time.Now()
	if err := f.events(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, f.registry(ctx)
}

func (f *filler) events(ctx context.Context) error {
	const writers = 2
	errs := make(chan error, writers)
	for w := range writers {
		go func() { errs <- f.write(ctx, w, writers) }()
	}
	var err error
	for range writers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// write publishes every writers-th run, active/writers of them at a time.
func (f *filler) write(ctx context.Context, w, writers int) error {
	nc, err := nats.Connect(f.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	if err != nil {
		return err
	}
	active := max(f.o.active/writers, 1)
	for from := w; from < f.o.runs; from += active * writers {
		for seq := 1; seq <= f.o.each; seq++ {
			for k := range active {
				run := from + k*writers
				if run >= f.o.runs {
					break
				}
				if _, err := js.PublishMsgAsync(f.event(run, seq), jetstream.WithStallWait(time.Minute)); err != nil {
					return err
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *filler) event(run, seq int) *nats.Msg {
	name := runName(run)
	s := subject.Event{Partition: subject.Partition(name, f.o.partitions), Tenant: tenant, Run: name, Session: name[24:], Kind: "msg"}
	typ, data := "dev.cbcast.claude.assistant", fmt.Sprintf(`{"type":"assistant","n":%d,"text":"one of the events of a run"}`, seq)
	switch seq {
	case 1:
		s.Kind = "life"
		typ, data = "dev.cbcast.edge.started", `{}`
	case f.o.each:
		s.Kind = "life"
		typ, data = "dev.cbcast.edge.exited", `{"code":0,"complete":true}`
	}
	return &nats.Msg{
		Subject: s.String(), Data: []byte(data),
		Header: nats.Header{
			"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprintf("%s/%d", name, seq)}, "ce-source": {"/cbcast/" + tenant + "/" + name},
			"ce-type": {typ}, "ce-time": {"2026-11-30T10:00:00.000000Z"}, "ce-datacontenttype": {"application/json"},
			"ce-sequence": {fmt.Sprintf("%020d", seq)}, "ce-session": {name[24:]}, "ce-stream": {"out"},
		},
	}
}

// registry writes the entries of all runs, with the hint where each begins, as
// edges do.
func (f *filler) registry(ctx context.Context) error {
	nc, err := nats.Connect(f.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	if err != nil {
		return err
	}
	base := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	infos := make([]bus.RunInfo, f.o.runs)
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < f.o.runs; i += 4 {
				name, at := runName(i), base.Add(time.Duration(i)*time.Second)
				infos[i] = bus.RunInfo{
					Run: name, Tenant: tenant, Partition: subject.Partition(name, f.o.partitions), Dialect: "claude", State: "done", Verdict: "success",
					Sessions: []string{name[24:]}, Started: at, Updated: at.Add(time.Minute), Ended: at.Add(time.Minute), LastSeq: uint64(f.o.each),
					Host: "host.example.com", Labels: map[string]string{"cirepo": "acme/app", "cijob": "test"}, Versions: map[string]string{"cli": "2.1.0"},
				}
				if _, seq, err := f.bus.FirstKept(ctx, infos[i].Ref()); err == nil {
					infos[i].First = seq
				}
			}
		})
	}
	wg.Wait()
	for _, i := range infos {
		data, err := json.Marshal(i)
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: "$KV." + subject.RunsBucket + "." + subject.Key(i.Run), Data: data}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
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
