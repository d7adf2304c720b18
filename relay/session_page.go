package relay

import (
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"net/http"
	"strings"
)

//go:embed login/login.html
var loginHTML string

// loginPolicy lets the login page run its one script, use its one style sheet and
// ask its own relay; nothing else.
var loginPolicy = "default-src 'none'; script-src " + hashOf(loginHTML, "script") + "; style-src " + hashOf(loginHTML, "style") +
	"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// hashOf is what a policy calls the one element of a name in a page.
func hashOf(html, element string) string {
	_, rest, _ := strings.Cut(html, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// loginPage takes a code from the address, or a token from a person. It holds no
// data.
func (r *Relay) loginPage(w http.ResponseWriter, _ *http.Request) *apiErr {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", loginPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(loginHTML))
	return nil
}
