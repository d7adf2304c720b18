package dialect

import "bytes"

// A Frame is one line of a child's output or input that is exactly one JSON
// object. It aliases the line: it is valid as long as the line is.
type Frame struct {
	Raw     Value  // the object, without the space around it
	Type    string // the top-level "type", "" where it is missing or no string
	Subtype string // "subtype", or the one inside "request" or "response"

	// Dup says that a key stands twice at the top level. Parsers differ in which
	// one they take; a key with two different values has none here.
	Dup bool

	fields  [keyCount]span
	content content
	torn    uint32 // bit k: the key has two different values
}

type span struct{ from, to uint32 }

// maxFrame bounds a frame because spans are 32 bit; frames are far smaller.
const maxFrame = 1<<32 - 1

// key numbers the top-level keys that [Parse] remembers.
type key uint8

const (
	keyType key = iota
	keySubtype
	keySession
	keyUUID
	keyParent
	keyTask
	keyToolUse
	keyRequestID
	keyRequest
	keyResponse
	keyMessage
	keyPatch
	keyStatus
	keyMeta
	keyIsError
	keyIsReplay
	keyTimestamp
	keyClaudeVersion
	keyProgress
	keyTasks
	keyUsage
	keyMethod // JSON-RPC, from here
	keyID
	keyParams
	keyResult
	keyError
	keyEmitted
	keyCount
)

// lookup is a switch because it is faster than a map on the hot path.
func lookup(b []byte) key {
	switch string(b) {
	case "type":
		return keyType
	case "subtype":
		return keySubtype
	case "session_id":
		return keySession
	case "uuid":
		return keyUUID
	case "parent_tool_use_id":
		return keyParent
	case "task_id":
		return keyTask
	case "tool_use_id":
		return keyToolUse
	case "request_id":
		return keyRequestID
	case "request":
		return keyRequest
	case "response":
		return keyResponse
	case "message":
		return keyMessage
	case "patch":
		return keyPatch
	case "status":
		return keyStatus
	case "_meta":
		return keyMeta
	case "is_error":
		return keyIsError
	case "isReplay":
		return keyIsReplay
	case "__timestamp":
		return keyTimestamp
	case "claude_code_version":
		return keyClaudeVersion
	case "workflow_progress":
		return keyProgress
	case "tasks":
		return keyTasks
	case "usage":
		return keyUsage
	case "method":
		return keyMethod
	case "id":
		return keyID
	case "params":
		return keyParams
	case "result":
		return keyResult
	case "error":
		return keyError
	case "emittedAtMs":
		return keyEmitted
	}
	return keyCount
}

// Parse reads line as a frame. It is one only when the whole line is one valid
// JSON object, spaces, tabs and CR around it allowed: an array, a scalar, two
// objects, a BOM, a NUL byte or nesting past [MaxDepth] make it none. Keys match
// exactly, in their unescaped form.
func Parse(line []byte) (Frame, bool) {
	var f Frame
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' || uint64(len(line)) > maxFrame {
		return f, false
	}
	end := f.scan(line[i:])
	if end < 0 || skipSpace(line, i+end) != len(line) {
		return Frame{}, false
	}
	f.Raw = line[i : i+end : i+end]
	f.name()
	return f, true
}

// scan checks the object b begins with, fills fields and returns its length or -1.
func (f *Frame) scan(b []byte) int {
	var seen seenKeys
	var open nesting
	i := skipSpace(b, 1)
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
		if escaped {
			name = []byte(unescape(name))
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return -1
		}
		i = skipSpace(b, i+1)
		k := lookup(name)
		if k == keyMessage {
			end = f.content.scanMessage(b, i, &open)
		} else {
			end = scanValue(b, i, 1, &open)
		}
		if end < 0 {
			return -1
		}
		if seen.add(name) {
			f.Dup = true
		}
		if k < keyCount {
			f.set(k, b, i, end)
		}
		i = skipSpace(b, end)
		if i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// set notes where the value of k is. Two different values are none.
func (f *Frame) set(k key, b []byte, from, to int) {
	if old := f.fields[k]; old.to != 0 && !bytes.Equal(b[old.from:old.to], b[from:to]) {
		f.torn |= 1 << k
	}
	f.fields[k] = span{uint32(from), uint32(to)}
}

// seenKeys finds repeated keys: a 64-bit filter first, then a comparison.
type seenKeys struct {
	filter uint64
	n      int
	first  [24][]byte
	rest   map[string]struct{} // past the first 24
}

func (s *seenKeys) add(name []byte) (again bool) {
	h := uint(len(name))
	if len(name) > 0 {
		h = h*7 + uint(name[0])*3 + uint(name[len(name)-1])*5 + uint(name[len(name)/2])*11
	}
	bit := uint64(1) << (h & 63)
	if s.filter&bit != 0 && s.has(name) {
		return true
	}
	s.filter |= bit
	if s.n < len(s.first) {
		s.first[s.n] = name
		s.n++
		return false
	}
	if s.rest == nil {
		s.rest = map[string]struct{}{}
	}
	s.rest[string(name)] = struct{}{}
	return false
}

func (s *seenKeys) has(name []byte) bool {
	for _, k := range s.first[:s.n] {
		if bytes.Equal(k, name) {
			return true
		}
	}
	_, ok := s.rest[string(name)]
	return ok
}

// has reports whether the key stands in the frame, with whatever value.
func (f *Frame) has(k key) bool { return f.fields[k].to != 0 }

func (f *Frame) field(k key) Value {
	s := f.fields[k]
	if s.to == 0 || f.torn&(1<<k) != 0 {
		return nil
	}
	return f.Raw[s.from:s.to:s.to]
}

// Get returns a top-level field, nil where it is not there. The common ones cost
// nothing, others a scan of the frame.
func (f *Frame) Get(name string) Value {
	if k := lookup([]byte(name)); k < keyCount {
		return f.field(k)
	}
	return f.Raw.Get(name)
}

// name sets Type and Subtype, without allocation where they are known words.
func (f *Frame) name() {
	f.Type = intern(f.field(keyType))
	sub := f.field(keySubtype)
	switch f.Type {
	case typeControlRequest:
		sub = f.field(keyRequest).Get("subtype")
	case typeControlResponse:
		sub = f.field(keyResponse).Get("subtype")
	}
	f.Subtype = intern(sub)
}

func intern(v Value) string {
	if s, ok := words()[string(v.inner())]; ok {
		return s
	}
	return v.Text()
}

// ControlID returns the request id of a control frame as its exact text (a
// string with its quotes and escapes, or a number: cbc echoes both), nil where
// there is none. For a control_response it stands inside "response".
func (f *Frame) ControlID() Value {
	if f.Type == typeControlResponse {
		return f.field(keyResponse).Get("request_id")
	}
	return f.field(keyRequestID)
}

// AmbiguousControl reports whether two readers may see two meanings in a control
// frame: a key that stands twice in the frame, its request, response or anything
// inside them, or keys of the envelope that differ only in case. Such a request
// is recorded and shown as it is, but not offered for an answer.
func (f *Frame) AmbiguousControl() bool {
	if f.Dup || ambiguous(f.Raw, true, false) {
		return true
	}
	if ambiguous(f.field(keyRequest), true, true) || ambiguous(f.field(keyResponse), true, true) {
		return true
	}
	return false
}

// ambiguous looks for repeated keys in v; fold compares the keys of v itself
// without case; deep goes on inside, iteratively.
func ambiguous(v Value, fold, deep bool) bool {
	queue := []Value{v}
	for first := true; len(queue) > 0; first = false {
		v, queue = queue[len(queue)-1], queue[:len(queue)-1]
		seen := map[string]struct{}{}
		for k, value := range v.Fields {
			name := unescape(k)
			if fold && first {
				name = foldKey(name)
			}
			if _, again := seen[name]; again {
				return true
			}
			seen[name] = struct{}{}
			if deep && (value.IsObject() || value.IsArray()) {
				queue = append(queue, value)
			}
		}
		for item := range v.Items {
			if deep && (item.IsObject() || item.IsArray()) {
				queue = append(queue, item)
			}
		}
	}
	return false
}
