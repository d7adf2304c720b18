package segment_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// layout says where the parts of the segment of an acme head are.
func (s *scene) layout(n int) (header segment.Part, blocks []segment.Part, directory, end segment.Part) {
	return segment.Layout(s.store.m[s.name(n)])
}

// tampers are the rows of the table. Segment 4 has a block with events 7 and 8 of run a and
// one with event 2 of run b.
var tampers = []tamper{
	{what: "nothing", do: func(*scene) {}},
	{what: "a byte of a block's records changed", do: func(s *scene) {
		_, b, _, _ := s.layout(4)
		flip(s.store, s.name(4), b[0].Off+b[0].Size-20)
	}},
	{what: "a byte of a block's clear part changed", do: func(s *scene) {
		_, b, _, _ := s.layout(4)
		flip(s.store, s.name(4), b[1].Off+30)
	}},
	{what: "a byte of a segment's header changed", do: func(s *scene) { flip(s.store, s.name(4), 20) }},
	{what: "a byte of a segment's directory changed", do: func(s *scene) {
		_, _, d, _ := s.layout(4)
		flip(s.store, s.name(4), d.Off+30)
	}},
	{what: "a byte of a segment's end changed", do: func(s *scene) { flip(s.store, s.name(4), -20) }},
	{what: "bytes put behind a segment's end", do: func(s *scene) {
		s.store.m[s.name(4)] = append(bytes.Clone(s.store.m[s.name(4)]), "more"...)
	}},
	{what: "a segment written anew without one block, all checksums right", do: func(s *scene) {
		s.store.m[s.name(4)] = segment.Without(s.store.m[s.name(4)], 0)
	}},
	{what: "a segment cut in its second block", do: func(s *scene) {
		_, b, _, _ := s.layout(4)
		s.store.m[s.name(4)] = s.store.m[s.name(4)][:b[1].Off+b[1].Size/2]
	}},
	{what: "a segment cut behind its last block", do: func(s *scene) {
		_, _, d, _ := s.layout(4)
		s.store.m[s.name(4)] = s.store.m[s.name(4)][:d.Off]
	}},
	{what: "a segment cut to nothing", do: func(s *scene) { s.store.m[s.name(4)] = nil }},
	{what: "a segment deleted", do: func(s *scene) { delete(s.store.m, s.name(4)) }},
	{what: "a segment renamed", do: func(s *scene) {
		swap(s.store, s.name(4), "t/acme/segments/other.seg")
		delete(s.store.m, s.name(4))
	}},
	{what: "the names of two segments swapped", do: func(s *scene) { swap(s.store, s.name(4), s.name(6)) }},
	{what: "another tenant's segment put under the name", do: func(s *scene) {
		s.store.m[s.name(4)] = s.store.m[s.heads[17].Segment.Name]
	}},
	{what: "a segment copied under a second name", do: func(s *scene) {
		s.store.m["t/acme/segments/2026-03-01Z/copy.seg"] = s.store.m[s.name(4)]
	}},
	{what: "a segment and its head taken twice by who has the signing key", do: func(s *scene) {
		s.head(17, s.second, func(h *segment.Head) { h.Segment = s.heads[3].Segment })
		s.heads = s.heads[:16]
	}},
	{what: "a head deleted", do: func(s *scene) { delete(s.store.m, segment.HeadKey("acme", 5)) }},
	{what: "two heads swapped", do: func(s *scene) { swap(s.store, segment.HeadKey("acme", 5), segment.HeadKey("acme", 6)) }},
	{what: "another tenant's head put in", do: func(s *scene) {
		s.store.m[segment.HeadKey("acme", 2)] = s.store.m[segment.HeadKey("beta", 2)]
	}},
	{what: "a byte of a head changed", do: func(s *scene) { flip(s.store, segment.HeadKey("acme", 5), 3) }},
	{what: "a number in a head changed", do: func(s *scene) {
		s.head(5, nil, func(h *segment.Head) { h.Segment.Records++ })
	}},
	{what: "a forged segment with a head signed by another key", do: func(s *scene) { s.forge(17, newKey(s.TB)) }},
	{what: "the same, said to be by the right key", do: func(s *scene) {
		s.forge(17, newKey(s.TB))
		s.head(17, nil, func(h *segment.Head) { h.Key = segment.KeyID(public(s.second)) })
	}},
	{what: "the same, signed by the key that was replaced", do: func(s *scene) { s.forge(17, s.first) }},
	{what: "the tail cut: the last two heads and segments deleted", do: func(s *scene) {
		for n := 16; n <= 17; n++ {
			delete(s.store.m, s.name(n))
			delete(s.store.m, segment.HeadKey("acme", uint64(n)))
		}
	}},
	{what: "the same, and no head was kept elsewhere", do: func(s *scene) {
		for n := 16; n <= 17; n++ {
			delete(s.store.m, s.name(n))
			delete(s.store.m, segment.HeadKey("acme", uint64(n)))
		}
		delete(s.store.m, segment.IndexKey("acme", 1, 16))
		s.heads = nil
	}},
	{what: "only the last head deleted, and none was kept elsewhere", do: func(s *scene) {
		delete(s.store.m, segment.HeadKey("acme", 17))
		s.heads = nil
	}},
	{what: "the whole store set back to an older state", do: func(s *scene) { s.store.m = s.early.m }},
	{what: "a tenant deleted", do: func(s *scene) {
		for _, k := range s.store.keys("t/beta/") {
			delete(s.store.m, k)
		}
		delete(s.store.m, segment.TenantKey("beta"))
	}},
	{what: "a tenant taken from the list of tenants", do: func(s *scene) { delete(s.store.m, segment.TenantKey("beta")) }},
	{what: "a tenant's entry in the list of tenants changed", do: func(s *scene) { flip(s.store, segment.TenantKey("beta"), 1) }},
	{what: "a head kept elsewhere changed", do: func(s *scene) {
		h := *s.heads[4]
		h.Prev = strings.Repeat("0", 64)
		s.heads[4] = &h
	}},
	{what: "another history kept elsewhere: the chain was forked by who has the signing key", do: func(s *scene) {
		h := *s.heads[16]
		h.Time = h.Time.Add(time.Second)
		segment.Sign(&h, s.second)
		s.heads[16] = &h
	}},
	{what: "a head set back in time by who has the signing key", do: func(s *scene) {
		s.head(17, s.second, func(h *segment.Head) { h.Time = h.Time.Add(-time.Hour) })
		s.heads = s.heads[:16]
	}},
	{what: "the list of signing keys: a byte changed", do: func(s *scene) { flip(s.store, segment.SignerKey(2), 90) }},
	{what: "the list of signing keys: the second deleted", do: func(s *scene) {
		delete(s.store.m, segment.SignerKey(2))
		s.heads = nil
	}},
	{what: "a byte of an index changed", do: func(s *scene) { flip(s.store, segment.IndexKey("acme", 1, 16), -60) }},
	{what: "an index that leaves a segment out, all checksums right", do: func(s *scene) {
		key := segment.IndexKey("acme", 1, 16)
		other := s.store.clone()
		delete(other.m, s.name(4))
		delete(other.m, key)
		if err := segment.Reindex(s.Context(), other, "acme", tempDir(s.TB)); err != nil {
			s.Fatal(err)
		}
		s.store.m[key] = other.m[key]
	}},
	{what: "an index deleted", do: func(s *scene) { delete(s.store.m, segment.IndexKey("acme", 1, 16)) }},
	{what: "a segment that no head names", do: func(s *scene) {
		s.put(s.next("acme", "a"))
		s.seal()
		delete(s.store.m, segment.HeadKey("acme", 18))
	}},
	{what: "the same", deep: true, do: func(s *scene) {
		s.put(s.next("acme", "a"))
		s.seal()
		delete(s.store.m, segment.HeadKey("acme", 18))
	}},
	{what: "keys of a segment that is not there and that no head names", deep: true, do: func(s *scene) { s.orphan() }},
	{what: "nothing, and some runs have no end: they go on, or were lost", deep: true, open: true, do: func(s *scene) {
		s.put(s.fact("acme", "b", event.TypeLost), s.typed("beta", "z", event.TypeExited))
		s.seal()
	}},
	{what: "another file put into the store", do: func(s *scene) { s.store.m["t/acme/notes.txt"] = []byte("hello") }},
	{what: "an event left out when it was archived", do: func(s *scene) {
		s.next("acme", "a")
		s.put(s.next("acme", "a"))
		s.seal()
	}},
	{what: "the same inside a segment", do: func(s *scene) {
		s.put(s.next("acme", "a"))
		s.next("acme", "a")
		s.put(s.next("acme", "a"))
		s.seal()
	}},
	{what: "the same, and the archiver said that the bus had lost it", do: func(s *scene) {
		s.must(s.a.Missing(s.Context(), "acme", "a", 35, 35, "archive", "the stream's retention"))
		s.next("acme", "a")
		s.put(s.next("acme", "a"))
		s.seal()
	}},
	{what: "the first events of a run left out", do: func(s *scene) {
		s.next("acme", "late")
		s.next("acme", "late")
		s.put(s.next("acme", "late"))
		s.seal()
	}},
	{what: "events archived a second time", do: func(s *scene) {
		s.a.Forget("acme")
		s.put(s.again(33, 34)...)
		s.seal()
	}},
	{what: "a run erased", deep: true, do: func(s *scene) {
		s.must(s.a.Erase(s.Context(), "acme", "b", "dpo", "request 12"))
	}},
	{what: "a run erased, and an old copy of its keys put back", deep: true, do: func(s *scene) {
		key := segment.PageKey("acme", s.heads[3].Segment.UID)
		old := s.keys.m[key]
		s.must(s.a.Erase(s.Context(), "acme", "b", "dpo", "request 12"))
		s.keys.m[key] = old
	}},
	{what: "a run erased, and its key is in keys that no head names", deep: true, do: func(s *scene) {
		key := s.orphan()
		old := s.keys.m[key]
		s.must(s.a.Erase(s.Context(), "acme", "b", "dpo", "request 12"))
		s.keys.m[key] = old
	}},
	{what: "a run erased, and a copy of its keys under another name", deep: true, do: func(s *scene) {
		old := s.keys.m[segment.PageKey("acme", s.heads[3].Segment.UID)]
		s.must(s.a.Erase(s.Context(), "acme", "b", "dpo", "request 12"))
		s.keys.m["keys/acme/old.keys"] = old
	}},
	{what: "another file put among the keys", deep: true, do: func(s *scene) { s.keys.m["keys/acme/notes.txt"] = []byte("hello") }},
	{what: "a run erased under a hold by who has the signing key", do: func(s *scene) {
		s.must(s.a.Hold(s.Context(), "acme", "b", "case 7", "counsel", "lawsuit"))
		s.must(s.a.Hold(s.Context(), "acme", "c", "x", "counsel", "lawsuit"))
		s.head(19, s.second, func(h *segment.Head) {
			h.Statement = &segment.Statement{Kind: segment.Erased, Run: "b", By: "someone", Why: "nothing"}
		})
	}},
	{what: "segments deleted by retention", deep: true, do: func(s *scene) {
		s.must(s.a.Retain(s.Context(), "acme", s.heads[1].Segment.Last.Add(time.Millisecond), "archive", "older than 30 days"))
	}},
	{what: "the same, and events left out that were not deleted", do: func(s *scene) {
		s.must(s.a.Retain(s.Context(), "acme", s.heads[1].Segment.Last.Add(time.Millisecond), "archive", "older than 30 days"))
		s.next("acme", "late")
		s.put(s.next("acme", "late"))
		s.seal()
	}},
	{what: "segments deleted by retention, and a segment put back", do: func(s *scene) {
		name := s.name(1)
		old := s.store.m[name]
		s.must(s.a.Retain(s.Context(), "acme", s.heads[1].Segment.Last.Add(time.Millisecond), "archive", "older than 30 days"))
		s.store.m[name] = old
	}},
	{what: "segments deleted by retention, and the keys of one put back", deep: true, do: func(s *scene) {
		key := segment.PageKey("acme", s.heads[0].Segment.UID)
		old := s.keys.m[key]
		s.must(s.a.Retain(s.Context(), "acme", s.heads[1].Segment.Last.Add(time.Millisecond), "archive", "older than 30 days"))
		s.keys.m[key] = old
	}},
	{what: "the keys of a segment deleted", deep: true, do: func(s *scene) {
		delete(s.keys.m, segment.PageKey("acme", s.heads[3].Segment.UID))
	}},
	{what: "the keys of a segment: a byte changed", deep: true, do: func(s *scene) {
		flip(s.keys, segment.PageKey("acme", s.heads[3].Segment.UID), 50)
	}},
	{what: "a run's key replaced by another", deep: true, do: func(s *scene) {
		key := segment.PageKey("acme", s.heads[3].Segment.UID)
		s.keys.m[key] = segment.Rekey(s.keys.m[key], "b")
	}},
}

// typed is a run's next event, of a type.
func (s *scene) typed(tenant, run, typ string) *segment.Record {
	r := s.next(tenant, run)
	for i := range r.Header {
		if r.Header[i][0] == "ce-type" {
			r.Header[i][1] = typ
		}
	}
	return r
}

// fact is what a relay states of a run.
func (s *scene) fact(tenant, run, typ string) *segment.Record {
	at := day.Add(time.Hour)
	e := &event.Event{
		Tenant: tenant, Run: run, Ref: "fact", Time: at, Type: typ, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON, Data: []byte("{}"),
	}
	return segment.NewRecord(segment.Control, e, subject.Control(tenant, run, string(event.Life)), headers(e), e.Data, 1, at)
}

// orphan leaves what a crash between the keys of a segment, with runs a and b, and the segment
// leaves, and returns the key of the page.
func (s *scene) orphan() string {
	s.put(s.next("acme", "a"), s.next("acme", "b"))
	h := s.seal()[0]
	delete(s.store.m, h.Segment.Name)
	delete(s.store.m, segment.HeadKey("acme", h.Number))
	s.a.Close()
	s.Dir = tempDir(s.TB)
	s.open()
	return segment.PageKey("acme", h.Segment.UID)
}

// forge replaces the n-th segment by one without its first block, and its head by one that
// says so, signed with a key.
func (s *scene) forge(n int, key ed25519.PrivateKey) {
	b := segment.Without(s.store.m[s.name(n)], 0)
	s.head(n, key, func(h *segment.Head) {
		c := *h.Segment
		c.Root, c.Bytes = segment.RootOf(b), int64(len(b))
		h.Segment = &c
	})
	s.store.m[s.name(n)] = b
	s.heads = s.heads[:n-1]
}
