package archive

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/subject"
)

// raw publishes messages as any client of NATS can, whose ids are no UTF-8.
func (r *rig) raw(ids ...string) {
	r.t.Helper()
	js := r.js()
	for _, id := range ids {
		m := nats.NewMsg(subject.Event{Tenant: tenant, Run: id, Kind: "msg"}.String())
		m.Header.Set("X-Mine", "yes")
		m.Data = []byte("of " + id)
		if _, err := js.PublishMsg(r.t.Context(), m); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A message of which no head could name the run or the tenant is a dead letter with its bytes;
// what comes before and behind it is archived, and all is acked, also where it is the last.
func TestNotUTF8(t *testing.T) {
	r := newRig(t)
	u := r.start()
	r.publish(tenant, "r1", 20)
	r.raw("bad\xff\xfe")
	r.publish(tenant, "r1", 20)
	m := nats.NewMsg(subject.Event{Tenant: "ten\xffant", Run: "r", Kind: "msg"}.String())
	if _, err := r.js().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	u.until("the rest", r.has())
	u.until("acked", func() bool {
		return u.value("cbcast_archive_dead_letters") == 2 && u.Status().Lag == 0 && u.Status().Unacked == 0
	})
	if err := u.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	ids, err := u.Dead().IDs()
	if err != nil || len(ids) != 2 {
		t.Fatalf("letters %v, %v", ids, err)
	}
	d, err := u.Dead().Read(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if string(d.Data) != "of bad\xff\xfe" || len(d.Header) != 1 || d.Header[0] != [2]string{"X-Mine", "yes"} || !strings.Contains(d.Reason, "UTF-8") ||
		d.Subject != (subject.Event{Tenant: tenant, Run: "bad\xff\xfe", Kind: "msg"}).String() {
		t.Errorf("letter %+v", d)
	}
	_ = u.close()
	u = r.start()
	r.publish(tenant, "r1", 20)
	u.until("after a restart", r.has())
	_ = u.close()
	r.check()
}

// With as many dead letters as there may be nothing more is archived. That is said, with the
// command that helps, and when letters are removed it goes on and has everything.
func TestDeadFull(t *testing.T) {
	r := newRig(t)
	u := r.start(func(o *Options) { o.maxDead = 3 })
	for i := range 4 {
		r.publish(tenant, "r1", 10)
		r.raw(fmt.Sprintf("bad\xff%d", i))
	}
	r.publish(tenant, "r1", 10)
	full := func() bool { return errors.Is(u.Ready(), consume.ErrDeadFull) }
	u.until("full", full)
	said := u.readyText()
	if !strings.Contains(said, "cbcast archive dead") || !strings.Contains(said, filepath.Join(r.dir, "dead")) {
		t.Errorf("ready: %s", said)
	}
	if u.value("cbcast_archive_dead_letters") != 3 || u.value("cbcast_archive_dead_letters_limit") != 3 {
		t.Error("the metrics do not say it")
	}
	ids, err := u.Dead().IDs()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Dead().Remove(ids[0]); err != nil {
		t.Fatal(err)
	}
	u.until("all", r.has())
	u.until("acked", func() bool { return u.Ready() == nil && u.Status().Lag == 0 && u.Status().Unacked == 0 })
	if ids, err := u.Dead().IDs(); err != nil || len(ids) != 3 {
		t.Errorf("letters %v, %v", ids, err)
	}
	_ = u.close()
	r.check()
}
