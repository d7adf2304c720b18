package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A double is a server that knows as much of S3 as the store needs, and fails as it
// is told. That real ones behave like it is what test/consumers is for.
type double struct {
	t *testing.T

	// before decides on a request instead of the server; what is "PUT", "GET", "HEAD",
	// "DELETE", "LIST", "BEGIN", "PART", "COMPLETE" or "ABORT".
	before func(w http.ResponseWriter, what string, n int) (done bool)
	// after runs when the server has done its part, before it answers.
	after func(w http.ResponseWriter, what string, n int) (done bool)
	// deaf leaves If-None-Match unread, on a COMPLETE or on everything.
	deaf string

	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[int][]byte
	uploads map[string]upload // by id
	count   map[string]int
	aborted int
}

// An upload has begun and has no end.
type upload struct {
	key string
	at  time.Time
}

func newDouble(t *testing.T) (*double, string) {
	d := &double{t: t, objects: map[string][]byte{}, parts: map[string]map[int][]byte{}, uploads: map[string]upload{}, count: map[string]int{}}
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	return d, s.URL
}

func what(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("uploads") && r.Method == http.MethodPost:
		return "BEGIN"
	case q.Has("uploads"):
		return "UPLOADS"
	case q.Has("uploadId") && r.Method == http.MethodGet:
		return "PARTS"
	case q.Has("uploadId"):
		return map[string]string{"PUT": "PART", "POST": "COMPLETE", "DELETE": "ABORT"}[r.Method]
	case q.Has("list-type"):
		return "LIST"
	}
	return r.Method
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := what(r)
	body, _ := io.ReadAll(r.Body)
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		body = unchunk(body)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[op]++
	if d.before != nil && d.before(w, op, d.count[op]) {
		return
	}
	rec := httptest.NewRecorder()
	d.serve(rec, r, op, body)
	if d.after != nil && d.after(w, op, d.count[op]) {
		return
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
}

func etag(b []byte) string {
	sum := md5.Sum(b)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (d *double) serve(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	q := r.URL.Query()
	_, there := d.objects[key]
	taken := there && r.Header.Get("If-None-Match") == "*" && d.deaf != op && d.deaf != "*"
	switch op {
	case "PUT":
		if taken {
			fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "it is there")
			return
		}
		d.objects[key] = body
		w.Header().Set("ETag", etag(body))
	case "BEGIN":
		id := strconv.Itoa(len(d.parts) + 1)
		d.parts[id] = map[int][]byte{}
		d.uploads[id] = upload{key, time.Now()}
		fmt.Fprintf(w, `<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>`, key, id)
	case "PART":
		n, _ := strconv.Atoi(q.Get("partNumber"))
		d.parts[q.Get("uploadId")][n] = body
		w.Header().Set("ETag", etag(body))
	case "COMPLETE":
		parts, ok := d.parts[q.Get("uploadId")]
		switch {
		case !ok:
			fail(w, http.StatusNotFound, "NoSuchUpload", "no such upload")
			return
		case taken:
			fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "it is there")
			return
		}
		var all []byte
		for n := range len(parts) {
			all = append(all, parts[n+1]...)
		}
		d.objects[key] = all
		delete(d.parts, q.Get("uploadId"))
		delete(d.uploads, q.Get("uploadId"))
		fmt.Fprintf(w, `<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>`, key, "x")
	case "ABORT":
		d.aborted++
		delete(d.parts, q.Get("uploadId"))
		delete(d.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case "UPLOADS":
		d.listUploads(w, q.Get("prefix"))
	case "PARTS":
		fmt.Fprint(w, `<ListPartsResult></ListPartsResult>`)
	case "DELETE":
		delete(d.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case "LIST":
		d.list(w, q.Get("prefix"), q.Get("start-after"), q.Get("continuation-token"))
	case "GET", "HEAD":
		d.get(w, r, key)
	default:
		fail(w, http.StatusNotImplemented, "NotImplemented", op)
	}
}

func (d *double) get(w http.ResponseWriter, r *http.Request, key string) {
	b, ok := d.objects[key]
	if !ok {
		fail(w, http.StatusNotFound, "NoSuchKey", "no such key")
		return
	}
	w.Header().Set("ETag", etag(b))
	if m := r.Header.Get("If-Match"); m != "" && m != etag(b) {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed", "it is another")
		return
	}
	http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(b))
}

func (d *double) listUploads(w http.ResponseWriter, prefix string) {
	type one struct{ Key, UploadId, Initiated string }
	var out struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []one
	}
	for _, id := range slices.Sorted(maps.Keys(d.uploads)) {
		if u := d.uploads[id]; strings.HasPrefix(u.key, prefix) {
			out.Upload = append(out.Upload, one{u.key, id, u.at.UTC().Format("2006-01-02T15:04:05.000Z")})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// page is how many keys an answer has.
const page = 3

func (d *double) list(w http.ResponseWriter, prefix, after, token string) {
	type content struct {
		Key          string
		Size         int
		LastModified string
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []content
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
	}
	var keys []string
	for k := range d.objects {
		if strings.HasPrefix(k, prefix) && k > max(after, token) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if out.IsTruncated = len(keys) > page; out.IsTruncated {
		keys = keys[:page]
		out.NextContinuationToken = keys[page-1]
	}
	for _, k := range keys {
		out.Contents = append(out.Contents, content{k, len(d.objects[k]), "2026-03-01T00:00:00.000Z"})
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// unchunk takes the signed chunks of a body apart.
func unchunk(b []byte) []byte {
	var out []byte
	for {
		line, rest, ok := bytes.Cut(b, []byte("\r\n"))
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(size), 16, 64)
		if !ok || err != nil || n == 0 || int(n) > len(rest) {
			return out
		}
		out = append(out, rest[:n]...)
		b = bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}
