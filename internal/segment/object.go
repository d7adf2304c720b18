package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/cbcast/cbcast/internal/subject"
)

// Where things are in a store. Numbers are padded so that keys sort.
const (
	tenantsPrefix = "tenants/"
	signersPrefix = "signers/"
	tenantRoot    = "t/"
)

func tenantKey(tenant string) string { return tenantsPrefix + subject.Token(tenant) }
func signerKey(n int) string         { return fmt.Sprintf("%s%06d.json", signersPrefix, n) }
func rootOf(tenant string) string    { return tenantRoot + subject.Token(tenant) + "/" }

func headKey(tenant string, n uint64) string {
	return fmt.Sprintf("%s%012d.json", headPrefix(tenant), n)
}

func headPrefix(tenant string) string    { return rootOf(tenant) + "heads/" }
func segmentPrefix(tenant string) string { return rootOf(tenant) + "segments/" }

func segmentKey(tenant, day, from, uid string) string {
	return segmentPrefix(tenant) + day + "/" + from + "-" + uid + ".seg"
}

func indexPrefix(tenant string) string { return rootOf(tenant) + "index/" }

func indexKey(tenant string, from, to uint64) string {
	return fmt.Sprintf("%s%012d-%012d.idx", indexPrefix(tenant), from, to)
}

// pageKey is where the keys of a segment's runs are, in the store of keys.
func pageKey(tenant, uid string) string {
	return pagePrefix(tenant) + uid[:2] + "/" + uid + keysSuffix
}

const pagesPrefix = "keys/"

func pagePrefix(tenant string) string { return pagesPrefix + subject.Token(tenant) + "/" }

// pageUID is the segment whose page of keys stands under a key.
func pageUID(tenant, key string) (uid string, ok bool) {
	uid, ok = strings.CutSuffix(path.Base(key), keysSuffix)
	return uid, ok && len(uid) == 32 && key == pageKey(tenant, uid)
}

// readObject reads a small object whole.
func readObject(ctx context.Context, st Store, key string, limit int64) ([]byte, error) {
	o, err := st.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if o.Size() > limit {
		return nil, fmt.Errorf("read %s: %w: %d bytes", key, errDamaged, o.Size())
	}
	b := make([]byte, o.Size())
	if n, err := o.ReadAt(b, 0); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}

func createBytes(ctx context.Context, st Store, key string, b []byte) error {
	return st.Create(ctx, key, io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))))
}

// ErrTenant is wrapped by what [Tenants] returns beside the tenants that it could read.
var ErrTenant = fmt.Errorf("the file of a tenant is %w", errDamaged)

// Tenants lists the tenants of an archive. One damaged file does not hide the others: they are
// returned together with an error that wraps ErrTenant.
func Tenants(ctx context.Context, st Store) ([]string, error) {
	var out []string
	var bad []error
	for info, err := range st.List(ctx, tenantsPrefix) {
		if err != nil {
			return nil, fmt.Errorf("list tenants: %w", err)
		}
		b, err := readObject(ctx, st, info.Key, maxID)
		if err != nil && !errors.Is(err, errDamaged) && !isNotExist(err) {
			return nil, fmt.Errorf("list tenants: %w", err)
		}
		tenant := strings.TrimSuffix(string(b), "\n")
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("list tenants: %w: %w", ErrTenant, err))
		case tenantKey(tenant) != info.Key:
			bad = append(bad, fmt.Errorf("list tenants: %w: %s is of tenant %q", ErrTenant, info.Key, tenant))
		default:
			out = append(out, tenant)
		}
	}
	return out, errors.Join(bad...)
}

// noteTenant makes a tenant listed.
func noteTenant(ctx context.Context, st Store, tenant string) error {
	err := createBytes(ctx, st, tenantKey(tenant), []byte(tenant+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
