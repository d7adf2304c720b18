package segment_test

import (
	"bytes"
	"crypto/ed25519"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

var update = flag.Bool("update", false, "write the table in docs/archive.md")

// A scene is an archive to be tampered with: tenant acme with 17 heads of segments, the
// signing key replaced behind head 8, run a in all segments with two events in each, run b
// in the even ones with one; tenant beta with two heads.
type scene struct {
	*rig
	first, second ed25519.PrivateKey
	store, keys   *mem
	heads         []*segment.Head // as kept elsewhere
	early         *mem            // the store as it was at head 10
}

func newScene(t *testing.T) *scene {
	t.Helper()
	r := newRig(t)
	s := &scene{rig: r, first: r.key, second: newKey(t)}
	s.store, s.keys = r.Store.(*mem), r.Keys.(*mem)
	r.open()
	for n := 1; n <= 17; n++ {
		r.add(r.next("acme", "a"))
		if n%2 == 0 {
			r.add(r.next("acme", "b"))
		}
		r.add(r.next("acme", "a"))
		s.heads = append(s.heads, r.seal()...)
		switch n {
		case 8:
			if _, err := segment.Rotate(t.Context(), r.Store, s.first, s.second, "tester"); err != nil {
				t.Fatal(err)
			}
			r.key = s.second
		case 10:
			s.early = s.store.clone()
		}
	}
	for range 2 {
		r.add(r.next("beta", "z"))
		s.heads = append(s.heads, r.seal()...)
	}
	return s
}

// name is the key of the segment of an acme head.
func (s *scene) name(n int) string { return s.heads[n-1].Segment.Name }

// head changes the n-th head of acme and signs it with a key, nil for not at all.
func (s *scene) head(n int, key ed25519.PrivateKey, change func(h *segment.Head)) {
	k := segment.HeadKey("acme", uint64(n))
	h, err := segment.ParseHead(s.store.m[k])
	if err != nil {
		s.Fatal(err)
	}
	change(h)
	if key != nil {
		segment.Sign(h, key)
	}
	s.store.m[k] = append(h.Encode(), '\n')
}

// flip changes one bit of an object.
func flip(st *mem, key string, off int64) {
	b := bytes.Clone(st.m[key])
	b[(off+int64(len(b)))%int64(len(b))] ^= 4
	st.m[key] = b
}

func swap(st *mem, a, b string) { st.m[a], st.m[b] = st.m[b], st.m[a] }

func (s *scene) must(_ *segment.Head, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// put gives records to the archive that are made anew with other facts.
func (s *scene) put(recs ...*segment.Record) {
	s.Helper()
	for _, r := range recs {
		if _, err := s.a.Append(s.Context(), r); err != nil {
			s.Fatal(err)
		}
	}
}

// A tamper is one row of the table in docs/archive.md, in which verify's answer stands, too.
type tamper struct {
	what string
	do   func(s *scene)
	deep bool // verify has the keys, too
	open bool // runs without an end are in the table: those of the scene have none
}

var (
	uidForm  = regexp.MustCompile(`[0-9a-f]{32}`)
	timeForm = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	sizeForm = regexp.MustCompile(`\d+ bytes of \d+`) // of a directory, which has hashes
	keyForm  = regexp.MustCompile(`key [0-9a-f]{16}`)
)

// brief is a finding without what differs from run to run.
func brief(f segment.Finding) string {
	var b strings.Builder
	if !f.Bad {
		b.WriteString("note: ")
	}
	b.WriteString(string(f.Code))
	if f.Tenant != "acme" && f.Tenant != "" {
		fmt.Fprintf(&b, " tenant=%s", f.Tenant)
	}
	if f.Number > 0 {
		fmt.Fprintf(&b, " head=%d", f.Number)
	}
	if f.Run != "" {
		fmt.Fprintf(&b, " run=%s", f.Run)
	}
	if f.First > 0 {
		fmt.Fprintf(&b, " %d–%d", f.First, f.Last)
	}
	if f.Of > 0 {
		fmt.Fprintf(&b, " readable=%d/%d", f.Records, f.Of)
	}
	text := sizeForm.ReplaceAllString(f.Text, "N bytes of M")
	text = uidForm.ReplaceAllString(timeForm.ReplaceAllString(keyForm.ReplaceAllString(text, "key K"), "T"), "UID")
	return b.String() + ": " + text
}

// ended are findings without those of runs that have no end.
func ended(all []segment.Finding) []segment.Finding {
	return slices.DeleteFunc(all, func(f segment.Finding) bool { return f.Code == segment.RunOpen })
}

func (s *scene) verify(deep bool) *segment.Report {
	s.Helper()
	rep, err := segment.Verify(s.Context(), segment.VerifyOptions{
		Store: s.store, Keys: s.keys, Trust: []ed25519.PublicKey{public(s.first)}, Heads: s.heads, Deep: deep,
	})
	if err != nil {
		s.Fatal(err)
	}
	return rep
}

// TestTamper does each kind of tampering to an archive of its own and compares verify's
// whole answer with the table in docs/archive.md.
func TestTamper(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("| what was done | what verify finds |\n|---|---|\n")
	for _, tt := range tampers {
		t.Run(tt.what, func(t *testing.T) {
			s := newScene(t)
			if rep := s.verify(true); !rep.OK() || len(ended(rep.Findings)) > 0 || rep.Records != 44 || rep.Runs != 3 || rep.Segments != 19 {
				t.Fatalf("before: %+v", rep)
			}
			tt.do(s)
			rep := s.verify(tt.deep)
			if !tt.open {
				rep.Findings = ended(rep.Findings)
			}
			got := make([]string, 0)
			bad := 0
			for _, f := range rep.Findings {
				got = append(got, brief(f))
				if f.Bad {
					bad++
				}
			}
			if bad != rep.Bad || rep.OK() != (bad == 0) {
				t.Errorf("%d are bad, report says %d, %v", bad, rep.Bad, rep.OK())
			}
			what := tt.what
			if tt.deep {
				what += " (`--deep`)"
			}
			answer := "nothing"
			if len(got) > 0 {
				answer = "`" + strings.Join(got, "`<br>`") + "`"
			}
			fmt.Fprintf(&doc, "| %s | %s |\n", what, answer)
		})
	}
	if !t.Failed() {
		compareDoc(t, "tamper table", doc.String())
	}
}

// compareDoc compares a part of docs/archive.md, which stands between two comments.
func compareDoc(t *testing.T, name, want string) {
	t.Helper()
	const path = "../../docs/archive.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(b), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part %q", path, name)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s: run go test ./internal/segment -run %s -update\n%s", path, t.Name(), cmp.Diff(got, want))
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// again makes the next records of run a as if they were others'.
func (s *scene) again(seqs ...uint64) (out []*segment.Record) {
	for _, q := range seqs {
		r := s.next("acme", "a")
		r.Seq = q
		out = append(out, r)
	}
	return out
}
