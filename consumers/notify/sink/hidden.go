package sink

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Hidden are texts that no error, log, letter or answer to a person may hold: tokens and
// passwords as they are, of addresses everything but the host, and all of it in the
// forms in which a destination may repeat what it was sent. It is the only thing that
// takes secrets out of texts. A nil one hides nothing. It does not change.
type Hidden struct {
	texts []string // every form, the longest first: parts of one are not to stay
}

// How long a text has to be to be hidden: shorter ones are in every sentence. A name (a
// user's) is often a word and is hidden where it is long.
const (
	minSecret = 3
	minName   = 8
)

// NewHidden takes tokens as they are, and of addresses everything but the host.
func NewHidden(addresses []string, tokens ...string) *Hidden {
	h := &Hidden{}
	for _, t := range tokens {
		h.secret(t)
	}
	for _, a := range addresses {
		h.address(a)
	}
	return h.sorted()
}

// And returns h with what the others hide.
func (h *Hidden) And(others ...*Hidden) *Hidden {
	all := &Hidden{}
	for _, o := range append([]*Hidden{h}, others...) {
		if o != nil {
			all.texts = append(all.texts, o.texts...)
		}
	}
	return all.sorted()
}

// HideLogin is a user's name and password, in the forms in which a server is told them:
// Basic (RFC 7617), and PLAIN and LOGIN of SASL (RFC 4616).
func HideLogin(user, password string) *Hidden {
	h := &Hidden{}
	h.secret(password)
	if len(user) >= minName {
		h.secret(user)
	}
	if password == "" {
		return h.sorted()
	}
	for _, both := range []string{user + ":" + password, "\x00" + user + "\x00" + password, user + "\x00" + user + "\x00" + password} {
		h.add(both)
		h.encoded(both)
	}
	for _, name := range []string{user, password} { // LOGIN sends each alone, however short
		if b := base64.StdEncoding.EncodeToString([]byte(name)); len(name) >= minSecret {
			h.add(b)
		}
	}
	return h.sorted()
}

func (h *Hidden) sorted() *Hidden {
	slices.SortFunc(h.texts, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	h.texts = slices.Compact(h.texts)
	return h
}

func (h *Hidden) add(text string) {
	if len(text) >= minSecret {
		h.texts = append(h.texts, text)
	}
}

// address hides of an address all but its host.
func (h *Hidden) address(a string) {
	h.secret(a)
	u, err := url.Parse(strings.TrimSpace(a))
	if err != nil {
		return
	}
	h.secret(u.RequestURI())
	h.secret(strings.TrimPrefix(u.EscapedPath(), "/"))
	h.secret(u.RawQuery)
	for part := range strings.SplitSeq(u.Path, "/") {
		h.secret(part)
	}
	for _, values := range u.Query() {
		for _, v := range values {
			h.secret(v)
		}
	}
	h.userinfo(a, u)
}

// userinfo hides the user and the password of an address, also as the address has them.
func (h *Hidden) userinfo(address string, u *url.URL) {
	if u.User == nil {
		return
	}
	p, _ := u.User.Password()
	h.secret(u.User.Username())
	h.texts = append(h.texts, HideLogin(u.User.Username(), p).texts...)
	_, rest, _ := strings.Cut(address, "//")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		_, raw, _ := strings.Cut(rest[:i], ":")
		h.add(rest[:i])
		h.add(raw)
	}
}

// loginOf hides an address that has a user in it; nil where it has none.
func loginOf(address string) *Hidden {
	if u, err := url.Parse(address); err != nil || u.User == nil {
		return nil
	}
	return NewHidden([]string{address})
}

// secret hides a text in every form.
func (h *Hidden) secret(s string) {
	if len(s) < minSecret {
		return
	}
	h.add(s)
	for _, f := range []string{
		url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), percented(s),
	} {
		h.add(f)
		h.add(lowerHex(f))
		h.add(url.QueryEscape(f)) // a form within a form
	}
	for _, f := range quotedForms(s) {
		h.add(f)
	}
	h.add(html.EscapeString(s))
	h.encoded(s)
	if len(s) >= 2*minSecret {
		h.add(hex.EncodeToString([]byte(s)))
		h.add(strings.ToUpper(hex.EncodeToString([]byte(s))))
	}
}

// minInner is from which length on what a secret leaves within a longer base64 is hidden.
const minInner = 6

// encoded hides a text in base64: alone, and within a longer text, where it may begin at
// any of three places. The last character of each end is made of a neighbour's bits, too,
// and stays.
func (h *Hidden) encoded(s string) {
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		whole := e.EncodeToString([]byte(s))
		h.add(whole)
		h.add(url.QueryEscape(whole))
		h.add(strings.ReplaceAll(whole, "/", `\/`))
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := e.EncodeToString(append(make([]byte, before), s...))
			from, to := (8*before+5)/6, 8*(before+len(s))/6
			if to-from < minInner {
				continue
			}
			inner := text[from:to]
			h.add(inner)
			h.add(url.QueryEscape(inner))
			h.add(strings.ReplaceAll(inner, "/", `\/`))
		}
	}
}

// quotedForms are a text as JSON and Go write it between quotes, and logs of both.
func quotedForms(s string) (all []string) {
	inner := func(b string) {
		if len(b) > 2 {
			all = append(all, b[1:len(b)-1])
		}
	}
	if b, err := json.Marshal(s); err == nil {
		inner(string(b))
	}
	if b, err := encode(s); err == nil {
		inner(strings.TrimSpace(string(b)))
	}
	inner(strconv.Quote(s))
	inner(strconv.QuoteToASCII(s))
	all = append(all, asciiJSON(s, "%04x"), asciiJSON(s, "%04X"))
	for _, f := range slices.Clone(all) {
		all = append(all, strings.ReplaceAll(f, "/", `\/`))
		if b, err := encode(f); err == nil { // JSON within JSON
			inner(strings.TrimSpace(string(b)))
		}
	}
	return all
}

// asciiJSON is a text as JSON of ASCII alone.
func asciiJSON(s, hexed string) string {
	b, err := encode(strings.ToValidUTF8(s, "\ufffd"))
	if err != nil || len(b) < 2 {
		return s
	}
	text := strings.TrimSpace(string(b))
	var out strings.Builder
	for _, r := range text[1 : len(text)-1] {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u`+hexed+`\u`+hexed, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&out, `\u`+hexed, r)
		}
	}
	return out.String()
}

// percented has every byte but letters and digits as %XX, as some libraries write it.
func percented(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// lowerHex has the digits of %XX small.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// Clean takes the secrets out of a text.
func (h *Hidden) Clean(text string) string {
	if h == nil {
		return text
	}
	for _, t := range h.texts {
		text = strings.ReplaceAll(text, t, ellipsis)
	}
	return text
}

// Outcome is one without secrets in what it says.
func (h *Hidden) Outcome(o Outcome) Outcome {
	if h == nil {
		return o
	}
	if o.Err != nil {
		if text := o.Err.Error(); h.Clean(text) != text {
			o.Err = fmt.Errorf("%s", h.Clean(text)) //nolint:perfsprint // the cause is what has the secret
		}
	}
	o.Note = h.Clean(o.Note)
	return o
}
