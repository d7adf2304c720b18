package trace

import "slices"

// A table is a map of bounded size that knows the order of its keys. Past its bound
// the oldest key makes room.
type table[V any] struct {
	max   int
	m     map[string]V
	order []string
	lost  int // that made room
}

func (t *table[V]) get(k string) (v V, ok bool) {
	v, ok = t.m[k]
	return v, ok
}

// set adds or replaces a value, and returns the one that made room for it.
func (t *table[V]) set(k string, v V) (gone V, out bool) {
	if t.m == nil {
		t.m = map[string]V{}
	}
	if _, ok := t.m[k]; !ok {
		if len(t.order) >= t.max {
			first := t.order[0]
			gone, out = t.m[first], true
			delete(t.m, first)
			t.order = t.order[1:]
			t.lost++
		}
		t.order = append(t.order, k)
	}
	t.m[k] = v
	return gone, out
}

func (t *table[V]) del(k string) {
	if _, ok := t.m[k]; !ok {
		return
	}
	delete(t.m, k)
	if i := slices.Index(t.order, k); i >= 0 {
		t.order = slices.Delete(t.order, i, i+1)
	}
}

// all lists the values, the oldest first. They may be deleted meanwhile.
func (t *table[V]) all(yield func(string, V) bool) {
	for _, k := range slices.Clone(t.order) {
		if v, ok := t.m[k]; ok && !yield(k, v) {
			return
		}
	}
}
