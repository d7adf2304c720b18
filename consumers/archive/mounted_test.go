package archive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/segment"
)

// Reading creates nothing, and says where it has looked for an archive.
func TestNoArchive(t *testing.T) {
	c := &Config{Dest: filepath.Join(t.TempDir(), "a", "b")}
	p, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.OpenExisting(t.Context())
	if !errors.Is(err, segment.ErrNoArchive) || !strings.Contains(err.Error(), "there is no archive at "+c.Dest) {
		t.Errorf("OpenExisting: %v", err)
	}
	_, err = p.Reader().Run(t.Context(), "", "r")
	if _, terr := p.Reader().Tenants(t.Context()); !errors.Is(err, segment.ErrNoArchive) || !errors.Is(terr, segment.ErrNoArchive) {
		t.Errorf("Run: %v, Tenants: %v", err, terr)
	}
	if err := Write(t.Context(), c, t.TempDir(), nil); !errors.Is(err, segment.ErrNoArchive) {
		t.Errorf("Write: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(c.Dest)); err == nil {
		t.Error("reading made the directory")
	}
	if _, err := (&Config{Dest: "s3:/bucket"}).Open(); err == nil {
		t.Error("s3:/bucket is taken for a directory")
	}
}

// An archive whose place is not mounted is not begun anew there, in no process, and what
// waits is counted, also by who never opened it.
func TestNotMounted(t *testing.T) {
	r := newRig(t)
	r.cfg.Heads = filepath.Join(t.TempDir(), "heads.ndjson")
	u := r.start()
	r.publish(tenant, "r1", 100)
	u.until("before", r.has())
	u.until("acked", func() bool { return u.lagNow().messages == 0 })
	away := r.cfg.Dest + ".away"
	if err := os.Rename(r.cfg.Dest, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.cfg.Dest, 0o700); err != nil { // the mount point
		t.Fatal(err)
	}
	r.publish(tenant, "r1", 50)
	empty := func() {
		t.Helper()
		if entries, err := os.ReadDir(r.cfg.Dest); err != nil || len(entries) > 0 {
			t.Errorf("in the mount point: %v, %v", entries, err)
		}
	}
	refused := func() bool { return strings.Contains(u.readyText(), "is the place mounted?") }
	u.until("not ready", func() bool { return u.Ready() != nil })
	_ = u.close()
	empty()
	u = r.start()
	u.until("refused", refused)
	u.until("counted", func() bool { l := u.lagNow(); return l.messages == 50 && l.age > 0 })
	_ = u.close()
	empty()
	state := r.dir
	r.dir = filepath.Join(t.TempDir(), "lost") // only the copies of heads know
	u = r.start()
	u.until("refused by another", refused)
	_ = u.close()
	empty()
	r.dir = state
	if err := os.Remove(r.cfg.Dest); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, r.cfg.Dest); err != nil {
		t.Fatal(err)
	}
	u = r.start()
	u.until("after", r.has())
	_ = u.close()
	r.check()
}

func (u *running) readyText() string {
	if err := u.Ready(); err != nil {
		return err.Error()
	}
	return ""
}
