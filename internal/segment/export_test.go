package segment

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"time"
)

// Names of objects, and doors into what is not exported, for tests.
var (
	HeadKey   = headKey
	IndexKey  = indexKey
	PageKey   = pageKey
	SignerKey = signerKey
	TenantKey = tenantKey
)

// Sign signs a head anew.
func Sign(h *Head, key ed25519.PrivateKey) { h.sign(key) }

// OpenHook is Open with a function that is called before each step.
func OpenHook(ctx context.Context, o Options, hook func(string) error) (*Archive, error) {
	return openHook(ctx, o, hook)
}

// Forget makes an archive forget where runs and logs are, so that it takes them again.
func (a *Archive) Forget(tenant string) {
	t := a.tenants[tenant]
	clear(t.sealed)
	t.known = positions{}
	a.reader = NewReader(ReaderOptions{Store: &nothing{a.o.Store}})
}

// AgePages makes an archive not know any more when it stored pages of keys.
func (a *Archive) AgePages() {
	for _, s := range a.segs {
		s.paged = time.Time{}
	}
}

// Tear leaves the open segments as a write that failed in the middle does.
func (a *Archive) Tear() error {
	for _, s := range a.segs {
		_, err1 := s.f.WriteString("torn")
		_, err2 := s.kf.WriteString("torn")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		s.torn = true
	}
	return nil
}

// nothing is a store in which nothing is found.
type nothing struct{ Store }

func (n *nothing) Open(ctx context.Context, _ string) (Object, error) {
	return n.Store.Open(ctx, "none")
}

// A Part is where something is in a segment.
type Part struct{ Off, Size int64 }

// Layout tells where the parts of a segment are.
func Layout(b []byte) (header Part, blocks []Part, directory, end Part) {
	f, err := openFile(new(coder), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		panic(err)
	}
	for _, e := range f.blocks {
		blocks = append(blocks, Part{e.off, e.size})
	}
	size := int64(len(b))
	return Part{0, blocks[0].Off}, blocks, Part{f.dir, size - segTail - f.dir}, Part{size - segTail, segTail}
}

// Without makes a well-formed segment of b without its i-th block.
func Without(b []byte, i int) []byte {
	c := new(coder)
	f, err := openFile(c, bytes.NewReader(b), int64(len(b)))
	if err != nil {
		panic(err)
	}
	out := bytes.Clone(b[:f.blocks[0].off])
	var d directory
	for j, e := range f.blocks {
		if j == i {
			continue
		}
		raw := b[e.off : e.off+e.size]
		e.off = int64(len(out))
		out = append(out, raw...)
		d.blocks = append(d.blocks, e)
	}
	frame, err := d.encode(c)
	if err != nil {
		panic(err)
	}
	at := int64(len(out))
	out = append(out, frame...)
	return append(out, tail(at, int64(len(out))+segTail, len(d.blocks))...)
}

// RootOf is the root of a well-formed segment.
func RootOf(b []byte) string {
	f, err := openFile(new(coder), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		panic(err)
	}
	return f.root.String()
}

// Rekey replaces a run's key in a page by another.
func Rekey(b []byte, run string) []byte {
	p, err := parsePage(b, nil)
	if err != nil {
		panic(err)
	}
	e := p.find(run)
	e.erased = false
	e.key[0] ^= 1
	out, err := p.encode(nil)
	if err != nil {
		panic(err)
	}
	return out
}

// HasKey reports whether a page has the key of a run.
func HasKey(b []byte, run string) bool {
	p, err := parsePage(b, nil)
	if err != nil {
		panic(err)
	}
	e := p.find(run)
	return e != nil && !e.erased && e.key != [32]byte{}
}
