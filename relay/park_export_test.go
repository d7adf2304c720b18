package relay

// Parked is how many clients have everything and no goroutine that waits.
func Parked(r *Relay) int { return len(r.hub.parked()) }

// Chunk is b as a chunk of HTTP/1.1.
func Chunk(b []byte) []byte { return closeChunk(append(make([]byte, chunkHead), b...)) }

// MaxInput is what a parked client may send.
const MaxInput = maxInput
