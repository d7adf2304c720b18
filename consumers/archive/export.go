package archive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

// Formats of [Export].
const (
	NDJSON      = "ndjson"      // the agent's own lines of JSON, byte for byte
	CloudEvents = "cloudevents" // each event in the CloudEvents JSON format, one a line
	Parquet     = "parquet"     // one row an event; docs/archive.md has the columns
)

// Formats lists them.
var Formats = []string{NDJSON, CloudEvents, Parquet}

// Exported counts what was written, and what was not.
type Exported struct {
	Events  int64
	Foreign int64 // messages that are no events: only the archive itself has them
	NotJSON int64 // NDJSON: lines of the agent that are no JSON
	Gone    int   // segments that retention deleted

	// Damaged are the segments of which not everything, or nothing, was written.
	Damaged []error
}

// Cat writes what a run's child wrote to its streams, byte for byte: each frame with
// the LF that ended it. What was masked stays masked.
func Cat(ctx context.Context, p Place, tenant, run string, streams []event.Stream, w io.Writer) (Exported, error) {
	var x Exported
	bw := bufio.NewWriterSize(w, 1<<16)
	err := frames(ctx, p, tenant, run, &x, func(e *event.Event) error {
		if !slices.Contains(streams, e.Stream) {
			return nil
		}
		x.Events++
		return line(bw, e)
	})
	return x, errors.Join(err, bw.Flush())
}

func line(w *bufio.Writer, e *event.Event) error {
	if _, err := w.Write(e.Data); err != nil {
		return err
	}
	if e.Cut {
		return nil
	}
	return w.WriteByte('\n')
}

// frames yields a run's frames, put together from their chunks.
func frames(ctx context.Context, p Place, tenant, run string, x *Exported, fn func(*event.Event) error) error {
	var j event.Joiner
	err := records(ctx, p, tenant, run, x, func(r *segment.Record, e *event.Event) error {
		if r.Log < 0 {
			return nil
		}
		whole, _, broken := j.Add(e)
		if broken != nil {
			if err := fn(broken); err != nil {
				return err
			}
		}
		if whole != nil {
			return fn(whole)
		}
		return nil
	})
	if rest := j.Flush(); rest != nil && err == nil {
		err = fn(rest)
	}
	return err
}

// records yields a run's events, log by log, as far as they can be read. Of a run that was erased the error is a
// *segment.ErasedError.
func records(ctx context.Context, p Place, tenant, run string, x *Exported, fn func(*segment.Record, *event.Event) error) error {
	for r, err := range p.Reader().Records(ctx, segment.Query{Tenant: tenant, Run: run}) {
		gone, bad := (*segment.GoneError)(nil), (*segment.DamagedError)(nil)
		switch {
		case errors.As(err, &gone):
			x.Gone++
			continue
		case errors.As(err, &bad):
			x.Damaged = append(x.Damaged, bad)
			continue
		case err != nil:
			return err
		}
		e, err := r.Event()
		if err != nil {
			x.Foreign++
			continue
		}
		if err := fn(r, e); err != nil {
			return err
		}
	}
	return nil
}

// Export writes a run in a format.
func Export(ctx context.Context, p Place, tenant, run, format string, w io.Writer) (Exported, error) {
	switch format {
	case NDJSON:
		return exportNDJSON(ctx, p, tenant, run, w)
	case CloudEvents:
		return exportEvents(ctx, p, tenant, run, w)
	case Parquet:
		return exportParquet(ctx, p, tenant, run, w)
	}
	return Exported{}, fmt.Errorf("format %q; there are %v", format, Formats)
}

func exportNDJSON(ctx context.Context, p Place, tenant, run string, w io.Writer) (Exported, error) {
	var x Exported
	bw := bufio.NewWriterSize(w, 1<<16)
	err := frames(ctx, p, tenant, run, &x, func(e *event.Event) error {
		if e.Stream != event.Out {
			return nil
		}
		if !lineOfJSON(e) {
			x.NotJSON++
			return nil
		}
		x.Events++
		if _, err := bw.Write(e.Data); err != nil {
			return err
		}
		return bw.WriteByte('\n')
	})
	return x, errors.Join(err, bw.Flush())
}

// lineOfJSON reports whether a frame is one line of JSON, or several deltas of them.
func lineOfJSON(e *event.Event) bool {
	switch e.ContentType {
	case event.JSON:
		return bytes.IndexByte(e.Data, '\n') < 0 && json.Valid(e.Data)
	case event.NDJSON:
		for l := range bytes.SplitSeq(e.Data, []byte("\n")) {
			if !json.Valid(l) {
				return false
			}
		}
		return true
	}
	return false
}

func exportEvents(ctx context.Context, p Place, tenant, run string, w io.Writer) (Exported, error) {
	var x Exported
	bw := bufio.NewWriterSize(w, 1<<16)
	var buf []byte
	err := records(ctx, p, tenant, run, &x, func(_ *segment.Record, e *event.Event) error {
		x.Events++
		buf = append(e.AppendJSON(buf[:0]), '\n')
		_, err := bw.Write(buf)
		return err
	})
	return x, errors.Join(err, bw.Flush())
}

func exportParquet(ctx context.Context, p Place, tenant, run string, w io.Writer) (Exported, error) {
	var x Exported
	pw := newParquetWriter(w)
	err := records(ctx, p, tenant, run, &x, func(r *segment.Record, e *event.Event) error {
		x.Events++
		return pw.add(r, e)
	})
	if err != nil {
		return x, err
	}
	return x, pw.close()
}
