package segment

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

// sampleSegment is a small sealed segment, made without an archive.
func sampleSegment(tb testing.TB) []byte {
	tb.Helper()
	c := new(coder)
	h := segHeader{uid: [16]byte{1}, day: 20513, tenant: "acme"}
	b := h.append(nil)
	var d directory
	for i, run := range []string{"a", "b", "a"} {
		info := blockInfo{run: run}
		r := &Record{
			StreamSeq: uint64(i + 1), Stored: time.Unix(20513*86400, int64(i)), Subject: "s", Seq: uint64(i + 1),
			Header: [][2]string{{"ce-id", "x"}}, Data: []byte(strings.Repeat("data ", 20)), Part: event.Part{I: 1, N: 1},
		}
		info.add(r)
		frame, err := c.pack(&info, appendRecord(nil, r), &h.uid, &[32]byte{9}, [12]byte{byte(i)})
		if err != nil {
			tb.Fatal(err)
		}
		d.blocks = append(d.blocks, entry{blockInfo: info, off: int64(len(b)), size: int64(len(frame)), hash: leaf(frame)})
		b = append(b, frame...)
	}
	dir, err := d.encode(c)
	if err != nil {
		tb.Fatal(err)
	}
	at := int64(len(b))
	b = append(b, dir...)
	return append(b, tail(at, int64(len(b))+segTail, len(d.blocks))...)
}

// mended gives b with right checksums, so that a fuzzer gets past them.
func mended(b []byte) []byte {
	b = bytes.Clone(b)
	h, raw, err := readHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return b
	}
	_ = h
	at := len(raw)
	for len(b)-at > segTail+frameHead {
		n, err := frameLen(b[at:])
		if err != nil || int(n) > len(b)-at {
			break
		}
		finishFrame(b[at : at+int(n)])
		at += int(n)
	}
	return b
}

// FuzzSegment reads anything as a segment: it is refused, or what is read holds together.
func FuzzSegment(f *testing.F) {
	b := sampleSegment(f)
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[:60])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, mended(b)} {
			c := new(coder)
			r := bytes.NewReader(b)
			if g, err := openFile(c, r, int64(len(b))); err == nil {
				for i := range g.blocks {
					e := &g.blocks[i]
					frame, err := g.block(e)
					if err != nil {
						continue
					}
					if raw, err := c.open(frame, &g.uid, &[32]byte{9}); err == nil {
						eachRecord(raw, g.tenant, &e.blockInfo, func(*Record) bool { return true }, func(error) {})
					}
				}
				g.sealed("x")
				g.entries(1)
			}
			w := walk{r: r, size: int64(len(b))}
			for {
				frame, _, err := w.next()
				if err != nil {
					break
				}
				parseBlock(frame) // it must not crash
			}
		}
	})
}

// FuzzRecords reads anything as a block's records; what is a record is written the same.
func FuzzRecords(f *testing.F) {
	f.Add(appendRecord(nil, &Record{Stored: time.Unix(1, 2), Subject: "s", Header: [][2]string{{"a", "b"}}, Data: []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			r, rest, err := splitRecord(b)
			if err != nil {
				return
			}
			if again := appendRecord(nil, r); len(again) != len(b)-len(rest) {
				t.Fatalf("%d bytes became %d", len(b)-len(rest), len(again))
			}
			r.Event() // it must not crash
			b = rest
		}
	})
}

// FuzzHead reads anything as a head; what is one is written the same.
func FuzzHead(f *testing.F) {
	h := &Head{
		Version: 1, Tenant: "acme", Number: 1, Time: time.Unix(5, 6).UTC(), Through: map[string]Place{"EV_0": {Seq: 3, Time: time.Unix(4, 0).UTC()}},
		Statement: &Statement{Kind: Erased, Run: "a<b>", By: "x", Why: "y", Segments: []uint64{1}, Ends: []End{{"r", 1}}}, Sig: []byte{},
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	h.sign(key)
	f.Add(h.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHead(b)
		if err != nil {
			return
		}
		if !bytes.Equal(h.Encode(), bytes.TrimSuffix(b, []byte("\n"))) {
			t.Fatal("another form")
		}
		h.Hash()
		h.SignedBy(key.Public().(ed25519.PublicKey))
	})
}

// FuzzSigner is FuzzHead for the list of keys.
func FuzzSigner(f *testing.F) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newSigner(1, pub, "me", time.Unix(1, 0), key).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseSigner(b); err == nil {
			newRing([]*Signer{s}, []ed25519.PublicKey{pub}) // it must not crash
		}
	})
}

// FuzzIndex reads anything as an index.
func FuzzIndex(f *testing.F) {
	var b bytes.Buffer
	c := new(coder)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	h := &Head{Version: 1, Tenant: "acme", Number: 1, Time: time.Unix(5, 6).UTC(), Statement: &Statement{Kind: Erased, Run: "a"}}
	h.sign(key)
	x, err := newIdxWriter(&b, c, 1, 1, []*Head{h})
	if err != nil {
		f.Fatal(err)
	}
	for _, run := range []string{"a", "b"} {
		if err := x.add(&runEntry{run: run, number: 1, records: 1}); err != nil {
			f.Fatal(err)
		}
	}
	if err := x.finish(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		fixed := bytes.Clone(b)
		for at := idxHead; len(fixed)-at > segTail+frameHead; {
			n, err := frameLen(fixed[at:])
			if err != nil || int(n) > len(fixed)-at {
				break
			}
			finishFrame(fixed[at : at+int(n)])
			at += int(n)
		}
		for _, b := range [][]byte{b, fixed} {
			x, err := openIndex(new(coder), bytes.NewReader(b), int64(len(b)))
			if err != nil {
				continue
			}
			for i := range x.pages {
				x.page(new(coder), i) // it must not crash
			}
			x.find(new(coder), "b") // it must not crash
		}
	})
}

// FuzzPage reads anything as a page of keys; what is one is written the same.
func FuzzPage(f *testing.F) {
	p := &page{tenant: "acme", keys: []pageEntry{{run: "a", key: [32]byte{1}}, {run: "b", erased: true}}}
	for _, wrap := range [][]byte{nil, make([]byte, 32)} {
		b, err := p.encode(wrap)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, append(bytes.Clone(b[:max(len(b)-4, 0)]), sumOf(b)...)} {
			p, err := parsePage(b, make([]byte, 32))
			if err != nil || p.wrapped {
				continue
			}
			again, err := p.encode(nil)
			if err != nil || len(again) != len(b) {
				t.Fatalf("%d bytes became %d, %v", len(b), len(again), err)
			}
		}
	})
}

// sumOf is the checksum that belongs at the end of b.
func sumOf(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b[:max(len(b)-4, 0)], castagnoli))
}

// TestEveryByte changes each byte of each form, with the checksums made right again: it is
// refused, or read as something else, and never more than its bounds.
func TestEveryByte(t *testing.T) {
	seg := sampleSegment(t)
	for i := range seg {
		for _, x := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(seg)
			b[i] ^= x
			readAll(b)
			b = mended(b)
			if n := len(b) - segTail; i >= n { // the end, too
				copy(b[n+24:], sumOf(append(bytes.Clone(b[n:n+24]), 0, 0, 0, 0)))
			}
			if i < segHead+4 {
				copy(b[segHead:], sumOf(b[:segHead+4]))
			}
			readAll(b)
		}
	}
	for n := range seg {
		readAll(seg[:n])
	}
	rec := appendRecord(nil, &Record{Stored: time.Unix(1, 2), Subject: "s", Header: [][2]string{{"a", "b"}, {"c", "d"}}, Data: []byte("x")})
	for i := range rec {
		for _, x := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(rec)
			b[i] ^= x
			if r, _, err := splitRecord(b); err == nil && r.size() > len(b) {
				t.Errorf("byte %d: %d bytes out of %d", i, r.size(), len(b))
			}
		}
	}
	info := blockInfo{records: 2}
	eachRecord(rec, "t", &info, func(*Record) bool { return true }, func(error) {})
	info.records = 0
	if eachRecord(rec, "t", &info, func(*Record) bool { return true }, func(error) {}) {
		t.Error("more records than said")
	}
	if eachRecord(rec, "t", &blockInfo{records: 1}, func(*Record) bool { return false }, func(error) {}) {
		t.Error("it was told to stop")
	}
}

func readAll(b []byte) {
	c := new(coder)
	f, err := openFile(c, bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return
	}
	f.is(&Sealed{}, "acme") // it must not crash
	for i := range f.blocks {
		if frame, err := f.block(&f.blocks[i]); err == nil {
			c.open(frame, &f.uid, &[32]byte{9}) // it must not crash
			c.open(frame, &f.uid, &[32]byte{8}) // it must not crash
		}
	}
}

// TestBomb: what is said of a size is not believed, and no more is unpacked than it says.
func TestBomb(t *testing.T) {
	enc, err := encoder()
	if err != nil {
		t.Fatal(err)
	}
	bomb := enc.EncodeAll(make([]byte, 32<<20), nil)
	c := new(coder)
	for _, raw := range []int{0, 100, 1 << 20, 31 << 20, 64 << 20} {
		if _, err := c.unpack(bomb, raw); err == nil {
			t.Errorf("%d bytes unpacked out of %d", raw, len(bomb))
		}
	}
	if out, err := c.unpack(bomb, 32<<20); err != nil || len(out) != 32<<20 {
		t.Errorf("%d, %v", len(out), err)
	}
	if _, err := c.unpack([]byte("nothing"), 2<<20); err == nil {
		t.Error("unpacked nothing")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		c.unpack(bomb, 100) // it must not take memory
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 {
		t.Errorf("%d bytes taken", n)
	}
}
