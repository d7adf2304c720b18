package dialect

import "bytes"

// maxContent is how many items of a message's content [Parse] remembers: frames
// have one, seldom a few.
const maxContent = 4

// content is where the items of message.content are, if that is an array, and
// nothing in the way there stands twice or has an escaped name.
type content struct {
	known bool
	seen  bool // a message was seen
	n     int
	items [maxContent]struct{ item, typ span }
}

// Content calls yield for each item of the array message.content, with its type,
// in order. It is an iterator. What [Parse] remembers of them spares reading
// long texts again and again.
func (f *Frame) Content(yield func(item Value, typ string) bool) {
	c := &f.content
	if !c.known {
		for item := range f.field(keyMessage).Get("content").Items {
			if !yield(item, intern(item.Get("type"))) {
				return
			}
		}
		return
	}
	for _, it := range c.items[:c.n] {
		var typ string
		if t := it.typ; t.to > 0 {
			typ = intern(Value(f.Raw[t.from:t.to:t.to]))
		}
		if !yield(Value(f.Raw[it.item.from:it.item.to:it.item.to]), typ) {
			return
		}
	}
}

// scanMessage is scanValue for the member "message" of a frame.
func (c *content) scanMessage(b []byte, i int, open *nesting) int {
	if i >= len(b) || b[i] != '{' || c.seen {
		c.known, c.seen = false, true
		return scanValue(b, i, 1, open)
	}
	c.seen, c.known = true, true
	found := false
	end := scanMembers(b, i, func(name []byte, escaped bool, at int) int {
		switch {
		case escaped || found && string(name) == "content":
			c.known = false
		case string(name) == "content":
			found = true
			return c.scanItems(b, at, open)
		}
		return scanValue(b, at, 2, open)
	})
	c.known = c.known && found
	return end
}

// scanItems is scanValue for the member "content" of a message.
func (c *content) scanItems(b []byte, i int, open *nesting) int {
	if i >= len(b) || b[i] != '[' {
		c.known = false
		return scanValue(b, i, 2, open)
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		end, typ := c.scanItem(b, i, open)
		if end < 0 {
			return -1
		}
		if c.n < maxContent {
			c.items[c.n].item, c.items[c.n].typ = span{uint32(i), uint32(end)}, typ
			c.n++
		} else {
			c.known = false
		}
		if i = skipSpace(b, end); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ']':
			return i + 1
		case ',':
			i = skipSpace(b, i+1)
		default:
			return -1
		}
	}
}

// scanItem is scanValue for an item, and finds its type.
func (c *content) scanItem(b []byte, i int, open *nesting) (end int, typ span) {
	if i >= len(b) || b[i] != '{' {
		return scanValue(b, i, 3, open), span{}
	}
	end = scanMembers(b, i, func(name []byte, escaped bool, at int) int {
		end := scanValue(b, at, 4, open)
		if escaped {
			c.known = false
		}
		if end > 0 && string(name) == "type" {
			if typ.to > 0 && !bytes.Equal(b[typ.from:typ.to], b[at:end]) {
				c.known = false
			}
			typ = span{uint32(at), uint32(end)}
		}
		return end
	})
	return end, typ
}

// scanMembers checks the object at i and returns the index after it, or -1. value
// checks the value of each member and returns the index after it, or -1.
func scanMembers(b []byte, i int, value func(name []byte, escaped bool, at int) int) int {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end, escaped := scanString(b, i+1)
		if end < 0 {
			return -1
		}
		name := b[i+1 : end-1]
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = value(name, escaped, skipSpace(b, i+1)); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i = skipSpace(b, i+1)
		default:
			return -1
		}
	}
}
