package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

// A parquetRow is one stored event as a row; docs/archive.md describes the columns.
// What an event does not have is null.
type parquetRow struct {
	Log       string    `parquet:"log,dict,zstd"`
	StreamSeq int64     `parquet:"stream_seq,delta,zstd"`
	StoredAt  time.Time `parquet:"stored_at,timestamp(nanosecond),zstd"`

	Tenant string    `parquet:"tenant,dict,zstd"`
	Run    string    `parquet:"run,dict,zstd"`
	Seq    *int64    `parquet:"seq,optional,zstd"`
	Ref    *string   `parquet:"ref,optional,zstd"`
	ID     string    `parquet:"id,zstd"`
	Time   time.Time `parquet:"time,timestamp(nanosecond),zstd"`
	Type   string    `parquet:"type,dict,zstd"`
	Kind   string    `parquet:"kind,dict,zstd"`
	Stream *string   `parquet:"stream,optional,dict,zstd"`

	Session *string `parquet:"session,optional,dict,zstd"`
	Task    *string `parquet:"task,optional,dict,zstd"`
	Parent  *string `parquet:"parent,optional,zstd"`

	ContentType string  `parquet:"content_type,dict,zstd"`
	Chunk       *int32  `parquet:"chunk,optional,zstd"`
	Chunks      *int32  `parquet:"chunks,optional,zstd"`
	Part        *int32  `parquet:"part,optional,zstd"`
	Parts       *int32  `parquet:"parts,optional,zstd"`
	Cut         bool    `parquet:"cut"`
	TraceParent *string `parquet:"traceparent,optional,zstd"`

	Redacted  []parquetSpan     `parquet:"redacted,list"`
	RawLength *int64            `parquet:"raw_length,optional,zstd"`
	RawHash   *string           `parquet:"raw_hash,optional,zstd"`
	Ext       map[string]string `parquet:"ext"`

	// The data is in exactly one of the two: JSON where it is one JSON value, so that
	// it can be queried, else Data. Both are the bytes as they were on the bus.
	JSON *string `parquet:"json,optional,zstd"`
	Data []byte  `parquet:"data,optional,zstd"`
}

// A parquetSpan is one masked place.
type parquetSpan struct {
	Rule      string `parquet:"rule,dict,zstd"`
	Offset    int64  `parquet:"offset,zstd"`
	Length    int64  `parquet:"length,zstd"`
	RawLength int64  `parquet:"raw_length,zstd"`
}

// rowGroup is how many rows are held before they are written.
const rowGroup = 4096

// rowGroupBytes bounds the data of the rows held.
const rowGroupBytes = 32 << 20

// A parquetWriter writes events as a Parquet file. Memory is bounded by one row group.
type parquetWriter struct {
	w    *parquet.GenericWriter[parquetRow]
	rows int
	held int
}

func newParquetWriter(w io.Writer) *parquetWriter {
	return &parquetWriter{w: parquet.NewGenericWriter[parquetRow](w,
		parquet.CreatedBy("cbcast", "", ""), parquet.Compression(&parquet.Zstd))}
}

// add writes one event.
func (p *parquetWriter) add(r *segment.Record, e *event.Event) error {
	row := rowOf(r, e)
	if _, err := p.w.Write([]parquetRow{row}); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	p.rows++
	p.held += len(e.Data)
	if p.rows < rowGroup && p.held < rowGroupBytes {
		return nil
	}
	p.rows, p.held = 0, 0
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

func (p *parquetWriter) close() error {
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

func rowOf(r *segment.Record, e *event.Event) parquetRow {
	row := parquetRow{
		Log: r.Log.String(), StreamSeq: int64(r.StreamSeq), StoredAt: r.Stored.UTC(),
		Tenant: e.Tenant, Run: e.Run, Ref: text(e.Ref), ID: e.ID(), Time: e.Time.UTC(), Type: e.Type,
		Kind: string(e.Kind), Stream: text(string(e.Stream)),
		Session: text(e.Session), Task: text(e.Task), Parent: text(e.Parent),
		ContentType: e.ContentType, Cut: e.Cut, TraceParent: text(e.TraceParent),
		RawHash: text(e.RawHash), Ext: e.Ext,
	}
	if e.Seq > 0 {
		row.Seq = number(int64(e.Seq))
	}
	if !e.Chunk.IsZero() {
		row.Chunk, row.Chunks = number(int32(e.Chunk.I)), number(int32(e.Chunk.N))
	}
	if !e.Part.IsZero() {
		row.Part, row.Parts = number(int32(e.Part.I)), number(int32(e.Part.N))
	}
	if e.RawLen > 0 {
		row.RawLength = number(int64(e.RawLen))
	}
	for _, s := range e.Redacted {
		row.Redacted = append(row.Redacted, parquetSpan{s.Rule, int64(s.Off), int64(s.Len), int64(s.RawLen)})
	}
	if isJSON(e) {
		row.JSON = text(string(e.Data))
	} else {
		row.Data = e.Data
	}
	return row
}

// isJSON reports whether an event's data is one whole JSON value.
func isJSON(e *event.Event) bool {
	return e.ContentType == event.JSON && e.Chunk.IsZero() && e.Part.IsZero() && json.Valid(e.Data) && bytes.IndexByte(e.Data, 0) < 0
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func number[T any](n T) *T { return &n }
