package segment_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

// TestSalvage: of a damaged segment its whole blocks are read, and everything of the others, with
// one error that says what is missing. That is so with an index of the segment and without one.
func TestSalvage(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(s *scene, n int)
		a, b int   // records of runs a and b of the segment that can be read
		read int64 // as the error says
		late bool  // found out by who reads the block
	}{
		{"cut in the second block", func(s *scene, n int) {
			_, b, _, _ := s.layout(n)
			s.store.m[s.name(n)] = s.store.m[s.name(n)][:b[1].Off+b[1].Size/2]
		}, 2, 0, 2, false},
		{"cut behind the last block", func(s *scene, n int) {
			_, _, d, _ := s.layout(n)
			s.store.m[s.name(n)] = s.store.m[s.name(n)][:d.Off]
		}, 2, 1, 3, false},
		{"cut to nothing", func(s *scene, n int) { s.store.m[s.name(n)] = nil }, 0, 0, 0, false},
		{"deleted", func(s *scene, n int) { delete(s.store.m, s.name(n)) }, 0, 0, 0, false},
		{"the first block changed", func(s *scene, n int) {
			_, b, _, _ := s.layout(n)
			flip(s.store, s.name(n), b[0].Off+b[0].Size-20)
		}, 0, 1, 1, true},
		{"the directory changed", func(s *scene, n int) {
			_, _, d, _ := s.layout(n)
			flip(s.store, s.name(n), d.Off+30)
		}, 2, 1, 3, false},
		{"another tenant's", func(s *scene, n int) { s.store.m[s.name(n)] = s.store.m[s.heads[17].Segment.Name] }, 0, 0, 0, false},
		{"another's", func(s *scene, n int) { s.store.m[s.name(n)] = s.store.m[s.name(2)] }, 0, 0, 0, false},
	} {
		for _, index := range []bool{true, false} {
			s := newScene(t)
			if !index {
				delete(s.store.m, segment.IndexKey("acme", 1, 16))
			}
			const n = 4
			tt.do(s, n)
			rd := segment.NewReader(segment.ReaderOptions{Store: s.store, Keys: s.keys})
			for run, want := range map[string]int{"a": 32 + tt.a, "b": 7 + tt.b} {
				got, bad := 0, []*segment.DamagedError{}
				for _, err := range rd.Records(t.Context(), segment.Query{Run: run}) {
					var d *segment.DamagedError
					switch {
					case errors.As(err, &d) && errors.Is(err, segment.ErrDamaged):
						bad = append(bad, d)
					case err != nil:
						t.Fatal(tt.name, err)
					default:
						got++
					}
				}
				told := len(bad) == 1 && bad[0].Number == n && bad[0].Readable == tt.read && bad[0].Of == 3
				if tt.late && run == "b" {
					told = len(bad) == 0
				}
				if got != want || !told {
					t.Errorf("%s, index %v: run %s: %d records, want %d; %v", tt.name, index, run, got, want, bad)
				}
				if i, err := rd.Run(t.Context(), "", run); err != nil || (len(i.Unread) > 0) != (!index && !tt.late) {
					t.Errorf("%s, index %v: run %s: %+v, %v", tt.name, index, run, i, err)
				}
			}
			if _, err := rd.Run(t.Context(), "acme", "none"); err == nil || errors.Is(err, segment.ErrNotFound) == (!index && !tt.late) {
				t.Errorf("%s, index %v: a run that is nowhere: %v", tt.name, index, err)
			}
			var runs []string
			bad := 0
			for i, err := range rd.Runs(t.Context(), "", time.Time{}, time.Time{}) {
				if err != nil {
					bad++
					continue
				}
				runs = append(runs, i.Run)
			}
			if d := cmp.Diff([]string{"a", "b", "z"}, runs); d != "" || bad > 1 || index && bad > 0 {
				t.Errorf("%s, index %v: %d errors, %s", tt.name, index, bad, d)
			}
		}
	}
}

// TestIndexDamaged: an index that cannot be read keeps nothing from being found.
func TestIndexDamaged(t *testing.T) {
	for off := int64(0); off < 400; off += 7 {
		s := newScene(t)
		flip(s.store, segment.IndexKey("acme", 1, 16), -off-1)
		rd := segment.NewReader(segment.ReaderOptions{Store: s.store, Keys: s.keys})
		n := 0
		for _, err := range rd.Records(t.Context(), segment.Query{Run: "b"}) {
			if err != nil {
				t.Fatal(off, err)
			}
			n++
		}
		if n != 8 {
			t.Errorf("byte %d from the end: %d records of 8", off, n)
		}
	}
}

// TestTenantDamaged: one tenant whose chain is damaged keeps none of the others from being read.
func TestTenantDamaged(t *testing.T) {
	for _, key := range []string{segment.HeadKey("acme", 5), segment.HeadKey("beta", 1), segment.TenantKey("acme"), segment.TenantKey("beta")} {
		s := newScene(t)
		delete(s.store.m, segment.IndexKey("acme", 1, 16))
		s.store.m[key] = []byte("{")
		rd := segment.NewReader(segment.ReaderOptions{Store: s.store, Keys: s.keys})
		bad, well := "acme", "beta"
		if strings.Contains(key, "beta") {
			bad, well = well, bad
		}
		named := func(err error) bool {
			return segment.Damaged(err) && strings.Contains(err.Error(), bad) && !strings.Contains(err.Error(), well)
		}
		var tenants []string
		var errs []error
		for i, err := range rd.Runs(t.Context(), "", time.Time{}, time.Time{}) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			tenants = append(tenants, i.Tenant)
		}
		if slices.Contains(tenants, bad) || !slices.Contains(tenants, well) || len(errs) != 1 || !named(errs[0]) {
			t.Errorf("%s: runs of %v, %v", key, tenants, errs)
		}
		records := map[string]int{}
		errs = nil
		for r, err := range rd.Records(t.Context(), segment.Query{}) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			records[r.Tenant]++
		}
		if records[well] == 0 || records[bad] > 0 || len(errs) != 1 || !named(errs[0]) {
			t.Errorf("%s: records %v, %v", key, records, errs)
		}
		run := map[string]string{"acme": "a", "beta": "z"}
		if i, err := rd.Run(t.Context(), "", run[well]); err != nil || i.Tenant != well {
			t.Errorf("%s: %+v, %v", key, i, err)
		}
		if _, err := rd.Run(t.Context(), "", run[bad]); err == nil || errors.Is(err, segment.ErrNotFound) || !named(err) {
			t.Errorf("%s: %v", key, err)
		}
		for _, err := range rd.Records(t.Context(), segment.Query{Run: run[bad]}) {
			if !named(err) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}
