package archive

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/event"
)

// small mounts a disk of a few bytes. grow makes it large.
func small(t *testing.T, dir, size string) (grow func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a disk that is full needs the right to mount one: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return func() {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
			t.Fatal(err)
		}
	}
}

// random is an event of 100 kB that does not get smaller.
func random(n uint64) *event.Event {
	rnd := rand.New(rand.NewPCG(n, 7))
	data := []byte(`{"text":"`)
	for len(data) < 100_000 {
		data = strconv.AppendUint(data, rnd.Uint64(), 36)
	}
	return &event.Event{
		Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, ContentType: event.JSON, Data: append(data, `"}`...),
	}
}

// The disk of the archive, or of what is not sealed, is full: that is said, nothing is lost, no
// tenant is blamed, and all goes on when there is room, also after a restart in between.
func TestDiskFull(t *testing.T) {
	for name, dir := range map[string]func(*rig) string{
		"archive": func(r *rig) string { return r.cfg.Dest },
		"state":   func(r *rig) string { return r.dir },
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " restarted"}[restart], func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				grow := small(t, dir(r), "2m")
				r.cfg.Memory = 256 << 10
				if name == "state" {
					r.cfg.SealAge = maxSealAge // all of it has to be there
				}
				u := r.start(quickLook)
				r.publish("other", "o1", 10)
				if name == "archive" {
					u.until("before", r.has())
				}
				r.publish(tenant, "r1", 40, random)
				r.publish("other", "o1", 10)
				u.until("full", func() bool { return strings.Contains(u.readyText(), "no space left on device") })
				if restart {
					_ = u.close() // what is not sealed comes again
					u = r.start(quickLook)
					u.until("still full", func() bool { return strings.Contains(u.readyText(), "no space left on device") })
				}
				if n := u.asideNow(); n != 0 {
					t.Errorf("%v tenants are blamed", n)
				}
				grow()
				if name == "archive" {
					u.until("all", r.has())
					u.until("ready and acked", func() bool { return u.Ready() == nil && u.Status().Lag == 0 })
				} else {
					u.until("all is read", func() bool { return u.Ready() == nil && u.Status().Handled >= 60 })
				}
				if err := u.close(); err != nil { // seals the rest
					t.Error(err)
				}
				r.check()
			})
		}
	}
}
