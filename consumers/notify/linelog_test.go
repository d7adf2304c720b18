package notify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func lines(t *testing.T, path string) (got []string, d damage) {
	t.Helper()
	l, d, err := openLineLog(path, func(_ int64, b []byte) error { got = append(got, string(b)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	return got, d
}

// Whatever happened to the file, what is whole is read, and writing goes on behind it.
func TestLineLogDamage(t *testing.T) {
	var file []byte
	for i := range 5 {
		file = appendLine(file, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	each := len(file) / 5
	all := []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}
	flip := func(at int) []byte {
		b := bytes.Clone(file)
		b[at] ^= 1
		return b
	}
	type table struct {
		name string
		file []byte
		want []string
		d    damage
	}
	tests := []table{
		{"whole", file, all, damage{}},
		{"empty", nil, nil, damage{}},
		{"zeros behind", append(bytes.Clone(file), make([]byte, 5000)...), all, damage{Tail: 5000}},
		{"a byte of line 1", flip(each + 12), slices.Delete(slices.Clone(all), 1, 2), damage{Lines: 1}},
		{"a checksum", flip(3), all[1:], damage{Lines: 1}},
		{"an LF", flip(2*each - 1), slices.Delete(slices.Clone(all), 1, 3), damage{Lines: 1}},
		{"an endless line", append(append(bytes.Clone(file[:each]), bytes.Repeat([]byte("x"), 3<<20)...), append([]byte("\n"), file[each:]...)...), all, damage{Lines: 1}},
	}
	for n := 1; n < each; n++ { // torn at every byte of the last line
		tests = append(tests, table{fmt.Sprintf("torn at %d", n), file[:4*each+n], all[:4], damage{Tail: int64(n)}})
	}
	for _, tc := range tests {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, tc.file, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		l, d, err := openLineLog(path, func(_ int64, b []byte) error { got = append(got, string(b)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || d != tc.d {
			t.Errorf("%s: lines (-want +got):\n%s damage %+v, want %+v", tc.name, diff, d, tc.d)
		}
		if _, err := l.write(appendLine(nil, []byte(`{"n":9}`))); err != nil {
			t.Fatal(err)
		}
		_ = l.close()
		if again, d := lines(t, path); !slices.Equal(again, append(slices.Clone(tc.want), `{"n":9}`)) || d.Tail != 0 {
			t.Errorf("%s: behind it %v, %+v", tc.name, again, d)
		}
	}
}

// A write that fails leaves nothing behind.
func TestLineLogFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _, err := openLineLog(path, func(int64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.write(appendLine(nil, []byte(`{}`))); err != nil {
		t.Fatal(err)
	}
	ro, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	rw := l.f
	l.f = ro // writing to it fails
	if _, err := l.write(appendLine(nil, []byte(`{"x":1}`))); err == nil {
		t.Fatal("no error")
	}
	l.f = rw
	_ = ro.Close()
	if _, err := l.write(appendLine(nil, []byte(`{"n":1}`))); err != nil {
		t.Fatal(err)
	}
	_ = l.close()
	if got, d := lines(t, path); !slices.Equal(got, []string{"{}", `{"n":1}`}) || d != (damage{}) {
		t.Errorf("lines %v, %+v", got, d)
	}
}

// The told log remembers the last word of each run over many files and restarts,
// with 12 bytes a run in memory, and forgets by age.
func TestTold(t *testing.T) {
	dir := t.TempDir()
	open := func() *told {
		l, err := openTold(dir, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l, now := open(), time.Now()
	const n = 15_000
	batch := make([]*marks, 0, 1000)
	for i := range n {
		batch = append(batch, &marks{Tenant: "t", Run: fmt.Sprint("run-", i), At: now, End: sink.Finished, Ask: i % 7, Late: []string{strings.Repeat("x", 300)}})
		if len(batch) == cap(batch) {
			if err := l.put(batch, now); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if err := l.put([]*marks{{Tenant: "t", Run: "run-5", At: now, End: sink.Failed}}, now); err != nil {
		t.Fatal(err)
	}
	look := func(l *told) {
		t.Helper()
		for _, i := range []int{0, 1, 4999, n / 2, n - 1} {
			m, err := l.get("t", fmt.Sprint("run-", i))
			if err != nil || m.End != sink.Finished || m.Ask != i%7 {
				t.Errorf("run %d: %+v, %v", i, m, err)
			}
		}
		if m, err := l.get("t", "run-5"); err != nil || m.End != sink.Failed {
			t.Errorf("the last word of run 5: %+v, %v", m, err)
		}
		if m, err := l.get("other", "run-1"); err != nil || m.End != "" {
			t.Errorf("another tenant's: %+v, %v", m, err)
		}
	}
	look(l)
	if len(l.sealed) == 0 {
		t.Fatal("one file only: the test is too small")
	}
	_ = l.close()
	l = open()
	look(l)
	// A day later the old files go when a new one is begun.
	if err := l.roll(now.Add(25 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	if m, err := l.get("t", "run-1"); err != nil || m.End != "" {
		t.Errorf("it is not forgotten: %+v, %v", m, err)
	}
	_ = l.close()
	// A line that cannot be read is an error that says so, not another run's.
	l = open()
	if err := l.put([]*marks{{Run: "x", At: now, End: sink.Finished}}, now); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(l.last.path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-4] ^= 1
	if err := os.WriteFile(l.last.path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.get("", "x"); !errors.Is(err, errBadLine) {
		t.Errorf("a damaged line: %v", err)
	}
	_ = l.close()
}
