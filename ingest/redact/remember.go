package redact

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// minValue is the shortest value that is remembered: shorter ones would be
	// found in harmless text.
	minValue = 8
	// maxValue bounds a remembered value; only so much of a longer one is
	// looked for.
	maxValue = 8 << 10
	// maxKnown bounds how many values are remembered. Past it new ones are
	// masked where they are found and not elsewhere, counted as "forgotten".
	maxKnown = 512
)

// DefaultEnvNames are the environment variables whose values are secret.
var DefaultEnvNames = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CODEBUDDY_API_KEY", "OPENAI_API_KEY", "*_API_KEY",
	"*_TOKEN", "*_SECRET", "*_PASSWORD", "*_PASSWD", "*_SECRET_KEY", "*_ACCESS_KEY", "*_PRIVATE_KEY",
}

func (r *Redactor) rememberEnv(env, names []string) error {
	names = append(append([]string(nil), DefaultEnvNames...), names...)
	for _, p := range names {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("redact environment name %q: %w", p, err)
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		for _, p := range names {
			if matches(p, name) {
				r.note(value, "env")
				break
			}
		}
	}
	return nil
}

// matches is path.Match, faster for the forms that nearly all names have: a
// hundred variables are looked at before the first line of a run.
func matches(pattern, name string) bool {
	rest, star := strings.CutPrefix(pattern, "*")
	switch {
	case strings.ContainsAny(rest, `*?[\`):
		ok, _ := path.Match(pattern, name)
		return ok
	case star:
		return strings.HasSuffix(name, rest) && !strings.Contains(name[:len(name)-len(rest)], "/")
	}
	return name == rest
}

// Remember masks value in all later frames, as rule ([a-z0-9_]). Values under 8
// bytes are ignored.
func (r *Redactor) Remember(value, rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(value, rule)
}

// learn remembers value and masks it in data, the frame that taught it.
func (r *Redactor) learn(value string, data []byte) {
	first := len(r.match.lits)
	if !r.note(value, "token") {
		return
	}
	for _, l := range r.match.lits[first:] {
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], l.text)
			if i < 0 {
				break
			}
			at += i
			r.spans = append(r.spans, span{at, at + len(l.text), l.target.rule, false})
		}
	}
}

// note adds value to what the matcher looks for.
func (r *Redactor) note(value, rule string) bool {
	if len(value) > maxValue {
		value = value[:maxValue]
	}
	if len(value) < minValue || r.known[value] || strings.TrimLeft(value, value[:1]) == "" {
		return false
	}
	if len(r.known) >= maxKnown {
		r.counts["forgotten"]++
		return false
	}
	r.known[value] = true
	for _, form := range forms(value) {
		r.match.add(form, target{rule: rule})
		r.longest = max(r.longest, len(form))
	}
	return true
}

// worth reports whether a credential found by its surroundings is special
// enough to be looked for everywhere.
func worth(v []byte) bool {
	return len(v) >= 12 && bytes.ContainsAny(v, "0123456789")
}

// forms are the ways a value may stand in a frame: as it is, and as a JSON
// string writes it (JavaScript's way, Go's, Python's, with escaped slashes),
// also twice, for JSON inside a string.
func forms(value string) []string {
	out := []string{value}
	add := func(s string) {
		for _, o := range out {
			if o == s {
				return
			}
		}
		out = append(out, s)
	}
	for _, st := range styles {
		once := escape(value, st)
		add(once)
		add(escape(once, st))
		add(escape(once, style{}))
	}
	return out
}

// A style is a way to write JSON strings.
type style struct{ slash, html, ascii, upper bool }

var styles = []style{{}, {slash: true}, {html: true}, {ascii: true}, {ascii: true, slash: true}, {ascii: true, html: true}, {html: true, ascii: true, upper: true}}

func escape(s string, st style) string {
	var b strings.Builder
	hex := "\\u%04x"
	if st.upper {
		hex = "\\u%04X"
	}
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		short := strings.IndexRune("\"\\\n\r\t\b\f", c)
		switch {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte("\"\\nrtbf"[short])
		case c == '/' && st.slash:
			b.WriteString(`\/`)
		case c < ' ' || st.html && (c == '<' || c == '>' || c == '&') || st.ascii && c == 0x7f:
			fmt.Fprintf(&b, hex, c)
		case st.ascii && c >= 0x10000:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(&b, hex+hex, hi, lo)
		case st.ascii && c >= 0x80 && c != utf8.RuneError:
			fmt.Fprintf(&b, hex, c)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// secretName reports whether a key, flag or header of this name has a secret
// value.
func secretName(name string) bool {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, "source") || strings.HasSuffix(name, "tokens") {
		return false // tokenSource, apiKeySource; max_tokens
	}
	for _, w := range []string{"token", "secret", "password", "passwd", "apikey", "api_key", "api-key", "credential", "authorization", "private_key", "private-key"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}
