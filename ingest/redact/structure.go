package redact

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// maxDepth is how deep objects are looked into. What is deeper in a control
// frame is not examined by key, only by shapes and remembered values.
const maxDepth = 64

// controlFrame reports whether data begins like a frame that structure masks
// parts of, judged by its first bytes.
func controlFrame(stream event.Stream, data []byte) bool {
	head := data[:min(len(data), 4096)]
	return stream == event.Out && bytes.Contains(head, []byte(`"control_response"`)) ||
		stream == event.In && bytes.Contains(head, []byte(`"control_request"`))
}

// rpcFrame reports whether data begins like a result of Codex on stdout, which
// writes the id first, or like a request of its host on stdin.
func rpcFrame(stream event.Stream, data []byte) bool {
	head := data[:min(len(data), 256)]
	return stream == event.Out && bytes.HasPrefix(head, []byte(`{"id":`)) && bytes.Contains(head, []byte(`"result":`)) ||
		stream == event.In && bytes.HasPrefix(head, []byte(`{"`)) && bytes.Contains(head, []byte(`"method":`))
}

// structure masks by key. It looks at what the child answers (control_response
// on stdout; Codex's result) and at what the host asks (control_request on stdin;
// Codex's params). Keys are
// compared exactly, after JSON's escapes; of keys that come twice each counts.
// Text that is cut is masked to its end.
func (r *Redactor) structure(stream event.Stream, data []byte) {
	w := walker{r: r, data: data, stream: stream}
	for w.i < len(data) {
		at := w.i
		w.space()
		w.value(nil)
		if w.i == at {
			w.i++
		}
	}
}

// A walker goes through JSON once, from left to right.
type walker struct {
	r      *Redactor
	data   []byte
	stream event.Stream
	i      int
	frame  []byte // in teach: the whole frame
}

// value passes over the value at i, which the keys in path lead to.
func (w *walker) value(path []string) {
	if w.i >= len(w.data) {
		return
	}
	switch w.data[w.i] {
	case '{':
		w.object(path)
	case '[':
		w.array(path)
	default:
		w.skip()
	}
}

func (w *walker) object(path []string) {
	if len(path) >= maxDepth-1 {
		w.skip()
		return
	}
	w.i++
	for {
		w.space()
		if w.i >= len(w.data) {
			return
		}
		switch w.data[w.i] {
		case '}':
			w.i++
			return
		case ',':
			w.i++
			continue
		case '"':
		default:
			return // no JSON; whoever called goes on behind
		}
		key := w.string()
		w.space()
		if w.i < len(w.data) && w.data[w.i] == ':' {
			w.i++
		}
		w.space()
		w.member(append(path, key))
	}
}

func (w *walker) array(path []string) {
	if len(path) >= maxDepth-1 {
		w.skip()
		return
	}
	w.i++
	for {
		w.space()
		if w.i >= len(w.data) {
			return
		}
		switch w.data[w.i] {
		case ']':
			w.i++
			return
		case ',':
			w.i++
			continue
		}
		at := w.i
		w.value(append(path, "[]"))
		if w.i == at {
			return
		}
	}
}

// member passes over the value of the last key in path, masking it if the path
// says so.
func (w *walker) member(path []string) {
	start := w.i
	rule, part := w.rule(path)
	if rule == "" {
		w.value(path)
		return
	}
	w.skip()
	v := w.data[start:w.i]
	switch {
	case part == "url":
		w.url(start, rule)
	case empty(v):
	default:
		w.r.spans = append(w.r.spans, span{start, w.i, rule, true})
		w.teach(v)
	}
}

// empty reports whether there is nothing in v to hide.
func empty(v []byte) bool {
	switch string(v) {
	case "", "null", "{}", "[]", `""`, "true", "false":
		return true
	}
	return false
}

// rule says what masks the value that path leads to, "" for nothing.
func (w *walker) rule(path []string) (rule, part string) {
	last := path[len(path)-1]
	body := 2         // keys before the body of the frame
	switch w.stream { //nolint:exhaustive // the others have no such frames
	case event.Out:
		if len(path) > 1 && path[0] == "result" { // of Codex
			if body = 1; len(path) == 2 && last == "account" {
				return "account", ""
			}
			break
		}
		if len(path) < 3 || path[0] != "response" || path[1] != "response" {
			return "", ""
		}
		if len(path) == 3 && last == "account" {
			return "account", ""
		}
	case event.In:
		body = 1
		if len(path) < 2 || path[0] != "request" && path[0] != "params" {
			return "", ""
		}
		switch last {
		case "systemPrompt", "appendSystemPrompt":
			if !w.r.capture {
				return "prompt", ""
			}
		}
	}
	rule = "settings"
	for _, k := range path[body:] {
		if k == "mcpServers" || k == "servers" || k == "sdkMcpServers" || k == "mcp_servers" {
			rule = "mcp"
		}
	}
	switch last {
	case "env", "headers", "args", "http_headers":
		return rule, ""
	case "url":
		if rule == "mcp" {
			return rule, "url"
		}
	}
	return "", ""
}

// url masks userinfo and query of the URL in the JSON string at start.
func (w *walker) url(start int, rule string) {
	u := w.data[start:w.i]
	if len(u) < 2 || u[0] != '"' {
		return
	}
	end := len(u)
	if u[end-1] == '"' {
		end--
	}
	mask := func(from, to int) {
		if to > from {
			w.r.spans = append(w.r.spans, span{start + from, start + to, rule, false})
		}
	}
	path := 1
	if s := bytes.Index(u, []byte("://")); s >= 0 {
		path = s + 3
	} else if s := bytes.Index(u, []byte(`:\/\/`)); s >= 0 {
		path = s + 5
	}
	host := end
	if s := bytes.IndexAny(u[path:end], `/\?#`); s >= 0 {
		host = path + s
	}
	if at := bytes.LastIndexByte(u[path:host], '@'); at >= 0 {
		mask(path, path+at)
	}
	if q := bytes.IndexAny(u[path:end], "?#"); q >= 0 {
		mask(path+q+1, end)
	}
}

// teach remembers the values in the JSON text v whose keys say that they are
// secret.
func (w *walker) teach(v []byte) {
	if !json.Valid(v) {
		return
	}
	t := walker{r: w.r, data: v, frame: w.data}
	t.secrets("")
}

// secrets passes over the value at i, which is key's.
func (w *walker) secrets(key string) {
	w.space()
	if w.i >= len(w.data) {
		return
	}
	switch w.data[w.i] {
	case '{', '[':
		w.i++
	case '"':
		s := w.string()
		if secretName(key) {
			// A header has its scheme before the credential.
			if scheme, cred, ok := strings.Cut(s, " "); ok && len(scheme) <= 10 {
				s = cred
			}
			w.r.learn(s, w.frame)
		}
		return
	default:
		w.skip()
		return
	}
	for w.i < len(w.data) {
		w.space()
		if w.i >= len(w.data) {
			return
		}
		switch w.data[w.i] {
		case '}', ']':
			w.i++
			return
		case ',', ':':
			w.i++
		case '"':
			at := w.i
			k := w.string()
			w.space()
			if w.i < len(w.data) && w.data[w.i] == ':' {
				w.i++
				w.secrets(k)
				continue
			}
			w.i = at
			w.secrets(key)
		default:
			w.secrets(key)
		}
	}
}
