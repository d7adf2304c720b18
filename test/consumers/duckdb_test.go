package consumers

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

// DuckDB reads what export writes as Parquet, and can look into the agent's JSON.
func TestParquetInDuckDB(t *testing.T) {
	python := s3Tool(t, "python/bin/python")
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := archive.Config{Dest: filepath.Join(t.TempDir(), "archive")}
	place, err := cfg.Open()
	if err != nil {
		t.Fatal(err)
	}
	ar, err := segment.Open(t.Context(), segment.Options{
		Store: place.Store, Keys: place.Keys, Dir: t.TempDir(), Signer: func() (ed25519.PrivateKey, error) { return private, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	stored := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := uint64(1); i <= n; i++ {
		e := &event.Event{
			Tenant: "acme", Run: "r1", Seq: i, Time: stored, Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out,
			ContentType: event.JSON, Data: fmt.Appendf(nil, `{"message":{"usage":{"output_tokens":%d}}}`, i), Ext: map[string]string{"ask": "a1"},
		}
		if i == n {
			e.Kind, e.ContentType, e.Data = event.Raw, event.Binary, []byte("\xffbytes")
		}
		var header [][2]string
		e.Attributes(func(name, value string) { header = append(header, [2]string{"ce-" + name, event.EncodeValue(value)}) })
		r := segment.NewRecord(0, e, "cbc.ev.0.acme.r1._._."+string(e.Kind), header, e.Data, i, stored.Add(time.Duration(i)))
		if _, err := ar.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ar.Seal(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := ar.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run.parquet")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := archive.Export(t.Context(), place, "acme", "r1", archive.Parquet, f); err != nil || x.Events != n {
		t.Fatalf("Export = %+v, %v", x, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	query := fmt.Sprintf(`SELECT count(*), max(seq), min(run), sum(CAST(json_extract(json, '$.message.usage.output_tokens') AS BIGINT)),
	  count(data), max(hex(data)), min(stored_at)::VARCHAR, max(ext['ask']) FROM '%s'`, file)
	cmd := exec.CommandContext(t.Context(), python, "-c", "import duckdb, sys; print(*duckdb.execute(sys.argv[1]).fetchall()[0], sep='|')", query)
	cmd.Env = append(os.Environ(), "TZ=UTC", "HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	want := fmt.Sprintf("%d|%d|r1|%d|1|FF6279746573|2026-03-01 12:00:00", n, n, (n-1)*n/2)
	if got := strings.TrimSpace(string(out)); !strings.HasPrefix(got, want) || !strings.Contains(got, "a1") {
		t.Errorf("DuckDB says %s, want %s…", got, want)
	}
}
