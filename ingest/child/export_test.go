package child

// Filter opens the hiding of answers to tests, without a process.
type Filter struct{ h hider }

func NewFilter(ids ...string) *Filter {
	f := &Filter{hider{start: true}}
	for _, id := range ids {
		f.h.add(id)
	}
	return f
}

func (f *Filter) Filter(p []byte) []byte { return f.h.filter(p) }
func (f *Filter) Flush() []byte          { return f.h.flush() }
func (f *Filter) Remove(id string)       { f.h.remove(id) }

// NewTap opens the tap to tests, without a process.
func NewTap(limit int) *Tap { return newTap(limit, false) }

func (t *Tap) Add(s Stream, p []byte) bool { return t.add(Chunk{Stream: s, Data: p}, nil) }
func (t *Tap) EOF(s Stream)                { t.eof(s) }
func (t *Tap) CloseAll()                   { t.close() }
