package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cbcast/cbcast/internal/segment"
)

// Sizes of what is read ahead: the first request of an object asks for the least,
// and each that goes on where the last one ended for twice as much.
const (
	leastAhead = 128 << 10
	mostAhead  = 4 << 20
)

// An object is read in pieces, all of the version that was there when it was
// opened: one that was replaced since is an error.
type object struct {
	s    *Store
	ctx  context.Context // io.ReaderAt has none
	name string
	etag string
	size int64

	mu    sync.Mutex
	at    int64 // where in the object buf begins
	buf   []byte
	ahead int64
}

// Open is segment.Store's. ctx also bounds the reads.
func (s *Store) Open(ctx context.Context, name string) (segment.Object, error) {
	return s.open(ctx, name)
}

func (s *Store) open(ctx context.Context, name string) (*object, error) {
	var info minio.ObjectInfo
	err := s.try(ctx, func(ctx context.Context, _ int) (err error) {
		info, err = s.core.StatObject(ctx, s.cfg.Bucket, s.key(name), minio.StatObjectOptions{})
		return err
	})
	if err != nil {
		return nil, s.wrap("open", name, err)
	}
	return &object{s: s, ctx: ctx, name: name, etag: info.ETag, size: info.Size}, nil
}

// Size is the object's, in bytes.
func (o *object) Size() int64 { return o.size }

// Close frees the object's memory.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = nil
	return nil
}

// ReadAt is io.ReaderAt; the context is that of the opening.
func (o *object) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("s3: read %s: offset %d", o.s.key(o.name), off)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for n < len(p) {
		at := off + int64(n)
		if at >= o.size {
			return n, io.EOF
		}
		if at < o.at || at >= o.at+int64(len(o.buf)) {
			if err := o.fetch(at, int64(len(p)-n)); err != nil {
				return n, err
			}
		}
		n += copy(p[n:], o.buf[at-o.at:])
	}
	return n, nil
}

// fetch reads at least one byte and, where the object has them, want.
func (o *object) fetch(at, want int64) error {
	if at == o.at+int64(len(o.buf)) && len(o.buf) > 0 {
		o.ahead = min(2*o.ahead, mostAhead)
	} else {
		o.ahead = leastAhead
	}
	n := min(max(want, o.ahead), mostAhead, o.size-at)
	if int64(cap(o.buf)) < n {
		o.buf = make([]byte, n)
	}
	buf := o.buf[:n]
	o.buf = o.buf[:0]
	err := o.s.try(o.ctx, func(ctx context.Context, _ int) error {
		opts := minio.GetObjectOptions{}
		if err := opts.SetRange(at, at+n-1); err != nil {
			return err
		}
		if err := opts.SetMatchETag(o.etag); err != nil {
			return err
		}
		body, _, _, err := o.s.core.GetObject(ctx, o.s.cfg.Bucket, o.s.key(o.name), opts)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.ReadFull(body, buf)
		return err
	})
	if response(err).Code == codePrecondition {
		return &opError{text: fmt.Sprintf("s3: read %s: it was replaced meanwhile", o.s.key(o.name))}
	}
	if err != nil {
		return o.s.wrap("read", o.name, err)
	}
	o.buf, o.at = buf, at
	return nil
}

// List is segment.Store's; S3 sorts keys as bytes. A server that gives them in
// another order is refused.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[segment.Info, error] {
	return func(yield func(segment.Info, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		after, stopped := "", false // a try goes on behind what was given
		err := s.try(ctx, func(context.Context, int) error {
			for info := range s.core.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{
				Prefix: s.key(prefix), Recursive: true, StartAfter: after,
			}) {
				if info.Err != nil {
					return info.Err
				}
				name, ok := strings.CutPrefix(info.Key, s.cfg.Prefix)
				if !ok {
					return fmt.Errorf("%q is not below %q", info.Key, s.cfg.Prefix)
				}
				if info.Key <= after {
					return fmt.Errorf("%q comes behind %q", info.Key, after)
				}
				after = info.Key
				if !yield(segment.Info{Key: name, Size: info.Size, Time: info.LastModified}, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(segment.Info{}, s.wrap("list", prefix, err))
		}
	}
}

// Delete removes an object; one that is not there is no error.
func (s *Store) Delete(ctx context.Context, name string) error {
	err := s.try(ctx, func(ctx context.Context, _ int) error {
		return s.core.RemoveObject(ctx, s.cfg.Bucket, s.key(name), minio.RemoveObjectOptions{})
	})
	if err = s.wrap("delete", name, err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// roots begin the names of an archive's objects: what else is in the bucket is somebody else's.
var roots = []string{"catalog/", "check/", "heads/", "keys/", "signers/", "t/", "tenants/"}

// Sweep is segment.Sweeper's: it frees uploads in parts that began before a time and became no
// object, those of a process that ended in the middle. Uploads of other names are left alone.
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	for _, root := range roots {
		if err := s.sweep(ctx, s.key(root), before); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Store) sweep(ctx context.Context, prefix string, before time.Time) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for u := range s.core.ListIncompleteUploads(ctx, s.cfg.Bucket, prefix, true) {
		if u.Err != nil {
			return s.wrap("list uploads of", strings.TrimPrefix(prefix, s.cfg.Prefix), u.Err)
		}
		if !u.Initiated.Before(before) {
			continue
		}
		err := s.core.AbortMultipartUpload(ctx, s.cfg.Bucket, u.Key, u.UploadID)
		if err != nil && response(err).Code != "NoSuchUpload" {
			return s.wrap("abort upload of", strings.TrimPrefix(u.Key, s.cfg.Prefix), err)
		}
	}
	return nil
}

var (
	_ segment.Sweeper = (*Store)(nil)
	_ segment.Checker = (*Store)(nil)
)
