package notify

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func desked(t *testing.T, dir string) *desk {
	t.Helper()
	d, err := openDesk(dir, time.Hour, slog.New(slog.DiscardHandler), newMetrics())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A journal that is written anew while a decision is staged holds all of the decision
// or nothing: a crash right after leaves no item whose event would be decided again,
// and no end of an item without its letter.
func TestCompactStaged(t *testing.T) {
	dir := t.TempDir()
	d := desked(t, dir)
	past := append(append([]byte(`{"past":"`), bytes.Repeat([]byte("x"), 500_000)...), `"}`...)
	for range 3 {
		if _, err := d.journal.write(appendLine(nil, past)); err != nil {
			t.Fatal(err)
		}
	}
	before := d.journal.length()
	if before < minCompact {
		t.Fatalf("%d bytes are not compacted", before)
	}
	it := &item{ID: "r/3@cmd", Note: "r/3", Target: target{Dest: "cmd"}, Kind: sink.Finished, Tenant: "t", Run: "r", Expires: time.Now().Add(time.Hour)}
	d.mu.Lock()
	d.put(&record{
		Notes: []*sink.Notice{{ID: "r/3", Kind: sink.Finished, Run: "r", Tenant: "t"}}, Items: []*item{it},
		Marks: []*marks{{Tenant: "t", Run: "r", At: time.Now(), End: sink.Finished}},
	})
	d.mu.Unlock()
	if err := d.dead.put(letter{Item: &item{ID: "q/1@cmd"}, How: "dead"}); err != nil {
		t.Fatal(err)
	}
	d.commitMu.Lock()
	err := d.compact()
	d.commitMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if n := d.journal.length(); n >= before {
		t.Fatalf("%d bytes, %d before: nothing was compacted", n, before)
	}
	if d.dead.log.synced != d.dead.log.length() {
		t.Error("a letter is not on the disk")
	}
	if err := d.close(); err != nil { // what was staged is lost
		t.Fatal(err)
	}

	d = desked(t, dir)
	defer d.close()
	m, err := d.marksOf("t", "r")
	if err != nil || d.st.items[it.ID] == nil || m.End != sink.Finished {
		t.Errorf("item %v, end %q, %v", d.st.items[it.ID], m.End, err)
	}
}

// What is committed while the older half of the letters goes waits for the log that
// there is.
func TestLettersHalved(t *testing.T) {
	l, err := openLetters(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int) {
		if err := l.put(letter{Item: &item{ID: fmt.Sprintf("%d@d", n)}, How: "dead"}); err != nil {
			t.Error(err)
		}
	}
	for n := range maxLetters {
		put(n)
	}
	if err := l.sync(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		put(maxLetters)
	})
	wg.Go(func() {
		for {
			if err := l.sync(); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	wg.Wait()
	if n := l.count(); n != maxLetters/2+1 {
		t.Errorf("%d letters", n)
	}
	if err := l.log.close(); err != nil {
		t.Fatal(err)
	}
}
