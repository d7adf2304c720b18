package notify

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/consume"
)

// digestOf is an item of a digest that tells of runs.
func digestOf(d *desk, id string, runs ...string) (*item, *sink.Notice) {
	n := &sink.Notice{ID: id, Kind: sink.Digest, At: time.Now().UTC(), Note: "several"}
	it := d.newItem(n, n.ID, target{Dest: "mail"}, sink.Digest, time.Now())
	for i, r := range runs {
		n.Digest = append(n.Digest, sink.Line{Kind: sink.Finished, Tenant: "t", Run: r, Text: "text of " + r})
		it.Members = append(it.Members, fmt.Sprintf("%s/%d", r, i+1))
	}
	return it, n
}

func inFiles(t *testing.T, dir, word string) (files []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	more, _ := filepath.Glob(filepath.Join(dir, "*", "*")) // the pattern is right
	for _, name := range append(names, more...) {
		data, rerr := os.ReadFile(name)
		if rerr == nil && strings.Contains(string(data), word) {
			files = append(files, strings.TrimPrefix(name, dir))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A run goes out of digests, too, wherever these are, out of every file of what was told,
// and out of events that could not be handled. Another tenant's run of the same name stays.
func TestForgetEverywhere(t *testing.T) {
	dir := t.TempDir()
	open := func() *desk {
		d, err := openDesk(dir, time.Hour, slog.New(slog.DiscardHandler), newMetrics())
		if err != nil {
			t.Fatal(err)
		}
		d.idle, d.rules = true, &Rules{}
		return d
	}
	d := open()
	const gone, stays = "gone-run-1", "stays-run-2"
	now := time.Now().UTC()
	d.mu.Lock()
	both, note := digestOf(d, "digest/both", gone, stays)
	alone, aloneNote := digestOf(d, "digest/alone", gone)
	d.put(&record{Items: []*item{both, alone}, Notes: []*sink.Notice{note, aloneNote}})
	d.mu.Unlock()
	for i, runs := range [][]string{{gone, stays}, {gone}, {stays}} {
		it, n := digestOf(d, fmt.Sprint("digest/dead", i), runs...)
		if err := d.dead.put(letter{Item: it, Notice: n, At: now}); err != nil {
			t.Fatal(err)
		}
		it, n = digestOf(d, fmt.Sprint("digest/sent", i), runs...)
		d.sent.add(it, n, now)
	}
	// Several files of what was told, the run in each, with the longest lines there are.
	for range 3 {
		var all []*marks
		for i := range 50 {
			all = append(all, &marks{Tenant: "t", Run: fmt.Sprint("many-", i), At: now, Late: []string{strings.Repeat("x", 100<<10)}})
		}
		all = append(all, &marks{Tenant: "t", Run: gone, At: now, End: sink.Finished}, &marks{Tenant: "other", Run: gone, At: now, Ask: 7},
			&marks{Tenant: "t", Run: stays, At: now, Ask: 3})
		if err := d.told.put(all, now); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range []string{gone, stays} {
		e, err := json.Marshal(consume.Dead{Tenant: "t", Run: r, Log: "EV", Seq: uint64(i), Time: now, Reason: "of " + r})
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "dead"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "dead", fmt.Sprintf("EV-%d.json", i)), e, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := consume.OpenLetters(dir).IDs(); err != nil || len(ids) != 2 {
		t.Fatalf("letters %v %v", ids, err)
	}
	if _, err := d.forget(Forget{Run: gone}); err == nil || !strings.Contains(err.Error(), "2 tenants, other and t") {
		t.Errorf("of which tenant: %v", err)
	}
	f, err := d.forget(Forget{Run: gone, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if f.Waiting != 1 || f.Letters != 2 || f.Sent != 2 || f.Events != 1 {
		t.Errorf("forgot %+v", f)
	}
	check := func(d *desk) {
		t.Helper()
		if m, err := d.told.get("t", gone); err != nil || m.End != "" || !m.At.IsZero() || !d.told.forgotten("t", gone) {
			t.Errorf("told of the run: %+v %v", m, err)
		}
		if m, err := d.told.get("t", stays); err != nil || m.Ask != 3 {
			t.Errorf("told of the other: %+v %v", m, err)
		}
		if m, err := d.told.get("other", gone); err != nil || m.Ask != 7 || d.told.forgotten("other", gone) {
			t.Errorf("told of the other tenant's: %+v %v", m, err)
		}
		if m, err := d.told.get("t", "many-49"); err != nil || len(m.Late) != 1 {
			t.Errorf("told of the last of many: %v", err)
		}
		if len(d.st.items) != 1 || len(d.st.notes["digest/both"].Digest) != 1 || len(d.st.items["digest/both@mail"].Members) != 1 {
			t.Errorf("waiting: %v", d.st.items)
		}
		list, err := d.dead.all()
		if err != nil || len(list) != 2 || len(list[0].Notice.Digest) != 1 || list[0].Notice.Digest[0].Run != stays || d.dead.count() != 2 {
			t.Errorf("letters: %v %v", list, err)
		}
	}
	check(d)
	if err := d.told.put([]*marks{{Tenant: "t", Run: gone, At: now}}, now); err != nil { // of an attempt that was under way
		t.Fatal(err)
	}
	for _, word := range []string{`"run":"` + gone + `"`, "text of " + gone, `"Run":"` + gone + `"`, gone + "/1"} {
		files := inFiles(t, dir, word)
		for _, name := range files {
			if !strings.HasPrefix(name, "/told/") { // the other tenant's
				t.Errorf("%s is still in %s", word, name)
			}
		}
	}
	if n := len(inFiles(t, dir, `{"tenant":"t","run":"`+gone)); n != 0 {
		t.Errorf("%d files of what was told have it", n)
	}
	// What comes after is written behind it, and all of it is there after a restart.
	if err := d.told.put([]*marks{{Tenant: "t", Run: "new", At: now, Ask: 9}}, now); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	check(d)
	if m, err := d.told.get("t", "new"); err != nil || m.Ask != 9 || d.told.bad != (damage{}) {
		t.Errorf("what came after: %+v %v %+v", m, err, d.told.bad)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}
