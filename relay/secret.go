package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// MinSecret is the least length of [Options.Secret], in bytes.
const MinSecret = 32

// secretOf is the secret that a relay signs with: the given one, else one that
// follows from the local token, so that the relays of one machine have the same.
// Without either it is random, and what was signed ends with this relay.
func secretOf(o Options) []byte {
	switch {
	case len(o.Secret) > 0:
		return o.Secret
	case o.Token != "":
		return hash([]byte(o.Token), []byte("cbcast relay secret"))
	}
	b := make([]byte, sha256.Size)
	_, _ = rand.Read(b) // never fails
	return b
}

// mac is the HMAC-SHA-256 of parts, in their order, under a key that is this
// purpose's own: what was signed for one purpose is worth nothing for another.
// Every relay with the same secret makes the same. Compare it with [hmac.Equal].
func (r *Relay) mac(purpose string, parts ...string) []byte {
	var msg []byte
	for _, p := range parts {
		msg = binary.BigEndian.AppendUint64(msg, uint64(len(p)))
		msg = append(msg, p...)
	}
	return hash(hash(r.secret, []byte(purpose)), msg)
}

func hash(key, msg []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(msg)
	return h.Sum(nil)
}
