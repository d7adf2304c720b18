package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
)

// A sum is a node of a Merkle tree as RFC 6962, section 2.1, has it: leaves are
// hashed behind a byte 0, pairs behind a byte 1, so that neither passes for the other.
type sum [sha256.Size]byte

func (s sum) String() string { return hex.EncodeToString(s[:]) }

// leaf hashes one leaf, given in pieces.
func leaf(pieces ...[]byte) (s sum) {
	h := sha256.New()
	h.Write([]byte{0})
	for _, p := range pieces {
		h.Write(p)
	}
	h.Sum(s[:0])
	return s
}

func node(a, b sum) sum {
	var buf [1 + 2*sha256.Size]byte
	buf[0] = 1
	copy(buf[1:], a[:])
	copy(buf[1+sha256.Size:], b[:])
	return sha256.Sum256(buf[:])
}

// root is the root over leaves; that of no leaf is the hash of nothing.
func root(leaves []sum) sum {
	switch n := len(leaves); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	default:
		k := 1 << (bits.Len(uint(n-1)) - 1) // the largest power of two below n
		return node(root(leaves[:k]), root(leaves[k:]))
	}
}
