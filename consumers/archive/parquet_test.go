package archive

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

func TestParquetRoundTrip(t *testing.T) {
	at := time.Date(2026, 3, 1, 23, 59, 59, 123456789, time.UTC)
	records := []struct {
		r segment.Record
		e *event.Event
	}{
		{segment.Record{StreamSeq: 7, Stored: at.Add(time.Second)}, &event.Event{
			Tenant: "acme", Run: "r1", Seq: 1, Time: at, Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out,
			Session: "s", Task: "t", Parent: "p", ContentType: event.JSON, TraceParent: "00-1-2-01",
			Redacted: []event.Span{{Rule: "bearer", Off: 3, Len: 4, RawLen: 40}, {Rule: "jwt", Off: 9, Len: 4, RawLen: 4}},
			RawLen:   99, RawHash: "h", Ext: map[string]string{"ask": "a1", "ci": "x"}, Data: []byte(`{"a": 1.0 }`),
		}},
		{segment.Record{StreamSeq: 8, Stored: at}, &event.Event{
			Tenant: "acme", Run: "r1", Seq: 2, Time: at, Type: "dev.cbcast.claude.raw", Kind: event.Raw, Stream: event.Err,
			ContentType: event.Binary, Chunk: event.Part{I: 1, N: 2}, Cut: true, Data: []byte{0, 0xff, '\n'},
		}},
		{segment.Record{Log: segment.Control, StreamSeq: 1, Stored: at}, &event.Event{
			Tenant: "acme", Run: "r1", Ref: "audit-1", Time: at, Type: event.TypeAudit, Kind: event.Cmd,
			ContentType: event.JSON, Data: []byte(`{"actor":"alice"}`),
		}},
	}
	var out bytes.Buffer
	w := newParquetWriter(&out)
	var want []parquetRow
	for _, r := range records {
		if err := w.add(&r.r, r.e); err != nil {
			t.Fatal(err)
		}
		want = append(want, rowOf(&r.r, r.e))
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[parquetRow](bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Time, got[i].StoredAt = got[i].Time.UTC(), got[i].StoredAt.UTC()
		if len(got[i].Ext) == 0 {
			got[i].Ext = nil
		}
		if len(got[i].Redacted) == 0 {
			got[i].Redacted = nil
		}
		if len(got[i].Data) == 0 {
			got[i].Data = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
}
