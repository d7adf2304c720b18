package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// A reader's place in a log is where it goes on, also after the log was made anew
// or has let its beginning go.
func TestPlaces(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	fill(t, b, 3, 100)

	ready, got := make(chan bus.Place, 1), make(chan bus.Entry, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.TailLog(ctx, 0, func(at bus.Place) { ready <- at }, func(e *event.Event, at bus.Place) { got <- bus.Entry{Event: e, At: at} })
	}()
	head := <-ready
	publish(t, b, "r9", newMemory(evs("r9", 5)...).end())
	var live []bus.Entry
	for range 5 {
		live = append(live, <-got)
	}
	cancel()
	<-done
	if head.Seq != 300 || head.Time.IsZero() || live[0].At.Seq != 301 {
		t.Fatalf("tail is ready at %+v and begins at %+v", head, live[0].At)
	}

	read := func(after, to bus.Place, kind string) (list []bus.Entry) {
		t.Helper()
		for e, err := range b.ReadLog(t.Context(), 0, after, to, "", kind) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		return list
	}
	if d := cmp.Diff(live, read(head, live[4].At, "")); d != "" {
		t.Errorf("read behind the head's place (-live +read):\n%s", d)
	}
	if list := read(bus.Place{}, live[4].At, "ask"); len(list) > 0 {
		t.Errorf("%d events of a kind that there is none of", len(list))
	}
	if list := read(bus.Place{}, live[2].At, "msg"); len(list) != 303 {
		t.Errorf("%d events up to the 303rd", len(list))
	}

	locate := func(at bus.Place) string {
		t.Helper()
		from, turn, err := b.Locate(t.Context(), 0, at)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(from.Seq, " ", turn)
	}
	old := read(bus.Place{}, live[4].At, "")[9].At // behind the 10th
	for _, c := range []struct {
		name string
		at   bus.Place
		want string
	}{
		{"the beginning", bus.Place{}, "0 0"},
		{"the head", live[4].At, "305 0"},
		{"a place without time", bus.Place{Seq: 7}, "7 0"},
		{"another message there", bus.Place{Seq: 300, Time: head.Time.Add(10 * time.Second)}, "305 2"},
		{"beyond the end", bus.Place{Seq: 1000, Time: live[4].At.Time.Add(time.Hour)}, "305 2"},
		{"beyond, everything is newer", bus.Place{Seq: 1000, Time: head.Time.Add(-time.Hour)}, "0 2"},
	} {
		if got := locate(c.at); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "EV_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keep uint64
		want string
	}{{11, "10 0"}, {12, "11 1"}} {
		if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(c.keep)); err != nil {
			t.Fatal(err)
		}
		if got := locate(old); got != c.want {
			t.Errorf("kept from %d on: a place behind 10 is %s, want %s", c.keep, got, c.want)
		}
	}
}
