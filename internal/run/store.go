package run

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
)

// repeated reports whether a frame with this uuid was seen before.
func (s *State) repeated(f *dialect.Frame) bool {
	v := f.Get("uuid")
	if len(v) <= 2 || !v.IsString() {
		return false
	}
	key := f.Type + "/" + v.Text()
	if s.uuids.has(key) {
		s.counts.Repeats++
		return true
	}
	s.uuids.set(key, "")
	return false
}

// maxID is the longest id of the child that is kept as it is; real ones have 36.
const maxID = 200

// boundID returns an id that fits in bounded memory and stays distinct: a long
// one is cut and carries a hash of the whole.
func boundID(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return strings.ToValidUTF8(id[:maxID/2], "\ufffd") + "…" + hex.EncodeToString(sum[:])
}

// clip cuts a text for display; a cut rune becomes U+FFFD.
func clip(t string, n int) string {
	if len(t) > n {
		t = t[:n] + "…"
	}
	return strings.ToValidUTF8(t, "\ufffd")
}

// store is a bounded map of strings that forgets the oldest key.
type store struct {
	max   int
	m     map[string]string
	order []string
}

func (st *store) has(k string) bool { _, ok := st.m[boundID(k)]; return ok }

func (st *store) get(k string) string { return st.m[boundID(k)] }

func (st *store) set(k, v string) {
	if k == "" {
		return
	}
	k = boundID(k)
	if _, ok := st.m[k]; !ok {
		if st.m == nil {
			st.m = map[string]string{}
		}
		if len(st.order) >= st.max {
			delete(st.m, st.order[0])
			st.order = st.order[1:]
		}
		st.order = append(st.order, k)
	}
	st.m[k] = v
}
