package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
)

// spoil writes something else into the one file that a pattern below the archive names.
func (r *archiveRig) spoil(pattern string, with func([]byte) []byte) {
	r.t.Helper()
	names, err := filepath.Glob(filepath.Join(r.dest, pattern))
	if err != nil || len(names) != 1 {
		r.t.Fatal(pattern, names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(names[0]); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(names[0], with(b), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func cut(b []byte) []byte { return b[:len(b)/2] }

// TestArchiveTenantDamaged: one tenant whose files are damaged is named, with the exit status of an
// archive that is not what it was, and the others are served.
func TestArchiveTenantDamaged(t *testing.T) {
	for _, file := range []string{"tenants/beta", "t/beta/heads/*"} {
		r := newArchiveRig(t, "run-1", "beta/run-2", "run-3")
		r.spoil(file, cut)
		out, errs := r.archive(exitTampered, "ls")
		r.says(out, "run-1")
		r.says(errs, "beta")
		out, _ = r.archive(0, "ls", "--tenant", "acme")
		r.says(out, "run-3")
		out, errs = r.archive(0, "cat", "last")
		r.says(out, "run-3")
		r.says(errs, "not searched for the run")
		out, _ = r.archive(0, "show", "run-1")
		r.says(out, "acme")
		_, errs = r.archive(exitTampered, "show", "run-2")
		r.says(errs, "beta")
		out, _ = r.archive(0, "hold", "add", "run-3", "--reason", "x", "--id", "h1")
		r.says(out, "hold h1")
		out, errs = r.archive(exitTampered, "hold", "ls")
		r.says(out, "h1")
		r.says(errs, "beta")
		r.archive(0, "hold", "rm", "h1", "--reason", "x")
		_, errs = r.archive(exitTampered, "hold", "rm", "h9", "--reason", "x")
		r.says(errs, "beta")
		r.archive(0, "erase", "run-1", "--reason", "x")
		r.env = append(r.env, "CBCAST_ARCHIVE_RETENTION=1h")
		out, errs = r.archive(exitTampered, "retention")
		r.says(out, "tenant acme: 1 segment deleted")
		r.says(errs, "beta")
		out, _ = r.archive(exitTampered, "verify")
		r.says(out, "tenant=beta")
		if strings.Contains(out, "BAD  erased") || !strings.Contains(out, "note erased tenant=acme") {
			t.Error(out)
		}
	}
}

// TestArchiveSegmentCut: what is before the cut is given, and the rest is named.
func TestArchiveSegmentCut(t *testing.T) {
	r := newArchiveRig(t, "run-1", "run-2")
	r.spoil("t/acme/segments/*/*", func(b []byte) []byte {
		_, blocks := segmentBlocks(t, b)
		return b[:blocks[1]+10]
	})
	want := `{"run":"run-1"}` + "\n"
	out, errs := r.archive(exitTampered, "cat", "run-1")
	if out != want {
		t.Errorf("got %q", out)
	}
	r.says(errs, "run run-1 is not whole: segment 1 of tenant \"acme\"")
	r.says(errs, "1 of its 2 records can be read")
	for _, format := range []string{"ndjson", "cloudevents", "parquet"} {
		file := filepath.Join(t.TempDir(), "out")
		_, errs = r.archive(exitTampered, "export", "run-1", "--format", format, "-o", file)
		r.says(errs, "is not whole")
		if b, err := os.ReadFile(file); err != nil || len(b) == 0 || format == "ndjson" && string(b) != want {
			t.Errorf("%s: %q, %v", format, b, err)
		}
	}
	out, errs = r.archive(exitTampered, "show", "run-1")
	r.says(out, "run       run-1")
	r.says(errs, "segment 1")
	_, errs = r.archive(exitTampered, "cat", "run-2")
	r.says(errs, "run run-2 was not found, and not everything can be read")
	out, _ = r.archive(exitTampered, "ls")
	r.says(out, "run-1")
	out, _ = r.archive(exitTampered, "verify")
	r.says(out, "segment_truncated")
}

// segmentBlocks finds where blocks begin: the frames behind the header.
func segmentBlocks(t *testing.T, b []byte) (head int, at []int) {
	t.Helper()
	u32 := func(off int) int { return int(b[off]) | int(b[off+1])<<8 | int(b[off+2])<<16 | int(b[off+3])<<24 }
	head = u32(12)
	for off := head; b[off+8] == 1; off += 8 + u32(off) {
		at = append(at, off)
	}
	if len(at) < 2 {
		t.Fatalf("%d blocks", len(at))
	}
	return head, at
}

// TestArchiveCheck: what cannot be is told before anything is archived.
func TestArchiveCheck(t *testing.T) {
	r := newArchiveRig(t, "run-1")
	heads := filepath.Join(t.TempDir(), "heads.ndjson")
	r.env = append(r.env, "CBCAST_ARCHIVE_HEADS="+heads)
	out, _ := r.archive(0, "--check")
	r.says(out, r.dest)
	r.says(out, heads)
	r.says(out, "there is an archive")
	out, _ = r.archive(0, "--check", "--dest", filepath.Join(t.TempDir(), "new"))
	r.says(out, "no archive yet")
	if os.Getuid() != 0 { // who may write everywhere
		closed := filepath.Join(t.TempDir(), "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		_, errs := r.archive(1, "--check", "--dest", filepath.Join(closed, "archive"))
		r.says(errs, "CBCAST_ARCHIVE_DEST: "+closed+" cannot be written")
	}

	// A second place for heads that is not there would be waited for without end.
	for heads, want := range map[string]string{
		filepath.Join(t.TempDir(), "none", "heads.ndjson"): "there is no directory",
		t.TempDir(): "it is a directory",
		filepath.Join(r.dest, "signers", "000001.json", "heads"): "no directory",
	} {
		env := r.env
		r.env = append(r.env, "CBCAST_ARCHIVE_HEADS="+heads)
		for _, args := range [][]string{{"--check"}, nil} {
			_, errs := r.archive(exitUsage, args...)
			r.says(errs, "CBCAST_ARCHIVE_HEADS is "+heads)
			r.says(errs, want)
		}
		r.archive(0, "ls") // who reads needs none
		r.env = env
	}
}

// TestArchiveUnfit: a bucket in which two archives could overwrite each other is refused.
func TestArchiveUnfit(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("ETag", `"00000000000000000000000000000000"`)
	}))
	defer s.Close()
	r := newArchiveRig(t)
	r.env = append(r.env, "CBCAST_ARCHIVE_DEST=s3://bucket/a", "CBCAST_ARCHIVE_S3_ENDPOINT="+s.URL, "CBCAST_ARCHIVE_S3_REGION=us-east-1",
		"CBCAST_ARCHIVE_S3_PATH_STYLE=true", "CBCAST_ARCHIVE_S3_ACCESS_KEY=k", "CBCAST_ARCHIVE_S3_SECRET_KEY=secret")
	for _, args := range [][]string{{"--check"}, nil} {
		_, errs := r.archive(exitUsage, args...)
		r.says(errs, "not fit for an archive")
		r.says(errs, "does not honour If-None-Match")
	}
}

// TestLetters: all consumers list what they gave up in one way, and a letter that cannot be read
// hides no other.
func TestLetters(t *testing.T) {
	r := newArchiveRig(t)
	for _, consumer := range []string{"archive", "metrics", "notify"} {
		dir := filepath.Join(r.state, consumer)
		letters := consume.OpenLetters(dir)
		for seq := uint64(1); seq <= 2; seq++ {
			e := &consume.Entry{Log: 0, At: bus.Place{Seq: seq}, Raw: bus.Raw{Subject: "cb.x"}}
			if err := letters.Bury(consumer, e, os.ErrInvalid, 3); err != nil {
				t.Fatal(err)
			}
		}
		ids, err := letters.IDs()
		if err != nil || len(ids) != 2 {
			t.Fatal(ids, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "dead", ids[0]+".json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{}, {"--json"}} {
			var out, errs strings.Builder
			code, _ := runMain(t.Context(), append([]string{"cbcast", consumer, "dead"}, args...), append([]string{"HOME=" + r.state}, r.env...),
				stdio{out: &out, err: &errs})
			if code != 1 {
				t.Errorf("%s dead: exit %d", consumer, code)
			}
			r.says(out.String(), "invalid argument")
			r.says(errs.String(), ids[0])
		}
	}
}

// TestArchiveAtOnce: of several commands at once, each says what holds in the end.
func TestArchiveAtOnce(t *testing.T) {
	r := newArchiveRig(t, "run-1", "run-2", "run-3")
	type said struct {
		code int
		out  string
	}
	commands := [][]string{
		{"erase", "run-1", "--reason", "x"},
		{"erase", "run-1", "--reason", "y"},
		{"erase", "run-3", "--reason", "x"},
		{"hold", "add", "run-2", "--reason", "x", "--id", "h"},
		{"hold", "add", "run-2", "--reason", "x", "--id", "h"},
		{"erase", "run-2", "--reason", "x"},
	}
	got := make([]said, len(commands))
	var wg sync.WaitGroup
	for i, args := range commands {
		wg.Go(func() {
			var out, errs strings.Builder
			code, _ := runMain(t.Context(), append([]string{"cbcast", "archive"}, args...), append([]string{"HOME=" + r.state}, r.env...),
				stdio{out: &out, err: &errs})
			first, _, _ := strings.Cut(out.String(), "\n")
			got[i] = said{code, first + errs.String()}
		})
	}
	wg.Wait()
	if got[0] != got[1] || got[0].code != 0 || got[2].code != 0 {
		t.Errorf("erased: %+v", got[:3])
	}
	// One of the holds is there, or the run was erased before.
	if held, erased := 2-got[3].code-got[4].code, 1-got[5].code; held+erased != 1 {
		t.Errorf("held or erased: %+v", got[3:])
	}
	r.archive(0, "verify", "--deep")
}
