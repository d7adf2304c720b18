package segment

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sort"
	"strings"
)

// A page has the keys of all runs of one segment. A run has a key of its own in each
// segment, and no key is of two runs: to erase a run is to overwrite its key in each
// of these pages. So there are as many pages as segments, however many runs.
type page struct {
	uid     [16]byte
	tenant  string
	wrapped bool
	keys    []pageEntry // by run
}

type pageEntry struct {
	run    string
	erased bool
	key    [32]byte // zero where erased
}

const (
	pageMagic = "cbcaskey"
	wrapSize  = 12 + 32 + gcmTag
	maxPage   = maxRuns*(4+wrapSize) + 64<<20
)

func (p *page) find(run string) *pageEntry {
	i, ok := slices.BinarySearchFunc(p.keys, run, func(e pageEntry, run string) int { return strings.Compare(e.run, run) })
	if !ok {
		return nil
	}
	return &p.keys[i]
}

// encode makes the page's object; wrap is 32 bytes or nil.
func (p *page) encode(wrap []byte) ([]byte, error) {
	le := binary.LittleEndian
	sort.Slice(p.keys, func(i, j int) bool { return p.keys[i].run < p.keys[j].run })
	b := append([]byte(pageMagic), 0, 0, 0, 0)
	le.PutUint32(b[8:], version)
	b = append(b, p.uid[:]...)
	b = le.AppendUint16(b, uint16(len(p.tenant)))
	flags := uint16(0)
	if wrap != nil {
		flags = 1
	}
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, uint32(len(p.keys)))
	b = append(b, p.tenant...)
	for i := range p.keys {
		e := &p.keys[i]
		b = le.AppendUint16(b, uint16(len(e.run)))
		if e.erased {
			b = append(append(b, 1, 0), e.run...)
			continue
		}
		b = append(append(b, 0, 0), e.run...)
		if wrap == nil {
			b = append(b, e.key[:]...)
			continue
		}
		gcm, err := newGCM((*[32]byte)(wrap))
		if err != nil {
			return nil, err
		}
		nonce := make([]byte, 12)
		rand.Read(nonce) // it never fails
		b = gcm.Seal(append(b, nonce...), nonce, e.key[:], additional(&p.uid, []byte(e.run)))
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

var errPage = errors.New("bad page of keys")

// parsePage reads a page.
func parsePage(b, wrap []byte) (*page, error) {
	le := binary.LittleEndian
	if len(b) < 40 || string(b[:8]) != pageMagic {
		return nil, fmt.Errorf("%w: not a page", errPage)
	}
	if v := le.Uint32(b[8:]); v != version {
		return nil, fmt.Errorf("page of keys of version %d, this program reads %d", v, version)
	}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != le.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: checksum is wrong", errPage)
	}
	p := &page{wrapped: le.Uint16(b[30:])&1 != 0}
	copy(p.uid[:], b[12:])
	n, count := int(le.Uint16(b[28:])), int(le.Uint32(b[32:]))
	b = b[36 : len(b)-4]
	if n > len(b) || count > maxRuns || count*4 > len(b) {
		return nil, fmt.Errorf("%w: cut", errPage)
	}
	if p.wrapped && wrap == nil {
		return nil, errors.New("keys are wrapped: the wrapping key is needed")
	}
	p.tenant, b = string(b[:n]), b[n:]
	p.keys = make([]pageEntry, count)
	for i := range p.keys {
		var err error
		if b, err = p.parseEntry(&p.keys[i], b, wrap); err != nil {
			return nil, err
		}
		if i > 0 && p.keys[i].run <= p.keys[i-1].run {
			return nil, fmt.Errorf("%w: runs are not sorted", errPage)
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind it", errPage, len(b))
	}
	return p, nil
}

func (p *page) parseEntry(e *pageEntry, b, wrap []byte) (rest []byte, err error) {
	cut := fmt.Errorf("%w: cut", errPage)
	if len(b) < 4 {
		return nil, cut
	}
	n := int(binary.LittleEndian.Uint16(b))
	e.erased = b[2] == 1
	if b = b[4:]; n > len(b) {
		return nil, cut
	}
	e.run, b = string(b[:n]), b[n:]
	switch {
	case e.erased:
		return b, nil
	case !p.wrapped:
		if len(b) < 32 {
			return nil, cut
		}
		copy(e.key[:], b)
		return b[32:], nil
	case len(b) < wrapSize:
		return nil, cut
	}
	if len(wrap) != 32 {
		return nil, errors.New("wrapping key is not 32 bytes")
	}
	gcm, err := newGCM((*[32]byte)(wrap))
	if err != nil {
		return nil, err
	}
	if _, err := gcm.Open(e.key[:0], b[:12], b[12:wrapSize], additional(&p.uid, []byte(e.run))); err != nil {
		return nil, fmt.Errorf("%w: the wrapping key does not open it", errPage)
	}
	return b[wrapSize:], nil
}

// loadPage reads the page of a segment. A missing one is an error that wraps fs.ErrNotExist.
func loadPage(ctx context.Context, st Store, tenant, uid string, wrap []byte) (*page, error) {
	b, err := readObject(ctx, st, pageKey(tenant, uid), maxPage)
	if err != nil {
		return nil, fmt.Errorf("keys of segment %s: %w", uid, err)
	}
	p, err := parsePage(b, wrap)
	if err != nil {
		return nil, fmt.Errorf("keys of segment %s: %w", uid, err)
	}
	if p.tenant != tenant || hex.EncodeToString(p.uid[:]) != uid {
		return nil, fmt.Errorf("keys of segment %s: %w: it is another segment's", uid, errPage)
	}
	return p, nil
}

// eraseKeys overwrites the keys of erased runs in the page of one segment. It reports whether
// there were any. A page that is gone is no error: so are its keys.
func eraseKeys(ctx context.Context, st Store, tenant, uid string, erased map[string]uint64, wrap []byte) (bool, error) {
	p, err := loadPage(ctx, st, tenant, uid, wrap)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	changed := false
	for i := range p.keys {
		if e := &p.keys[i]; !e.erased && erased[e.run] != 0 {
			e.erased, e.key, changed = true, [32]byte{}, true
		}
	}
	if !changed {
		return false, nil
	}
	if !p.wrapped {
		wrap = nil
	}
	b, err := p.encode(wrap)
	if err != nil {
		return false, err
	}
	if err := st.Replace(ctx, pageKey(tenant, uid), b); err != nil {
		return false, fmt.Errorf("erase keys of segment %s: %w", uid, err)
	}
	return true, nil
}
