package s3

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"
	"time"
)

func TestQuick(t *testing.T) {
	if os.Getenv("Q") == "" {
		t.Skip()
	}
	s, err := New(Config{Endpoint: "http://127.0.0.1:17070", AccessKey: "akid", SecretKey: "sekrit-value-1", Bucket: "bkt", Prefix: "p/q/", PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 12<<20)
	rand.Read(big)
	start := time.Now()
	if err := s.put(ctx, "a/big", bytes.NewReader(big), int64(len(big)), true); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(start))
	t.Log(s.put(ctx, "a/big", bytes.NewReader(big), int64(len(big)), true))
	if err := s.put(ctx, "a/big", bytes.NewReader(big), int64(len(big)), true); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	for i, e := range s.List(ctx, "") {
		t.Log(i, e)
	}
	o, err := s.open(ctx, "a/big")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil || !bytes.Equal(got, big) {
		t.Fatal(err, len(got))
	}
	_, err = s.open(ctx, "nope")
	t.Log(err, errors.Is(err, fs.ErrNotExist))
	t.Log(s.Delete(ctx, "a/big"), s.Delete(ctx, "a/big"))
	bad, _ := New(Config{Endpoint: "http://127.0.0.1:17070", AccessKey: "akid", SecretKey: "wrong-value-1", Bucket: "bkt", Prefix: "p/q/", PartSize: 5 << 20})
	t.Log(bad.Check(ctx))
	bad, _ = New(Config{Endpoint: "http://127.0.0.1:17070", AccessKey: "akid", SecretKey: "sekrit-value-1", Bucket: "nobkt", Prefix: "p/q/", PartSize: 5 << 20})
	t.Log(bad.Check(ctx))
	bad, _ = New(Config{Endpoint: "http://127.0.0.1:1", AccessKey: "akid", SecretKey: "sekrit-value-1", Bucket: "nobkt", Prefix: "p/q/", PartSize: 5 << 20})
	t.Log(bad.Check(ctx))
	t.Log(s.Sweep(ctx, time.Now()))
}
