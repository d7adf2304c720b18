package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// maxDigest bounds the lines of one digest. What is beyond goes into the next.
const maxDigest = 500

// together lists what of a lane is better told as one: what may stand in a digest,
// where the destination was busy or so much waits that people would see a flood. The
// caller holds mu.
func (d *desk) together(l *lane, ready []*item) []*item {
	from := d.rules.merge(l.dest)
	if from <= 1 {
		return nil
	}
	if l.throttled {
		from = 2
	}
	var all []*item
	for _, it := range ready {
		if mergeable(it.Kind) && !it.Unsure && len(it.Members) == 0 && it.Target == ready[0].Target {
			all = append(all, it)
		}
	}
	if len(all) < from || !slices.Contains(all, ready[0]) {
		return nil
	}
	return all[:min(len(all), maxDigest)]
}

// merge stages a digest in the place of items that are of one target, and returns
// its item. Its id follows from its members. The caller holds mu.
func (d *desk) merge(items []*item, text string, now time.Time) *item {
	n := &sink.Notice{Kind: sink.Digest, At: now.UTC()}
	h := sha256.New()
	kinds := map[sink.Kind]int{}
	var r record
	first := items[0]
	for _, it := range items {
		fmt.Fprintln(h, it.ID)
		kinds[it.Kind]++
		n.Digest = append(n.Digest, d.line(it))
		if n.Tenant == "" {
			n.Tenant = it.Tenant
		} else if n.Tenant != it.Tenant {
			n.Tenant = "-"
		}
		d.leave(it)
		r.Gone = append(r.Gone, gone{it.ID, "merged"})
		d.m.ended(it, "merged")
	}
	n.Tenant = strings.Trim(n.Tenant, "-")
	n.ID = "digest/" + hex.EncodeToString(h.Sum(nil)[:16])
	n.Note = digestText(kinds)
	if text != "" {
		n.Note = text + ": " + n.Note
	}
	it := d.newItem(n, n.ID, first.Target, sink.Digest, now)
	it.Rule, it.Made, it.Order, it.Expires = first.Rule, first.Made, first.Order, first.Expires
	for _, o := range items {
		it.Members = append(it.Members, noticeID(o.ID))
		if o.Mention != "" && it.Mention == "" {
			it.Mention = o.Mention
		}
	}
	r.Notes, r.Items = []*sink.Notice{n}, []*item{it}
	d.put(&r)
	return it
}

// line is an item as a line of a digest.
func (d *desk) line(it *item) sink.Line {
	l := sink.Line{Kind: it.Kind, Tenant: it.Tenant, Run: it.Run, At: it.Made}
	n := d.st.notes[it.Note]
	if n == nil {
		return l
	}
	l.At, l.Link = n.At, n.Links.Run
	if n.View == nil {
		return l
	}
	if v := n.View.Verdict; v != nil {
		l.Verdict = string(v.Verdict)
	}
	names := []string{}
	for _, t := range n.View.Tasks {
		if strings.Contains(strings.ToLower(t.Type), "workflow") && t.Name != "" && !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	for _, label := range []string{n.CI["cirepo"], n.CI["cijob"]} {
		if label != "" {
			names = append(names, label)
		}
	}
	l.Text = strings.Join(names, ", ")
	if len(l.Text) > 200 {
		l.Text = strings.ToValidUTF8(l.Text[:200], "") + "…"
	}
	return l
}

// digestText says how many of what are meant.
func digestText(kinds map[sink.Kind]int) string {
	words := map[sink.Kind]string{
		sink.Finished: "finished", sink.Failed: "failed", sink.Lost: "lost", sink.Interrupted: "interrupted",
		sink.Stalled: "stalled", sink.Resumed: "speaking again",
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		runs := "runs"
		if kinds[k] == 1 {
			runs = "run"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", kinds[k], runs, words[k]))
	}
	return strings.Join(parts, ", ")
}

// noticeID is the id of the notice that an item tells.
func noticeID(item string) string {
	id, _, _ := strings.Cut(item, "@")
	return id
}
