package event_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
)

// One decoder for a row of metas gives each event its own.
func TestMetaDecoderRow(t *testing.T) {
	var d event.MetaDecoder
	for i := range 30 {
		want := full()
		switch i % 4 {
		case 1:
			want.Task, want.Redacted = "", nil
		case 2:
			want.Session = "another"
		case 3:
			want = &event.Event{Tenant: want.Tenant, Run: want.Run, Seq: want.Seq, Data: want.Data, Time: want.Time, Type: "x", Kind: event.Raw}
		}
		got := &event.Event{Tenant: want.Tenant, Run: want.Run, Seq: want.Seq, Data: want.Data}
		meta := event.AppendMeta(nil, want)
		if err := d.Decode(meta, got); err != nil {
			t.Fatal(err)
		}
		clear(meta) // nothing of it is kept
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("meta %d: %s", i, diff)
		}
		if err := d.Decode(event.AppendMeta(nil, want)[:9], &event.Event{}); err == nil {
			t.Error("a cut meta was taken")
		}
	}
}
