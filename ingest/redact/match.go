package redact

import "bytes"

// A matcher finds many literals in one pass (Wu and Manber's method with
// windows of three bytes): each literal is looked up by three of its bytes,
// and a table says for any two bytes how far the window may move on.
type matcher struct {
	lits []literal
	// shift[hash of two bytes] is 2 where they are in no window, 1 where they
	// begin one, 0 where they end one. Different pairs may share an entry: it
	// has the smaller value.
	shift [1 << 13]uint8
	// bucket[hash of a window] is 1 + the index in lists, 0 for none.
	bucket [1 << 12]uint16
	lists  [][]int
}

// A literal is a text to find, of at least 3 bytes.
type literal struct {
	text   []byte
	window int // where its window begins
	target target
}

// target says what a literal means: an anchor of a shape, or a remembered value.
type target struct {
	anchor int    // index in anchors, when rule is ""
	rule   string // of a remembered value
}

func pair(a, b byte) uint32 { return (uint32(a) | uint32(b)<<5) & (1<<13 - 1) }

func triple(a, b, c byte) uint32 {
	return (uint32(a) | uint32(b)<<8 | uint32(c)<<16) * 0x9E3779B1 >> 20
}

func (m *matcher) add(text string, t target) {
	m.lits = append(m.lits, literal{text: []byte(text), window: rarest(text), target: t})
}

// build makes the tables from the literals.
func (m *matcher) build() {
	for i := range m.shift {
		m.shift[i] = 2
	}
	clear(m.bucket[:])
	m.lists = m.lists[:0]
	for i, l := range m.lits {
		w := l.text[l.window:]
		if p := pair(w[0], w[1]); m.shift[p] > 1 {
			m.shift[p] = 1
		}
		m.shift[pair(w[1], w[2])] = 0
		b := &m.bucket[triple(w[0], w[1], w[2])]
		if *b == 0 {
			m.lists = append(m.lists, nil)
			*b = uint16(len(m.lists))
		}
		m.lists[*b-1] = append(m.lists[*b-1], i)
	}
}

// scan calls hit for every literal in data, at its first byte. Literals that
// lie over one another are all found.
func (m *matcher) scan(data []byte, hit func(l *literal, at int)) {
	for i := 2; i < len(data); {
		s := m.shift[pair(data[i-1], data[i])]
		if s != 0 {
			i += int(s)
			continue
		}
		if b := m.bucket[triple(data[i-2], data[i-1], data[i])]; b != 0 {
			for _, k := range m.lists[b-1] {
				l := &m.lits[k]
				at := i - 2 - l.window
				if at >= 0 && bytes.HasPrefix(data[at:], l.text) {
					hit(l, at)
				}
			}
		}
		i++
	}
}

// rarest picks the window of text, among its first 32 bytes, that looks least
// like what frames are full of.
func rarest(text string) int {
	best, at := 1<<30, 0
	for i := 0; i+3 <= len(text) && i < 32; i++ {
		// The last two bytes decide whether the scan stops.
		score := common(text[i]) + 4*common(text[i+1]) + 4*common(text[i+2])
		if score < best {
			best, at = score, i
		}
	}
	return at
}

// common is how usual a byte is in the JSON of agents, from 0.
func common(c byte) int {
	switch {
	case bytes.IndexByte([]byte(`etaoinsr":,_ `), c) >= 0:
		return 6
	case c >= 'a' && c <= 'z':
		return 4
	case c >= '0' && c <= '9', c == '{', c == '}', c == '\\', c == '.', c == '-', c == '/':
		return 3
	case c >= 'A' && c <= 'Z':
		return 1
	}
	return 0
}
