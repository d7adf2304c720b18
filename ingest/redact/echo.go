package redact

import (
	"bytes"
	"encoding/json"
	"strings"
)

const (
	// minEcho is the shortest text of stdin that is recognised on stderr.
	minEcho = 16
	// maxEcho bounds one text, maxEchoes and maxEchoBytes all of them; the
	// oldest is forgotten. A child complains about a line soon after it.
	maxEcho      = 16 << 10
	maxEchoes    = 64
	maxEchoBytes = 256 << 10
)

// echoes are the texts that lately went to the child's stdin.
type echoes struct {
	texts [][]byte
	size  int
}

// Stdin tells of a line on the child's stdin, given without its LF. The line
// and the texts of a user message in it are masked when they (or their
// beginning, from 16 bytes on) come on stderr. It does nothing when
// Config.CaptureStdin is set.
func (r *Redactor) Stdin(line []byte) {
	if r.capture {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stdin.add(line)
	var msg struct {
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(line, &msg) != nil || len(msg.Message) == 0 {
		return
	}
	var v any
	if json.Unmarshal(msg.Message, &v) == nil {
		r.stdin.text("", v)
	}
}

// text adds the texts of a user message.
func (e *echoes) text(key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			e.text(k, m)
		}
	case []any:
		for _, m := range v {
			e.text(key, m)
		}
	case string:
		if key != "text" && key != "content" {
			return
		}
		for l := range strings.SplitSeq(v, "\n") {
			e.add([]byte(l))
			e.add([]byte(escape(l, style{})))
		}
	}
}

func (e *echoes) add(text []byte) {
	text = bytes.TrimSpace(text)
	if len(text) < minEcho {
		return
	}
	text = bytes.Clone(text[:min(len(text), maxEcho)])
	if n := len(e.texts); n > 0 && bytes.Equal(e.texts[n-1], text) {
		return
	}
	e.texts = append(e.texts, text)
	e.size += len(text)
	for len(e.texts) > maxEchoes || e.size > maxEchoBytes {
		e.size -= len(e.texts[0])
		e.texts = e.texts[1:]
	}
}

// find adds the places of data that repeat one of the texts.
func (e *echoes) find(data []byte, spans []span) []span {
	whole := bytes.TrimSpace(data)
	for _, t := range e.texts {
		if len(whole) >= minEcho && bytes.Contains(t, whole) {
			return append(spans, span{0, len(data), "echo", false})
		}
		for at := 0; ; {
			i := bytes.Index(data[at:], t[:minEcho])
			if i < 0 {
				break
			}
			start := at + i
			n := minEcho
			for n < len(t) && start+n < len(data) && t[n] == data[start+n] {
				n++
			}
			at = start + n
			spans = append(spans, span{start, at, "echo", false})
		}
	}
	return spans
}

// parseEcho masks what follows the words with which both CLIs complain about a
// line: the line, cut somewhere, and the parser's message, which quotes it too.
func (r *Redactor) parseEcho(data []byte) {
	words := []byte(anchors[echoAnchor].text)
	inJSON := json.Valid(data)
	for at := 0; ; {
		i := bytes.Index(data[at:], words)
		if i < 0 {
			return
		}
		at += i + len(words)
		end := len(data)
		if inJSON {
			end = stringEnd(data, at)
		}
		r.spans = append(r.spans, span{at, end, "echo", false})
		at = end
	}
}
