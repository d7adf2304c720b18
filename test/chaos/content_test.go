package chaos_test

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

const tenant = "chaos"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content is the data of one event: who it is, a checksum and filler, all of it
// decided by run and seq. Most are small as frames are, few up to 256 KiB.
func content(run string, seq uint64) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(run))
	r := rand.New(rand.NewPCG(h.Sum64(), seq))
	var n int
	switch p := r.IntN(10_000); {
	case p < 9_200:
		n = 64 + r.IntN(500)
	case p < 9_960:
		n = 1<<10 + r.IntN(7<<10)
	case p < 9_998:
		n = 16<<10 + r.IntN(48<<10)
	default:
		n = 256<<10 - 100
	}
	filler := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			filler[j] = ' ' + byte(v&63)
			v >>= 8
		}
	}
	return fmt.Appendf(nil, "%s %d %08x %s", run, seq, crc32.Checksum(filler, castagnoli), filler)
}

var kinds = []event.Kind{event.Msg, event.Msg, event.Msg, event.Task, event.Raw, event.End}

// frame is event seq of a run.
func frame(run string, seq uint64) *event.Event {
	e := &event.Event{
		Tenant: tenant, Run: run, Seq: seq, Time: time.Unix(1_700_000_000, int64(seq)*1e6).UTC(),
		Type: "dev.cbcast.claude.assistant", Kind: kinds[seq%uint64(len(kinds))], Stream: event.Out,
		Session: "s-" + run, ContentType: event.JSON, Data: content(run, seq),
	}
	if e.Kind == event.Task {
		e.Task = fmt.Sprintf("t%d", seq%7)
	}
	return e
}
