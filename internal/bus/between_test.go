package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
)

// A tenant's messages between two places are as a durable consumer gives them, whatever
// their headers are called, and nobody else's are among them.
func TestBetween(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		for _, tenant := range []string{"acme", "other"} {
			m := nats.NewMsg(subject.Event{Tenant: tenant, Run: "r", Kind: "msg"}.String())
			m.Header = nats.Header{
				"Nats-Sequence": {"7"}, "Nats-Time-Stamp": {"late", "later"}, "Nats-Num-Pending": {"1"}, "X": {"b", "a"},
			}
			if i%2 == 0 {
				m.Header = nil
			}
			m.Data = []byte(tenant)
			if _, err := js.PublishMsgAsync(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-js.PublishAsyncComplete()
	r := readDurable(t, b, bus.DurableConfig{Log: 0, Headers: true})
	var want []bus.Delivery
	for _, d := range r.take(t, 6000) {
		if string(d.Raw.Data) == "acme" && d.At.Seq > 10 && d.At.Seq <= 5990 {
			want = append(want, d)
		}
	}
	r.stop()
	var got []bus.Delivery
	for d, err := range b.Between(t.Context(), 0, "acme", 10, 5990) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	if len(got) != 2990 || len(want) != 2990 {
		t.Fatalf("%d messages, %d wanted", len(got), len(want))
	}
	for i := range want {
		same(t, "message", want[i].Raw, got[i].Raw)
		same(t, "place", want[i].At, got[i].At)
	}
	for range b.Between(t.Context(), 0, "nobody", 0, 6000) {
		t.Error("something of nobody")
	}
	for range b.Between(t.Context(), 0, "acme", 6000, 6000) {
		t.Error("something between nothing")
	}
}

// Commands are given by their tenant, too.
func TestBetweenCommands(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	js, err := b.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i, tenant := range []string{"acme", "other", "acme", "other", "acme"} {
		if _, err := js.Publish(subject.Command(tenant, "r", string(rune('a'+i))), []byte{byte('a' + i)}); err != nil {
			t.Fatal(err)
		}
	}
	var got string
	for d, err := range b.Between(t.Context(), bus.CommandLog, "acme", 1, 4) {
		if err != nil {
			t.Fatal(err)
		}
		got += string(d.Raw.Data)
	}
	same(t, "commands", "c", got)
}
