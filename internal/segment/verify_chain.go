package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
)

// verify checks one tenant: its heads, what was kept of them elsewhere, its segments in
// order, its indexes.
func (c *verifyChain) verify(ctx context.Context) error {
	if err := c.verifyHeads(ctx); err != nil {
		return err
	}
	c.compare()
	c.statements()
	claimed := map[string]bool{}
	for _, n := range slices.Sorted(keysOf(c.chain)) {
		if s := c.chain[n].Segment; s != nil {
			claimed[s.Name] = true
		}
	}
	strays := c.strays(ctx, claimed)
	for n := uint64(1); n <= c.last; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := c.chain[n]
		if h != nil && h.Segment != nil {
			if err := c.verifySegment(ctx, h, strays); err != nil {
				return err
			}
		}
		if n%fan == 0 {
			if err := c.verifyIndexes(ctx, n); err != nil {
				return err
			}
		}
	}
	c.leftOver(ctx, strays)
	c.openRuns()
	c.rep.Runs += len(c.runs)
	return nil
}

func keysOf[V any](m map[uint64]V) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// verifyHeads reads the chain.
func (c *verifyChain) verifyHeads(ctx context.Context) error {
	if n := len(c.heads); n > 0 {
		c.last = c.heads[n-1]
	}
	var before *Head // the one just before, if it could be read
	var newest *Head
	signer, next := -1, uint64(1)
	for _, n := range c.heads {
		if n > next {
			c.bad(Finding{Code: HeadMissing, First: next, Last: n - 1, Text: span("head", next, n-1) + " missing"})
			before = nil
		}
		next = n + 1
		key := headKey("", n)
		b, err := readObject(ctx, c.o.Store, c.prefix()+key[len(rootOf("")):], maxHead)
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, errDamaged) && !isNotExist(err) {
				return err
			}
		}
		var h *Head
		if err == nil {
			h, err = ParseHead(b)
		}
		if err != nil {
			c.bad(Finding{Code: HeadDamaged, Number: n, Text: err.Error()})
			before = nil
			continue
		}
		if c.tenant == "" && rootOf(h.Tenant) == c.prefix() {
			c.tenant = h.Tenant
		}
		if h.Number != n || h.Tenant != c.tenant {
			c.bad(Finding{Code: HeadMisplaced, Number: n, Text: fmt.Sprintf("head %d of tenant %q stands here", h.Number, h.Tenant)})
			before = nil
			continue
		}
		if n == 1 && h.Prev != "" || n > 1 && before != nil && h.Prev != before.Hash() {
			c.bad(Finding{Code: ChainBroken, Number: n, Text: "it does not name the head before"})
		}
		if newest != nil {
			c.order(newest, h)
		}
		signer = c.signature(h, signer)
		before, newest = h, h
		c.chain[n] = h
		c.rep.Heads++
	}
	if c.tenant == "" {
		c.tenant = c.token
	}
	switch {
	case c.misnamed:
		c.bad(Finding{Code: TenantList, Object: tenantsPrefix + c.token, Text: "its entry in the list of tenants is damaged"})
	case len(c.heads) > 0 && !c.listed:
		c.bad(Finding{Code: TenantList, Text: "the tenant is not in the list of tenants"})
	}
	return nil
}

func (c *verifyChain) prefix() string { return tenantRoot + c.token + "/" }

// order checks that time does not run backwards from one head to a later one.
func (c *verifyChain) order(a, b *Head) {
	if b.Time.Before(a.Time) {
		c.bad(Finding{Code: TimeBackwards, Number: b.Number, Text: fmt.Sprintf("it is of %s, the one before of %s",
			b.Time.Format(time.RFC3339Nano), a.Time.Format(time.RFC3339Nano))})
	}
	for log, p := range a.Through {
		if q := b.Through[log]; q.Time.Before(p.Time) || q.Time.Equal(p.Time) && q.Seq < p.Seq {
			c.bad(Finding{Code: TimeBackwards, Number: b.Number, Text: fmt.Sprintf("it is through %s up to %d, the one before up to %d", log, q.Seq, p.Seq)})
		}
	}
}

// signature checks who signed a head. signer is the newest key that signed before.
func (c *verifyChain) signature(h *Head, signer int) int {
	i := c.ring.find(h.Key)
	if i < 0 {
		c.row(Finding{Code: SignerUnknown, Number: h.Number, First: h.Number, Last: h.Number, Text: fmt.Sprintf("key %s is not one of the archive's", h.Key)})
		return signer
	}
	if !h.SignedBy(c.ring.keys[i].Public()) {
		c.bad(Finding{Code: SignatureBad, Number: h.Number, Text: "the signature is not of this head"})
		return signer
	}
	until, ends := c.ring.until(i)
	if i < signer || ends && h.Time.After(until) {
		c.bad(Finding{Code: SignerOld, Number: h.Number, Text: fmt.Sprintf("key %s had been replaced", h.Key)})
	}
	return max(signer, i)
}

// compare looks at the heads that were kept elsewhere.
func (c *verifyChain) compare() {
	var cut []uint64
	for _, h := range c.o.Heads {
		if h.Tenant != c.tenant {
			continue
		}
		if k := c.ring.find(h.Key); k < 0 || !h.SignedBy(c.ring.keys[k].Public()) {
			c.row(Finding{Code: HeadsBad, Number: h.Number, First: h.Number, Last: h.Number, Text: "kept elsewhere, and not signed by the archive"})
			continue
		}
		switch have := c.chain[h.Number]; {
		case h.Number > c.last:
			cut = append(cut, h.Number)
		case have != nil && have.Hash() != h.Hash():
			c.bad(Finding{Code: HeadDiffers, Number: h.Number, Text: "another head was kept elsewhere under this number"})
		}
	}
	if len(cut) > 0 && len(c.chain) > 0 {
		to := slices.Max(cut)
		c.bad(Finding{Code: TailCut, First: c.last + 1, Last: to, Text: fmt.Sprintf(
			"the chain ends at %d; heads up to %d were kept elsewhere", c.last, to)})
	}
}

// statements goes through what the chain says of itself.
func (c *verifyChain) statements() {
	holds := map[string]*Statement{}
	held := func(run string) (string, bool) {
		for id, s := range holds {
			if s.Run == "" || s.Run == run {
				return id, true
			}
		}
		return "", false
	}
	for n := uint64(1); n <= c.last; n++ {
		h := c.chain[n]
		if h == nil {
			continue
		}
		if h.Segment != nil {
			if m := c.uids[h.Segment.UID]; m != 0 {
				c.bad(Finding{Code: SegmentDouble, Number: n, Object: h.Segment.Name, Text: fmt.Sprintf("head %d names the same segment", m)})
				continue
			}
			c.uids[h.Segment.UID] = n
			continue
		}
		s := h.Statement
		switch s.Kind {
		case Erased:
			if id, ok := held(s.Run); ok {
				c.bad(Finding{Code: HoldBroken, Number: n, Run: s.Run, Text: fmt.Sprintf("erased under hold %q", id)})
			}
			c.erased[s.Run] = n
			c.note(Finding{Code: FromErased, Number: n, Run: s.Run, Text: fmt.Sprintf("erased by %s: %s", s.By, s.Why)})
		case Retained:
			for id, hold := range holds {
				if hold.Run == "" {
					c.bad(Finding{Code: HoldBroken, Number: n, Text: fmt.Sprintf("deleted under hold %q", id)})
				}
			}
			for _, m := range s.Segments {
				c.gone[m] = n
			}
			for _, e := range s.Ends {
				c.ends[e.Run] = max(c.ends[e.Run], e.Seq)
			}
			c.more = c.more || s.More
		case Held:
			holds[s.Hold] = s
		case Released:
			delete(holds, s.Hold)
		case Missing:
			c.missing = append(c.missing, s)
		}
	}
}

// strays finds the segments that no head names, by the uid that their header has.
func (c *verifyChain) strays(ctx context.Context, claimed map[string]bool) map[string][]string {
	out := map[string][]string{}
	for key := range c.segments {
		if claimed[key] {
			continue
		}
		uid := ""
		if o, err := c.o.Store.Open(ctx, key); err == nil {
			if h, _, err := readHeader(o, o.Size()); err == nil && h.tenant == c.tenant {
				uid = fmt.Sprintf("%x", h.uid)
			}
			o.Close()
		}
		out[uid] = append(out[uid], key)
	}
	for _, keys := range out {
		sort.Strings(keys)
	}
	return out
}

// leftOver says what no head names.
func (c *verifyChain) leftOver(_ context.Context, strays map[string][]string) {
	uids := make([]string, 0, len(strays))
	for uid := range strays {
		uids = append(uids, uid)
	}
	sort.Strings(uids)
	for _, uid := range uids {
		for _, key := range strays[uid] {
			switch n := c.uids[uid]; {
			case uid == "":
				c.note(Finding{Code: StrayObject, Object: key, Text: "it is no segment of this tenant"})
			case n != 0:
				c.bad(Finding{Code: SegmentCopied, Number: n, Object: key, Text: fmt.Sprintf("it is the segment of head %d under another name", n)})
			default:
				c.note(Finding{Code: Unclaimed, Object: key, Text: "no head names this segment: a crash left it, or its head is gone"})
			}
		}
	}
	for _, key := range c.stray {
		c.note(Finding{Code: StrayObject, Object: key, Text: "nothing of an archive has such a name"})
	}
}

// span says "event 7 is" or "events 7 to 9 are".
func span(what string, first, last uint64) string {
	if first == last {
		return fmt.Sprintf("%s %d is", what, first)
	}
	return fmt.Sprintf("%ss %d to %d are", what, first, last)
}
