package segment

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cbcast/cbcast/internal/event"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The kinds of frames behind a segment's header.
const (
	kindBlock     = 1
	kindDirectory = 2
)

const (
	frameHead = 8              // length and checksum
	blockFact = 80             // the facts of a block that the directory repeats
	blockHead = frameHead + 96 // a frame with a block up to the run's id
	gcmTag    = 16
	// maxFrame bounds a frame: a block with one record of the greatest size that
	// could not be compressed.
	maxFrame = MaxRecord + MaxRecord>>8 + 1<<16
)

var errDamaged = errors.New("damaged")

// A blockInfo is what a block says of itself in clear.
type blockInfo struct {
	run                   string
	log                   Log
	records, distinct     uint32 // distinct: how many different seqs
	firstSeq, lastSeq     uint64 // 0 where no record has a seq
	firstPart, lastPart   event.Part
	firstPlace, lastPlace uint64 // stream seqs of the first and the last record
	first, last           int64  // earliest and latest time stored, Unix nanoseconds
	raw                   uint32 // bytes of the records
}

// add counts a record in.
func (b *blockInfo) add(r *Record) {
	t := r.Stored.UnixNano()
	if b.records == 0 {
		b.firstPlace, b.first, b.last = r.StreamSeq, t, t
	}
	b.records++
	b.lastPlace, b.first, b.last = r.StreamSeq, min(b.first, t), max(b.last, t)
	if r.Seq == 0 {
		return
	}
	if b.firstSeq == 0 {
		b.firstSeq, b.firstPart = r.Seq, r.Part
	}
	if r.Seq != b.lastSeq {
		b.distinct++
	}
	b.lastSeq, b.lastPart = r.Seq, r.Part
}

// appendFacts appends the 80 bytes of facts.
func (b *blockInfo) appendFacts(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(int32(b.log)))
	dst = le.AppendUint32(dst, b.records)
	dst = le.AppendUint32(dst, b.distinct)
	dst = le.AppendUint32(dst, b.raw)
	dst = le.AppendUint64(dst, b.firstSeq)
	dst = le.AppendUint64(dst, b.lastSeq)
	for _, p := range []event.Part{b.firstPart, b.lastPart} {
		dst = le.AppendUint32(dst, uint32(p.I))
		dst = le.AppendUint32(dst, uint32(p.N))
	}
	dst = le.AppendUint64(dst, b.firstPlace)
	dst = le.AppendUint64(dst, b.lastPlace)
	dst = le.AppendUint64(dst, uint64(b.first))
	return le.AppendUint64(dst, uint64(b.last))
}

// parseFacts reads them. b has them all.
func parseFacts(b []byte) (i blockInfo, err error) {
	le := binary.LittleEndian
	part := func(b []byte) event.Part { return event.Part{I: int(le.Uint32(b)), N: int(le.Uint32(b[4:]))} }
	i = blockInfo{
		log: Log(int32(le.Uint32(b))), records: le.Uint32(b[4:]), distinct: le.Uint32(b[8:]), raw: le.Uint32(b[12:]),
		firstSeq: le.Uint64(b[16:]), lastSeq: le.Uint64(b[24:]), firstPart: part(b[32:]), lastPart: part(b[40:]),
		firstPlace: le.Uint64(b[48:]), lastPlace: le.Uint64(b[56:]),
		first: int64(le.Uint64(b[64:])), last: int64(le.Uint64(b[72:])),
	}
	switch {
	case !i.log.valid(), i.records == 0, i.first > i.last, i.distinct > i.records, i.firstSeq > i.lastSeq,
		uint64(i.records)*recordFixed > uint64(i.raw), i.raw > MaxRecord:
		return i, fmt.Errorf("%w: a block's facts contradict each other", errDamaged)
	}
	return i, nil
}

// The codecs of all archives of the process; both may be used concurrently. The level is the
// fastest: the frames of agents are JSON that repeats itself, of which it takes nine tenths
// away; the next level takes twice the time for a hundredth more.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxFrame),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(8<<20))
	})
)

// A coder makes blocks and opens them. It is not safe for concurrent use.
type coder struct {
	plain []byte // compressed, not yet encrypted
	out   []byte
}

// unpack decompresses at most raw bytes, and it must be exactly so many.
func (c *coder) unpack(b []byte, raw int) ([]byte, error) {
	dec, err := decoder()
	if err != nil {
		return nil, err
	}
	// What is said of the size is believed for the first mebibyte. More is there only
	// for compressed bytes that can hold so much, which one byte can of 32 KiB.
	if raw > 1<<20 && raw/(1<<15) > len(b) {
		return nil, fmt.Errorf("%w: %d bytes out of %d", errDamaged, raw, len(b))
	}
	out, err := dec.DecodeAll(b, make([]byte, 0, raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if len(out) != raw {
		return nil, fmt.Errorf("%w: %d bytes where %d were said", errDamaged, len(out), raw)
	}
	return out, nil
}

func newGCM(key *[32]byte) (cipher.AEAD, error) {
	c, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(c)
}

// pack makes a block's frame of records. It is good until the next call.
func (c *coder) pack(i *blockInfo, records []byte, uid *[16]byte, key *[32]byte, nonce [12]byte) ([]byte, error) {
	enc, err := encoder()
	if err != nil {
		return nil, err
	}
	i.raw = uint32(len(records))
	c.plain = enc.EncodeAll(records, c.plain[:0])
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	out := append(c.out[:0], make([]byte, frameHead)...)
	out = append(out, kindBlock, 0)
	out = le.AppendUint16(out, uint16(len(i.run)))
	out = i.appendFacts(out)
	out = append(out, nonce[:]...)
	out = append(out, i.run...)
	out = gcm.Seal(out, nonce[:], c.plain, additional(uid, out[frameHead:]))
	c.out = out
	return finishFrame(out), nil
}

// additional is what the cipher authenticates beside the records: the segment and
// the block's clear part.
func additional(uid *[16]byte, clear []byte) []byte {
	return append(append(make([]byte, 0, len(uid)+len(clear)), uid[:]...), clear...)
}

// finishFrame sets the length and the checksum of a frame.
func finishFrame(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameHead))
	binary.LittleEndian.PutUint32(b[4:], frameSum(b))
	return b
}

func frameSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[frameHead:])
}

// frameLen is the length of the frame that begins with b, of which there are at
// least 4 bytes.
func frameLen(b []byte) (int64, error) {
	n := int64(binary.LittleEndian.Uint32(b)) + frameHead
	if n < frameHead+4 || n > maxFrame {
		return 0, fmt.Errorf("%w: a frame of %d bytes", errDamaged, n)
	}
	return n, nil
}

func checkFrame(b []byte) error {
	if frameSum(b) != binary.LittleEndian.Uint32(b[4:]) {
		return fmt.Errorf("%w: checksum is wrong", errDamaged)
	}
	return nil
}

// parseBlock reads the clear part of a block's frame, which may be cut behind it.
func parseBlock(b []byte) (i blockInfo, err error) {
	if len(b) < blockHead || b[8] != kindBlock || b[9] != 0 {
		return i, fmt.Errorf("%w: not a block", errDamaged)
	}
	n := int(binary.LittleEndian.Uint16(b[10:]))
	if n > maxID || len(b) < blockHead+n {
		return i, fmt.Errorf("%w: a block's run is cut", errDamaged)
	}
	if i, err = parseFacts(b[12:]); err != nil {
		return i, err
	}
	i.run = string(b[blockHead : blockHead+n])
	return i, nil
}

// open decrypts and decompresses the records of a whole block.
func (c *coder) open(b []byte, uid *[16]byte, key *[32]byte) ([]byte, error) {
	i, err := parseBlock(b)
	if err != nil {
		return nil, err
	}
	at := blockHead + len(i.run)
	if len(b) < at+gcmTag {
		return nil, fmt.Errorf("%w: a block without records", errDamaged)
	}
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	nonce := b[12+blockFact : blockHead]
	c.plain, err = gcm.Open(c.plain[:0], nonce, b[at:], additional(uid, b[frameHead:at]))
	if err != nil {
		return nil, fmt.Errorf("%w: the run's key does not open the block", errDamaged)
	}
	return c.unpack(c.plain, int(i.raw))
}
