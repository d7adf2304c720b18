package s3_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/segment/s3"
)

const (
	secret = "hush-hush-5f2b"
	part   = 5 << 20
)

func open(t *testing.T, url string, change ...func(*s3.Config)) *s3.Store {
	t.Helper()
	cfg := s3.Config{
		Endpoint: url, Region: "us-east-1", AccessKey: "akid", SecretKey: secret, PathStyle: true,
		Bucket: "bucket", Prefix: "a/b/", PartSize: part, Tries: 3,
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := s3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func body(b []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func contents(t *testing.T, s segment.Store, key string) []byte {
	t.Helper()
	o, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever the size, an object has the bytes that were put, and a second one of the
// name is refused and changes nothing.
func TestCreate(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "small": 100, "one part": part, "two parts": part + 1, "three": 2*part + 7} {
		t.Run(name, func(t *testing.T) {
			d, url := newDouble(t)
			s := open(t, url)
			data := noise(size)
			if err := s.Create(t.Context(), "x/y", body(data)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(contents(t, s, "x/y"), data) {
				t.Error("read back: other bytes")
			}
			err := s.Create(t.Context(), "x/y", body(noise(size + 1)[1:]))
			if !errors.Is(err, fs.ErrExist) {
				t.Errorf("second Create = %v, want fs.ErrExist", err)
			}
			if !bytes.Equal(contents(t, s, "x/y"), data) {
				t.Error("the second Create changed the object")
			}
			if len(d.parts) > 0 {
				t.Errorf("%d uploads are left", len(d.parts))
			}
		})
	}
}

// An answer that gets lost, or comes as a failure after the work was done, does not
// make one's own object another's.
func TestCreateLostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		size int
		op   string
	}{"single": {100, "PUT"}, "multipart": {part + 100, "COMPLETE"}} {
		for how, answer := range map[string]func(http.ResponseWriter){
			"cut":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
			"error": func(w http.ResponseWriter) { fail(w, http.StatusInternalServerError, "InternalError", "try again") },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				d, url := newDouble(t)
				d.after = func(w http.ResponseWriter, op string, n int) bool {
					if op != tc.op || n > 1 {
						return false
					}
					answer(w)
					return true
				}
				s := open(t, url)
				data := noise(tc.size)
				if err := s.Create(t.Context(), "x", body(data)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(contents(t, s, "x"), data) {
					t.Error("other bytes")
				}
				if d.count[tc.op] < 2 {
					t.Errorf("%d tries", d.count[tc.op])
				}
			})
		}
	}
}

// After a lost answer, an object with other bytes is another's.
func TestCreateLostToAnother(t *testing.T) {
	d, url := newDouble(t)
	d.before = func(w http.ResponseWriter, op string, n int) bool {
		if op != "PUT" || n > 1 {
			return false
		}
		d.objects["a/b/x"] = []byte("another's")
		fail(w, http.StatusConflict, "ConditionalRequestConflict", "two at once")
		return true
	}
	s := open(t, url)
	if err := s.Create(t.Context(), "x", body([]byte("mine"))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create = %v, want fs.ErrExist", err)
	}
}

// What may pass is tried again, as often as configured; what may not, once.
func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   string
		tries  int
		kind   error
	}{
		{http.StatusServiceUnavailable, "SlowDown", 3, nil},
		{http.StatusBadGateway, "", 3, nil},
		{http.StatusTooManyRequests, "TooManyRequests", 3, nil},
		{http.StatusForbidden, "AccessDenied", 1, fs.ErrPermission},
		{http.StatusBadRequest, "InvalidRequest", 1, nil},
		{http.StatusNotFound, "NoSuchBucket", 1, nil},
		{http.StatusInsufficientStorage, "InsufficientStorage", 3, nil},
	} {
		t.Run(tc.code, func(t *testing.T) {
			d, url := newDouble(t)
			d.before = func(w http.ResponseWriter, op string, _ int) bool {
				if op != "PUT" {
					return false
				}
				fail(w, tc.status, tc.code, "the secret is "+secret)
				return true
			}
			err := open(t, url).Create(t.Context(), "x", body([]byte("b")))
			if err == nil || errors.Is(err, fs.ErrExist) || tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Fatalf("Create = %v", err)
			}
			if d.count["PUT"] != tc.tries {
				t.Errorf("%d tries, want %d", d.count["PUT"], tc.tries)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}

// A part that fails frees the upload.
func TestAbort(t *testing.T) {
	d, url := newDouble(t)
	d.before = func(w http.ResponseWriter, op string, n int) bool {
		if op != "PART" || n < 2 {
			return false
		}
		fail(w, http.StatusForbidden, "QuotaExceeded", "full")
		return true
	}
	if err := open(t, url).Create(t.Context(), "x", body(noise(part+1))); err == nil {
		t.Fatal("no error")
	}
	if d.aborted != 1 || len(d.parts) != 0 || len(d.objects) != 0 {
		t.Errorf("aborted %d, left %d uploads and %d objects", d.aborted, len(d.parts), len(d.objects))
	}
}

// A server that does not refuse a second object of a name cannot hold an archive.
func TestCheck(t *testing.T) {
	for _, tc := range []struct{ deaf, want string }{
		{"", ""}, {"*", "If-None-Match for a second object"}, {"COMPLETE", "If-None-Match for a second multipart upload"},
	} {
		d, url := newDouble(t)
		d.deaf = tc.deaf
		err := open(t, url).Check(t.Context())
		if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, segment.ErrUnfit) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("deaf %q: Check = %v, want %q", tc.deaf, err, tc.want)
		}
		if len(d.objects) > 0 {
			t.Errorf("deaf %q: Check left %d objects", tc.deaf, len(d.objects))
		}
	}
}

// Uploads that a process left in the middle go when they are old; young ones, which another may
// be going on with, and those of others in the bucket stay.
func TestSweep(t *testing.T) {
	d, url := newDouble(t)
	s := open(t, url)
	old, young := time.Now().Add(-25*time.Hour), time.Now().Add(-time.Hour)
	d.uploads = map[string]upload{
		"1": {"a/b/t/acme/segments/1", old}, "2": {"a/b/t/acme/segments/2", young}, "3": {"a/b/keys/acme/1", old},
		"4": {"a/b/photos/1", old}, "5": {"t/acme/segments/1", old}, "6": {"a/b/t/acme/segments/1", young},
	}
	if err := s.Sweep(t.Context(), time.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(d.uploads)); !slices.Equal(got, []string{"2", "4", "5", "6"}) {
		t.Errorf("left: %v", got)
	}
	d.before = func(w http.ResponseWriter, what string, _ int) bool {
		if what == "UPLOADS" {
			fail(w, http.StatusForbidden, "AccessDenied", "no")
		}
		return what == "UPLOADS"
	}
	if err := s.Sweep(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "list uploads") {
		t.Errorf("got %v", err)
	}
}

func TestRead(t *testing.T) {
	d, url := newDouble(t)
	s := open(t, url)
	data := noise(3 << 20)
	d.objects["a/b/x"] = data
	o, err := s.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, at := range []struct{ off, n int }{{0, 10}, {10, 10}, {2 << 20, 1 << 20}, {3<<20 - 5, 5}, {1 << 20, 2 << 20}, {5, 0}} {
		got := make([]byte, at.n)
		if n, err := o.ReadAt(got, int64(at.off)); n != at.n || err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(got, data[at.off:at.off+at.n]) {
			t.Errorf("ReadAt(%d, %d) = %d, %v", at.off, at.n, n, err)
		}
	}
	got := make([]byte, 10)
	if n, err := o.ReadAt(got, 3<<20-5); n != 5 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt over the end = %d, %v", n, err)
	}
	if _, err := s.Open(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of none = %v", err)
	}
	d.mu.Lock()
	d.objects["a/b/x"] = noise(4 << 20)[1<<20:]
	d.mu.Unlock()
	if _, err := o.ReadAt(make([]byte, 10), 200<<10); err == nil {
		t.Error("an object that was replaced is read on")
	}
}

func TestListDelete(t *testing.T) {
	d, url := newDouble(t)
	s := open(t, url)
	for _, k := range []string{"h/1", "h/10", "h/2", "h/3", "h/4", "h/5", "i/1"} {
		if err := s.Replace(t.Context(), k, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	d.objects["elsewhere"] = nil
	fails := 1 // the second page, once
	d.before = func(w http.ResponseWriter, op string, n int) bool {
		if op != "LIST" || n != 2 || fails == 0 {
			return false
		}
		fails--
		fail(w, http.StatusServiceUnavailable, "SlowDown", "wait")
		return true
	}
	list := func() (keys []string) {
		for i, err := range s.List(t.Context(), "h/") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, i.Key)
		}
		return keys
	}
	if diff := cmp.Diff([]string{"h/1", "h/10", "h/2", "h/3", "h/4", "h/5"}, list()); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "h/2"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"h/1", "h/10", "h/3", "h/4", "h/5"}, list()); diff != "" {
		t.Error(diff)
	}
}

// A secret that is renewed in its file is used; one that is wrong is in no error.
func TestKeys(t *testing.T) {
	_, url := newDouble(t)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, url, func(c *s3.Config) { c.SecretKey, c.SecretKeyFile = "", file })
	if err := s.Create(t.Context(), "x", body(nil)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*s3.Config){
		"both":     func(c *s3.Config) { c.SecretKeyFile = file },
		"half":     func(c *s3.Config) { c.SecretKey = "" },
		"userinfo": func(c *s3.Config) { c.Endpoint = "https://u:" + secret + "@host" },
		"scheme":   func(c *s3.Config) { c.Endpoint = "ftp://host" },
		"part":     func(c *s3.Config) { c.PartSize = 1 },
		"bucket":   func(c *s3.Config) { c.Bucket = "" },
		"ca":       func(c *s3.Config) { c.CA = file },
	} {
		cfg := s3.Config{Endpoint: url, AccessKey: "a", SecretKey: secret, Bucket: "b"}
		change(&cfg)
		if _, err := s3.New(cfg); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: New = %v", name, err)
		}
	}
}

// The caller's end ends a wait.
func TestCanceled(t *testing.T) {
	d, url := newDouble(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.before = func(w http.ResponseWriter, _ string, _ int) bool {
		cancel()
		fail(w, http.StatusServiceUnavailable, "SlowDown", "wait")
		return true
	}
	err := open(t, url, func(c *s3.Config) { c.Tries = 1000 }).Create(ctx, "x", body([]byte("b")))
	if err == nil || d.count["PUT"] != 1 {
		t.Errorf("%v after %d tries", err, d.count["PUT"])
	}
}

func TestParse(t *testing.T) {
	for dest, want := range map[string][2]string{
		"s3://b": {"b", ""}, "s3://b/": {"b", ""}, "s3://b/p": {"b", "p/"}, "s3://b/p/q/": {"b", "p/q/"},
	} {
		b, p, err := s3.Parse(dest)
		if got := [2]string{b, p}; got != want || err != nil {
			t.Errorf("Parse(%s) = %q, %v", dest, got, err)
		}
	}
	for _, dest := range []string{"", "/dir", "s3://", "s3:///p", "s3://key:" + hex.EncodeToString([]byte("x")) + "@b/p"} {
		if _, _, err := s3.Parse(dest); err == nil {
			t.Errorf("Parse(%s): no error", dest)
		}
	}
}
