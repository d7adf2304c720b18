package metrics

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/durable"
)

// The snapshot is one line "cbcast-metrics <version> <sha256 of the rest>" and a JSON
// document. It is replaced as a whole.
const (
	snapshotFile    = "counts.json"
	damagedFile     = "counts.damaged"
	snapshotMagic   = "cbcast-metrics"
	snapshotVersion = 1
)

// errDamaged is returned for a snapshot that cannot be used.
var errDamaged = errors.New("damaged snapshot")

// snapshot is everything that a tally knows.
type snapshot struct {
	Saved    time.Time           `json:"saved"`
	Places   []placed            `json:"places"`
	Newest   time.Time           `json:"newest,omitzero"`
	Families map[string][]saved  `json:"families"`
	Sets     map[string][]string `json:"sets"`
	Live     []*live             `json:"live"`
	Ended    []ended             `json:"ended"`
	Lost     []ended             `json:"lost"`
	Sessions []savedSession      `json:"sessions"`
}

type placed struct {
	Log   bus.Log   `json:"log"`
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Holes []hole    `json:"holes,omitempty"`
}

type saved struct {
	Labels  []string   `json:"l,omitempty"`
	N       int64      `json:"n,omitempty"`
	Created time.Time  `json:"c"`
	Hist    *savedHist `json:"h,omitempty"`
}

type savedHist struct {
	Count     uint64            `json:"count"`
	Sum       int64             `json:"sum"`
	Bounds    []float64         `json:"bounds"`
	Classic   []uint64          `json:"classic"`
	Native    map[string]uint64 `json:"native,omitempty"`
	Zero      uint64            `json:"zero,omitempty"`
	Exemplars map[int]exemplar  `json:"ex,omitempty"`
}

type savedSession struct {
	Tenant  string `json:"t"`
	Session string `json:"s"`
	Used    *used  `json:"u"`
}

// encode writes the snapshot's bytes.
func (c *tally) encode(now time.Time) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := snapshot{Saved: now, Newest: c.newest, Families: map[string][]saved{}, Sets: c.sets.save(), Ended: c.ended.all(), Lost: c.lost.all()}
	for _, log := range slices.Sorted(maps.Keys(c.places)) {
		at := c.places[log]
		s.Places = append(s.Places, placed{log, at.Seq, at.Time, c.holes[log].all()})
	}
	for _, d := range catalog {
		for _, x := range c.families[d].sorted() {
			s.Families[d.name] = append(s.Families[d.name], saved{x.labels, x.n, x.created, x.h.save()})
		}
	}
	for _, l := range c.live {
		s.Live = append(s.Live, l)
	}
	for _, k := range c.sessions.order {
		s.Sessions = append(s.Sessions, savedSession{k.tenant, k.run, c.sessions.m[k]})
	}
	body, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	return append(header(body), body...), nil
}

func header(body []byte) []byte {
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "%s %d %s\n", snapshotMagic, snapshotVersion, hex.EncodeToString(sum[:]))
}

// save makes what was counted durable.
func (c *tally) save(dir string) error {
	now := c.now()
	data, err := c.encode(now)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, snapshotFile), data, 0o600); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = now
	return nil
}

// load reads the snapshot of a directory into a new tally. The error is [fs.ErrNotExist]
// where there is none, and [errDamaged] where it cannot be used.
func (c *tally) load(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	if err != nil {
		return err
	}
	return c.decode(data)
}

// setAside keeps a damaged snapshot for whoever wants to look at it: the last one.
func setAside(dir string) error {
	err := durable.Rename(filepath.Join(dir, snapshotFile), filepath.Join(dir, damagedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (c *tally) decode(data []byte) error {
	head, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || string(head)+"\n" != string(header(body)) {
		return fmt.Errorf("%w: its first line does not fit the rest (version %d is known)", errDamaged, snapshotVersion)
	}
	var s snapshot
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.Places {
		c.places[p.Log] = bus.Place{Seq: p.Seq, Time: p.Time}
		c.holes[p.Log] = &holes{p.Holes}
	}
	if err := c.restore(s.Families); err != nil {
		return err
	}
	c.sets.restore(s.Sets)
	c.newest, c.saved = s.Newest, s.Saved
	for _, l := range s.Live {
		c.live[l.key()] = l
	}
	for _, e := range s.Ended {
		c.ended.put(e)
	}
	for _, e := range s.Lost {
		c.lost.put(e)
	}
	for _, x := range s.Sessions {
		if x.Used != nil {
			c.sessions.put(runKey{x.Tenant, x.Session}, x.Used)
		}
	}
	return nil
}

// restore fills in the series. A metric of an older cbcast that is no more, or has other
// labels now, is left out.
func (c *tally) restore(families map[string][]saved) error {
	for _, d := range catalog {
		for _, x := range families[d.name] {
			if len(x.Labels) != len(d.labels) || d.kind == gauge {
				continue
			}
			s := c.at(d, x.Labels...)
			s.n, s.created = x.N, x.Created
			if d.kind != histogram {
				continue
			}
			if x.Hist == nil || len(x.Hist.Classic) != len(x.Hist.Bounds)+1 {
				return fmt.Errorf("%w: histogram %s", errDamaged, d.name)
			}
			if err := s.h.restore(x.Hist); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hist) save() *savedHist {
	if h == nil {
		return nil
	}
	s := &savedHist{Count: h.count, Sum: h.sum, Bounds: h.bounds, Classic: h.classic, Zero: h.zero, Native: map[string]uint64{}}
	for k, n := range h.native {
		s.Native[strconv.Itoa(k)] = n
	}
	for i, e := range h.exemplars {
		if !e.empty() {
			if s.Exemplars == nil {
				s.Exemplars = map[int]exemplar{}
			}
			s.Exemplars[i] = e
		}
	}
	return s
}

// restore takes a saved histogram. Classic buckets that had other bounds are lost into
// those that hold their upper bound.
func (h *hist) restore(s *savedHist) error {
	h.count, h.sum, h.zero = s.Count, s.Sum, s.Zero
	for i, n := range s.Classic {
		j := len(h.bounds)
		if i < len(s.Bounds) {
			j, _ = slices.BinarySearch(h.bounds, s.Bounds[i])
		}
		h.classic[j] += n
	}
	for k, n := range s.Native {
		i, err := strconv.Atoi(k)
		if err != nil {
			return fmt.Errorf("%w: bucket %q", errDamaged, k)
		}
		h.native[i] = n
	}
	if slices.Equal(h.bounds, s.Bounds) {
		for i, e := range s.Exemplars {
			if i >= 0 && i < len(h.exemplars) {
				h.exemplars[i] = e
			}
		}
	}
	return nil
}

func (s *sets) all() map[string]*set {
	return map[string]*set{"tenant": s.tenants, "model": s.models, "task_type": s.tasks, "rule": s.rules, "type": s.types}
}

func (s *sets) save() map[string][]string {
	m := map[string][]string{}
	for name, x := range s.all() {
		m[name] = slices.Sorted(maps.Keys(x.seen))
	}
	return m
}

func (s *sets) restore(m map[string][]string) {
	for name, x := range s.all() {
		for _, v := range m[name] {
			x.seen[v] = true
		}
	}
}
