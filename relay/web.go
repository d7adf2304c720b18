package relay

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed web
var webFiles embed.FS

// pagePolicy lets the page run its own modules and style sheet, talk to its own
// relay, and nothing else: no inline script or style, no frame, no form that leaves.
// With trusted types no text becomes markup, whatever a bug in the page would do.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// heartbeatMark stands in index.html for the milliseconds between two heartbeats,
// by which the page knows that a silent stream is a dead one.
const heartbeatMark = "{{heartbeat}}"

const webIndex = "index.html"

// A webFile is one file of the page as it is served.
type webFile struct {
	data []byte
	mime string
	etag string
}

// webPage is the embedded page: its files by name. They are part of the program, so
// that an error is a programmer's.
var webPage = sync.OnceValue(func() map[string]*webFile {
	page := map[string]*webFile{}
	err := fs.WalkDir(webFiles, "web", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := webFiles.ReadFile(name)
		if err != nil {
			return err
		}
		page[strings.TrimPrefix(name, "web/")] = newWebFile(data, webType(name))
		return nil
	})
	if err != nil {
		panic("relay: embedded page: " + err.Error())
	}
	return page
})

func newWebFile(data []byte, mediaType string) *webFile {
	sum := sha256.Sum256(data)
	return &webFile{data, mediaType, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// webType is the media type of a file. The machine's own table, which differs from
// one to the next, is asked last.
func webType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}

// webRoutes are the page and its files. They hold no data, so everybody gets them.
func (r *Relay) webRoutes() []route {
	return []route{
		{"GET", "/{$}", "", r.front, "this list; where a browser asks, the page for people"},
		{"GET", "/ui/{file}", "", r.webAsset, ""},
	}
}

// front is the page for a browser, and for everybody else the list of routes.
func (r *Relay) front(w http.ResponseWriter, q *http.Request) *apiErr {
	w.Header().Add("Vary", "Accept")
	if !wantsHTML(q) {
		return r.index(w, q)
	}
	f := webPage()[webIndex]
	beat := strconv.FormatInt(r.cfg.Heartbeat.Milliseconds(), 10)
	newWebFile(bytes.ReplaceAll(f.data, []byte(heartbeatMark), []byte(beat)), f.mime).serve(w, q)
	return nil
}

// wantsHTML reports whether a browser opens the address. Programs accept anything,
// or name no HTML.
func wantsHTML(q *http.Request) bool {
	for _, v := range q.Header.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			if t, _, _ := strings.Cut(part, ";"); strings.EqualFold(strings.TrimSpace(t), "text/html") {
				return true
			}
		}
	}
	return false
}

func (r *Relay) webAsset(w http.ResponseWriter, q *http.Request) *apiErr {
	name := q.PathValue("file")
	f, ok := webPage()[name]
	if !ok || name == webIndex {
		return notFound()
	}
	f.serve(w, q)
	return nil
}

// serve answers with a file. A browser keeps it and asks each time whether it is
// still the one, so that a page and its modules are always of one version.
func (f *webFile) serve(w http.ResponseWriter, q *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mime)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	for _, part := range []string{"Range", "If-Range", "If-Match", "If-Unmodified-Since"} {
		q.Header.Del(part) // the files are small, and given whole
	}
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(f.data))
}
