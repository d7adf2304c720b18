package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// An archiveRig is an archive with runs of tenant acme, or TENANT/RUN, and a state directory that has its key.
type archiveRig struct {
	t           *testing.T
	dest, state string
	env         []string
}

func newArchiveRig(t *testing.T, runs ...string) *archiveRig {
	t.Helper()
	r := &archiveRig{t: t, dest: filepath.Join(t.TempDir(), "archive"), state: t.TempDir()}
	r.env = []string{"CBCAST_ARCHIVE_DEST=" + r.dest, "CBCAST_STATE_DIR=" + r.state}
	file := filepath.Join(r.state, "archive", "signing.pem")
	if err := archive.NewKey(file); err != nil {
		t.Fatal(err)
	}
	store, err := segment.OpenDir(r.dest)
	if err != nil {
		t.Fatal(err)
	}
	a, err := segment.Open(t.Context(), segment.Options{
		Store: store, Keys: store, Dir: t.TempDir(), Signer: func() (ed25519.PrivateKey, error) {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			return segment.ParsePrivateKey(b)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	for i, run := range runs {
		at := old.Add(time.Duration(i) * time.Second)
		tenant := "acme"
		if of, name, ok := strings.Cut(run, "/"); ok {
			tenant, run = of, name
		}
		e := &event.Event{
			Tenant: tenant, Run: run, Seq: 1, Time: at, Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out,
			ContentType: event.JSON, Data: []byte(`{"run":"` + run + `"}`),
		}
		var header [][2]string
		e.Attributes(func(name, value string) {
			header = append(header, [2]string{event.HeaderPrefix + name, event.EncodeValue(value)})
		})
		subj := subject.Event{Tenant: e.Tenant, Run: run, Kind: string(e.Kind)}.String()
		rec := segment.NewRecord(0, e, subj, header, e.Data, uint64(i+1), at)
		if _, err := a.Append(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Seal(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// archive runs cbcast archive.
func (r *archiveRig) archive(want int, args ...string) (out, errs string) {
	r.t.Helper()
	var o, e bytes.Buffer
	code, _ := runMain(r.t.Context(), append([]string{"cbcast", "archive"}, args...), append([]string{"HOME=" + r.state}, r.env...),
		stdio{out: &o, err: &e})
	if code != want {
		r.t.Errorf("archive %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, &o, &e)
	}
	return o.String(), e.String()
}

func (r *archiveRig) says(text, want string) {
	r.t.Helper()
	if !strings.Contains(text, want) {
		r.t.Errorf("%q is not in:\n%s", want, text)
	}
}

// Commands that read create nothing, wherever they are sent, and say that nothing is there.
func TestArchiveNowhere(t *testing.T) {
	r := newArchiveRig(t)
	none := filepath.Join(t.TempDir(), "a", "b")
	for _, args := range [][]string{{"ls"}, {"show", "r"}, {"cat", "r"}, {"export", "r"}, {"verify"}, {"hold", "ls"}, {"erase", "r", "--reason", "x"}} {
		_, errs := r.archive(1, append(args, "--dest", none)...)
		r.says(errs, "there is no archive at "+none)
	}
	if _, err := os.Stat(filepath.Dir(none)); err == nil {
		t.Error("reading made a directory")
	}
	r.archive(1, "ls", "--dest", "s3:/bucket")
	if _, err := os.Stat("s3:"); err == nil {
		t.Error("a directory s3:")
	}
}

// Who may only read can read.
func TestArchiveReadOnly(t *testing.T) {
	r := newArchiveRig(t, "run-1")
	if err := os.RemoveAll(filepath.Join(r.dest, ".tmp")); err != nil {
		t.Fatal(err)
	}
	chmod := func(mode fs.FileMode) {
		err := filepath.WalkDir(r.dest, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(path, mode)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o500)
	t.Cleanup(func() { chmod(0o700) })
	for _, args := range [][]string{{"ls"}, {"show", "run-1"}, {"cat", "run-1"}, {"export", "run-1"}, {"verify", "--deep"}} {
		r.archive(0, args...)
	}
	if _, err := os.Stat(filepath.Join(r.dest, ".tmp")); err == nil { // root may
		t.Error("reading made .tmp")
	}
}

func TestArchiveVerify(t *testing.T) {
	r := newArchiveRig(t, "run-1")
	_, errs := r.archive(1, "verify", "--tenant", "zzz")
	r.says(errs, "no such tenant")
	r.archive(0, "verify", "--tenant", "acme")
	out, _ := r.archive(0, "verify")
	r.says(out, "1 tenant, 1 head, 1 segment, 1 record, 1 run,")
	names, err := filepath.Glob(filepath.Join(r.dest, "t", "*", "segments", "*", "*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = r.archive(exitTampered, "verify")
	r.says(out, "BAD  segment_damaged tenant=acme head=1")
	out, _ = r.archive(exitTampered, "verify", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var f segment.Finding
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.Code != segment.SegmentDamaged || f.Tenant != "acme" || !f.Bad {
		t.Errorf("%+v, %v", f, err)
	}
	var sum struct {
		OK  *bool `json:"ok"`
		Bad int   `json:"bad"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil || sum.OK == nil || *sum.OK || sum.Bad != len(lines)-1 {
		t.Errorf("%+v, %v in\n%s", sum, err, out)
	}
}

// What gets into the record for ever is looked at first.
func TestArchiveStatements(t *testing.T) {
	r := newArchiveRig(t, "run-1", "run-2")
	for _, args := range [][]string{
		{"erase", "run-1", "--reason", ""},
		{"hold", "add", "run-1", "--reason", " "},
		{"hold", "rm", "h", "--reason", ""},
		{"hold", "add", "--tenant", "not a tenant", "--reason", "x"},
	} {
		r.archive(exitUsage, args...)
	}
	_, errs := r.archive(1, "hold", "add", "--tenant", "zzz", "--reason", "x")
	r.says(errs, "no such tenant")
	r.archive(0, "hold", "add", "--tenant", "zzz", "--reason", "x", "--force")
	r.archive(1, "erase", "run", "--reason", "x") // a prefix is for reading
	r.archive(0, "hold", "add", "run-2", "--reason", "x", "--id", "h1")
	r.env = append(r.env, "CBCAST_ARCHIVE_RETENTION=1h")
	out, _ := r.archive(0, "retention")
	r.says(out, "tenant acme: 0 segments deleted")
	r.says(out, "segments with a run under a hold stay (1 hold)")
	r.archive(0, "hold", "add", "--tenant", "acme", "--reason", "x")
	out, _ = r.archive(0, "retention")
	r.says(out, "tenant acme: nothing deleted, it is under a legal hold")
}

// What erasing does not reach is named.
func TestArchiveErase(t *testing.T) {
	r := newArchiveRig(t, "run-1", "run-2")
	out, _ := r.archive(0, "erase", "run-1", "--reason", "x")
	for _, want := range []string{
		"1 record in 1 segment", "on the bus", "the spool", filepath.Join(r.state, "notify"), "cbcast notify forget run-1",
		"who got notices", "cbcast trace", "backups",
	} {
		r.says(out, want)
	}
}

// Runs to read are named by the beginning of their id, or as the last.
func TestArchiveNames(t *testing.T) {
	r := newArchiveRig(t, "aa-1", "ab-2", "ab-1")
	for name, want := range map[string]string{"aa": "aa-1", "ab-2": "ab-2", "last": "ab-1"} {
		out, _ := r.archive(0, "cat", name)
		if got := `{"run":"` + want + `"}` + "\n"; out != got {
			t.Errorf("%s: %q, want %q", name, out, got)
		}
	}
	r.archive(exitUsage, "cat", "ab")
	r.archive(1, "cat", "zz")
}
