package relay

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A cursor of many runs is a place in each log of the bus: the control facts and
// the partitions. Stream sequences can come again after a disk lost its end, so
// each stands with the time at which the message was stored, and a relay believes
// the two together or not at all. The form is
//
//	base64url( version, number of places, for each: uvarint seq, uvarint time, then CRC-32 )
//
// with the time in nanoseconds since 1970, 0 where it is not known. There is one
// way to write each cursor, and no other is read.
const (
	manyVersion = 1

	// maxLogs bounds the places in a cursor; all together are some 5 KiB.
	maxLogs = 257
)

// appendMany appends the cursor of places.
func appendMany(b []byte, places []bus.Place) []byte {
	raw := make([]byte, 0, 2+len(places)*14+4)
	raw = binary.AppendUvarint(append(raw, manyVersion), uint64(len(places)))
	for _, p := range places {
		raw = binary.AppendUvarint(raw, p.Seq)
		var at uint64
		if !p.Time.IsZero() {
			at = uint64(p.Time.UnixNano())
		}
		raw = binary.AppendUvarint(raw, at)
	}
	raw = binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	return base64.RawURLEncoding.AppendEncode(b, raw)
}

// parseMany reads a cursor.
func parseMany(s string) ([]bus.Place, bool) {
	if len(s) > base64.RawURLEncoding.EncodedLen(1+2+maxLogs*2*binary.MaxVarintLen64+4) {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) < 6 || raw[0] != manyVersion {
		return nil, false
	}
	rest := raw[1 : len(raw)-4]
	number := func() (uint64, bool) {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return 0, false
		}
		rest = rest[size:]
		return n, true
	}
	n, ok := number()
	if !ok || n == 0 || n > maxLogs {
		return nil, false
	}
	places := make([]bus.Place, n)
	for i := range places {
		seq, ok := number()
		at, okT := number()
		if !ok || !okT || at > 1<<63-1 || seq == 0 && at != 0 {
			return nil, false
		}
		places[i].Seq = seq
		if at != 0 {
			places[i].Time = time.Unix(0, int64(at)).UTC()
		}
	}
	return places, len(rest) == 0 && string(appendMany(nil, places)) == s
}

// manyCursorOf finds where a request wants to go on: the header, else the
// parameter; nil without either. One from before there were more partitions is
// extended: those begin at the time of its newest place.
func manyCursorOf(q *http.Request, logs int) ([]bus.Place, *apiErr) {
	name, values := "Last-Event-ID", q.Header.Values("Last-Event-ID")
	if len(values) == 0 {
		name, values = "after", q.URL.Query()["after"]
	}
	if len(values) == 0 {
		return nil, nil
	}
	places, ok := parseMany(values[0])
	if !ok || len(values) > 1 || len(places) > logs {
		return nil, fail(CodeBadCursor, name+" is none that this stream gave").with("parameter", name)
	}
	at := newestOf(places)
	for len(places) < logs {
		p := bus.Place{}
		if !at.IsZero() {
			p = bus.Place{Seq: 1<<64 - 1, Time: at} // beyond any end, so that the time decides
		}
		places = append(places, p)
	}
	return places, nil
}

// newestOf is the time of the newest place, zero where none has one.
func newestOf(places []bus.Place) (t time.Time) {
	for _, p := range places {
		if p.Time.After(t) {
			t = p.Time
		}
	}
	return t
}
