package redact

import (
	"bytes"

	"github.com/cbcast/cbcast/internal/event"
)

// An anchor is a text that begins (or is part of) something to mask. shape
// gets the frame and where the anchor stands, and returns the bytes to mask;
// ok is false when it is nothing.
type anchor struct {
	text  string
	rule  string
	shape func(data []byte, at int) (start, end int, ok bool)
	learn bool // remember what was masked
}

// anchors are looked for in every frame. Two have no shape: they say that
// another pass is worth its time.
var anchors = []anchor{
	{text: "control_re"}, // control_request, control_response
	{text: "parsing streaming input line: "},
	{"earer ", "bearer", bearer, true},
	{"uthorization", "bearer", header, true},
	{"x-api-key", "bearer", header, true},
	{"X-Api-Key", "bearer", header, true},
	{"sk-", "api_key", skKey, false},
	{"sk_live_", "api_key", key("sk_live_", keyByte, 16), false},
	{"ghp_", "api_key", key("ghp_", alnum, 20), false},
	{"gho_", "api_key", key("gho_", alnum, 20), false},
	{"ghu_", "api_key", key("ghu_", alnum, 20), false},
	{"ghs_", "api_key", key("ghs_", alnum, 20), false},
	{"ghr_", "api_key", key("ghr_", alnum, 20), false},
	{"github_pat_", "api_key", key("github_pat_", keyByte, 20), false},
	{"glpat-", "api_key", key("glpat-", keyByte, 16), false},
	{"xoxa-", "api_key", key("xoxa-", keyByte, 10), false},
	{"xoxb-", "api_key", key("xoxb-", keyByte, 10), false},
	{"xoxp-", "api_key", key("xoxp-", keyByte, 10), false},
	{"xoxr-", "api_key", key("xoxr-", keyByte, 10), false},
	{"xoxs-", "api_key", key("xoxs-", keyByte, 10), false},
	{"AKIA", "api_key", key("AKIA", upper, 16), false},
	{"ASIA", "api_key", key("ASIA", upper, 16), false},
	{"AIza", "api_key", key("AIza", keyByte, 30), false},
	{"eyJ", "jwt", jwt, false},
	{"hooks.slack.com/", "slack_hook", slackHook, false},
	{"PRIVATE KEY", "private_key", privateKey, false},
}

const (
	controlAnchor = iota
	echoAnchor
)

// found says which further passes a frame needs.
type found struct{ control, echo bool }

// scan collects what literals and shapes find in data. A value that a shape
// teaches is looked for in this frame too.
func (r *Redactor) scan(stream event.Stream, data []byte) (f found) {
	var learned []string
	r.match.scan(data, func(l *literal, at int) {
		if l.target.rule != "" {
			r.spans = append(r.spans, span{at, at + len(l.text), l.target.rule, false})
			return
		}
		a := &anchors[l.target.anchor]
		switch {
		case l.target.anchor == controlAnchor:
			f.control = stream == event.Out || stream == event.In
		case l.target.anchor == echoAnchor:
			f.echo = stream == event.Out || stream == event.Err
		default:
			start, end, ok := a.shape(data, at)
			if !ok {
				return
			}
			r.spans = append(r.spans, span{start, end, a.rule, false})
			if v := data[start:end]; a.learn && worth(v) {
				learned = append(learned, string(v))
			}
		}
	})
	for _, v := range learned {
		r.learn(v, data)
	}
	return f
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
func upper(c byte) bool   { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func keyByte(c byte) bool { return alnum(c) || c == '_' || c == '-' }

// token68 are the bytes of credentials in an Authorization header (RFC 9110).
func token68(c byte) bool {
	return keyByte(c) || c == '.' || c == '~' || c == '+' || c == '/' || c == '='
}

// run is the end of the bytes from i on that are in. A JSON-escaped slash
// counts as a slash.
func run(data []byte, i int, in func(byte) bool) int {
	for i < len(data) {
		if in(data[i]) {
			i++
		} else if data[i] == '\\' && i+1 < len(data) && data[i+1] == '/' && in('/') {
			i += 2
		} else {
			break
		}
	}
	return i
}

// begins reports whether a word may begin at i: what stands before is no part
// of one. The letter of a JSON escape (\n) is none.
func begins(data []byte, i int) bool {
	if i == 0 || !alnum(data[i-1]) && data[i-1] != '_' {
		return true
	}
	return i >= 2 && data[i-2] == '\\' && bytes.IndexByte([]byte("nrtbf"), data[i-1]) >= 0
}

// key is the shape of prefix and at least n bytes that are in.
func key(prefix string, in func(byte) bool, n int) func([]byte, int) (int, int, bool) {
	return func(data []byte, at int) (int, int, bool) {
		body := at + len(prefix)
		end := run(data, body, in)
		return at, end, end-body >= n && begins(data, at)
	}
}

// skKey is sk-ant-… of Anthropic, and sk-… of OpenAI and those who follow it.
// Without a digit it may be words with hyphens.
func skKey(data []byte, at int) (int, int, bool) {
	end := run(data, at+3, keyByte)
	if !begins(data, at) {
		return 0, 0, false
	}
	body := data[at+3 : end]
	if bytes.HasPrefix(body, []byte("ant-")) && len(body) >= 12 {
		return at, end, true
	}
	return at, end, len(body) >= 16 && bytes.ContainsAny(body, "0123456789")
}

// credential is the token at i, if it looks like one: prose follows the word
// "bearer" too.
func credential(data []byte, i int) (int, int, bool) {
	end := run(data, i, token68)
	for end > i && data[end-1] == '.' { // the end of a sentence
		end--
	}
	v := data[i:end]
	return i, end, len(v) >= 20 || len(v) >= 8 && bytes.ContainsAny(v, "0123456789=")
}

func bearer(data []byte, at int) (int, int, bool) {
	if at == 0 || data[at-1]|0x20 != 'b' {
		return 0, 0, false
	}
	i := at + len("earer ")
	for i < len(data) && data[i] == ' ' {
		i++
	}
	return credential(data, i)
}

// header is a header's name with its value behind it, in HTTP or JSON, perhaps
// JSON inside a JSON string.
func header(data []byte, at int) (int, int, bool) {
	i := run(data, at, keyByte)
	sep := false
	for i < len(data) && bytes.IndexByte([]byte(`\"': =`), data[i]) >= 0 {
		sep = sep || data[i] == ':' || data[i] == '='
		i++
	}
	if !sep {
		return 0, 0, false
	}
	if w := run(data, i, alnum); w-i <= 10 && w+1 < len(data) && data[w] == ' ' && token68(data[w+1]) {
		end := run(data, w+1, token68)
		return w + 1, end, end-w > 6 // a scheme stands before it: no prose
	}
	return credential(data, i)
}

// jwt is two or three parts in base64url, the first of them JSON ("{" and a
// quote are "eyJ").
func jwt(data []byte, at int) (int, int, bool) {
	if !begins(data, at) {
		return 0, 0, false
	}
	a := run(data, at, keyByte)
	if a-at < 10 || a >= len(data) || data[a] != '.' {
		return 0, 0, false
	}
	b := run(data, a+1, keyByte)
	if b-a < 5 || b >= len(data) || data[b] != '.' {
		return 0, 0, false
	}
	end := run(data, b+1, func(c byte) bool { return keyByte(c) || c == '.' }) // encrypted ones have five parts
	return at, end, true
}

func slackHook(data []byte, at int) (int, int, bool) {
	start := at + len("hooks.slack.com/")
	end := run(data, start, func(c byte) bool { return keyByte(c) || c == '/' })
	return start, end, end-start >= 8
}

// privateKey is a PEM block; without its end it reaches to the end of the JSON
// string or of the frame.
func privateKey(data []byte, at int) (int, int, bool) {
	const begin, end = "-----BEGIN ", "-----END "
	from := max(0, at-32)
	b := bytes.LastIndex(data[from:at], []byte(begin))
	if b < 0 {
		return 0, 0, false
	}
	start := from + b
	rest := data[at:]
	if e := bytes.Index(rest, []byte(end)); e >= 0 {
		stop := at + e + len(end)
		if d := bytes.Index(data[stop:], []byte("-----")); d >= 0 && d < 64 {
			return start, stop + d + 5, true
		}
	}
	if q := bytes.IndexByte(rest, '"'); q >= 0 {
		for q > 0 && rest[q-1] == '\\' { // a quote inside the string, in JSON inside JSON
			q--
		}
		return start, at + q, true
	}
	return start, len(data), true
}
