package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/minio/minio-go/v7"
)

// options are those of a new object.
func options(exclusive bool) minio.PutObjectOptions {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true}
	if exclusive {
		o.SetMatchETagExcept("*")
	}
	return o
}

// Create is segment.Store's: of two at once, one gets fs.ErrExist, whatever the size.
func (s *Store) Create(ctx context.Context, name string, body *io.SectionReader) error {
	return s.put(ctx, name, body, body.Size(), true)
}

// Replace is segment.Store's.
func (s *Store) Replace(ctx context.Context, name string, data []byte) error {
	return s.put(ctx, name, bytes.NewReader(data), int64(len(data)), false)
}

// put stores size bytes of r under name; exclusive refuses with fs.ErrExist where
// the name is taken. An object that is there with these very bytes, after a try
// whose answer got lost, is this one's.
func (s *Store) put(ctx context.Context, name string, r io.ReaderAt, size int64, exclusive bool) error {
	if size > s.cfg.PartSize {
		return s.multipart(ctx, name, r, size, exclusive)
	}
	return s.single(ctx, name, r, size, exclusive)
}

func (s *Store) single(ctx context.Context, name string, r io.ReaderAt, size int64, exclusive bool) error {
	lost := false // the answer to an earlier try
	err := s.try(ctx, func(ctx context.Context, n int) error {
		lost = n > 0
		_, err := s.core.Client.PutObject(ctx, s.cfg.Bucket, s.key(name), io.NewSectionReader(r, 0, size), size, options(exclusive))
		return err
	})
	return s.settle(ctx, name, r, size, lost, s.wrap("put", name, err))
}

// settle finds out whose an object is that was there already.
func (s *Store) settle(ctx context.Context, name string, r io.ReaderAt, size int64, lost bool, err error) error {
	if !lost || !errors.Is(err, fs.ErrExist) {
		return err
	}
	same, rerr := s.holds(ctx, name, r, size)
	switch {
	case rerr != nil:
		return rerr
	case same:
		return nil
	}
	return err
}

// holds reports whether the object has exactly the bytes of r.
func (s *Store) holds(ctx context.Context, name string, r io.ReaderAt, size int64) (bool, error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer o.Close()
	if o.Size() != size {
		return false, nil
	}
	a, b := make([]byte, 256<<10), make([]byte, 256<<10)
	for at := int64(0); at < size; at += int64(len(a)) {
		n := min(int64(len(a)), size-at)
		if _, err := o.ReadAt(a[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if _, err := r.ReadAt(b[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// multipart stores an object in parts. The condition stands on the request that
// makes the object of them: the library's own multipart put leaves it out there.
func (s *Store) multipart(ctx context.Context, name string, r io.ReaderAt, size int64, exclusive bool) (err error) {
	var id string
	err = s.try(ctx, func(ctx context.Context, _ int) error {
		id, err = s.core.NewMultipartUpload(ctx, s.cfg.Bucket, s.key(name), options(false))
		return err
	})
	if err != nil {
		return s.wrap("begin upload of", name, err)
	}
	lost := false
	defer func() {
		if err != nil {
			s.abort(ctx, name, id)
		}
	}()
	parts, err := s.parts(ctx, name, id, r, size)
	if err != nil {
		return s.wrap("upload part of", name, err)
	}
	err = s.try(ctx, func(ctx context.Context, n int) error {
		lost = n > 0
		_, err := s.core.CompleteMultipartUpload(ctx, s.cfg.Bucket, s.key(name), id, parts, options(exclusive))
		return err
	})
	if lost && response(err).Code == "NoSuchUpload" { // an earlier try has completed it
		same, herr := s.holds(ctx, name, r, size)
		if herr == nil && same {
			return nil
		}
	}
	return s.settle(ctx, name, r, size, lost, s.wrap("complete upload of", name, err))
}

func (s *Store) parts(ctx context.Context, name, id string, r io.ReaderAt, size int64) ([]minio.CompletePart, error) {
	each := max(s.cfg.PartSize, (size+maxParts-1)/maxParts)
	var all []minio.CompletePart
	for at := int64(0); at < size || len(all) == 0; at += each {
		n, number := min(each, size-at), len(all)+1
		var part minio.ObjectPart
		err := s.try(ctx, func(ctx context.Context, _ int) (err error) {
			part, err = s.core.PutObjectPart(ctx, s.cfg.Bucket, s.key(name), id, number,
				io.NewSectionReader(r, at, n), n, minio.PutObjectPartOptions{})
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	}
	return all, nil
}

// abort frees the parts of an upload that became nothing.
func (s *Store) abort(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	_ = s.core.AbortMultipartUpload(ctx, s.cfg.Bucket, s.key(name), id)
}
