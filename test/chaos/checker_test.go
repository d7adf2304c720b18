package chaos_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A message is what is checked of one message of a stream, as the server has it:
// nothing of it went through the code under test.
type message struct {
	Subject string
	ID      string // ce-id
	Seq     string // ce-sequence
	Type    string // ce-type
	Data    []byte
}

// A checker reads a whole stream in its order.
type checker struct {
	runs map[string]*track
	ids  map[string]bool
	findings
}

// track is what is known of one run. The map has every seq that was seen.
type track struct {
	seen map[uint64]bool
	max  uint64
}

// findings count what is wrong, by kind. Frames counts the messages.
type findings struct {
	Frames, Lost, Doubled, Reordered, Altered, Foreign int
	examples                                           []string
}

// wrong reports whether anything is.
func (f findings) wrong() bool {
	return f.Lost+f.Doubled+f.Reordered+f.Altered+f.Foreign > 0
}

func newChecker() *checker { return &checker{runs: map[string]*track{}, ids: map[string]bool{}} }

func (c *checker) finding(n *int, format string, v ...any) {
	*n++
	if len(c.examples) < 20 { // enough to start with
		c.examples = append(c.examples, fmt.Sprintf(format, v...))
	}
}

// expect names a run that the stream should have.
func (c *checker) expect(run string) { c.runs[run] = &track{seen: map[uint64]bool{}} }

func (c *checker) add(m message) {
	c.Frames++
	s, err := subject.ParseEvent(m.Subject)
	if err != nil {
		c.finding(&c.Foreign, "%v", err)
		return
	}
	t := c.runs[s.Run]
	seq, err := strconv.ParseUint(m.Seq, 10, 64)
	if t == nil || err != nil || seq == 0 || m.ID != s.Run+"/"+strconv.FormatUint(seq, 10) {
		c.finding(&c.Foreign, "%s: id %q, seq %q", m.Subject, m.ID, m.Seq)
		return
	}
	switch {
	case t.seen[seq] || c.ids[m.ID]:
		c.finding(&c.Doubled, "%s again", m.ID)
	case seq < t.max:
		c.finding(&c.Reordered, "%s after %d", m.ID, t.max)
	}
	t.seen[seq], c.ids[m.ID] = true, true
	t.max = max(t.max, seq)
	if m.Type == event.TypeExited {
		return // a flusher's last word; finish sees whether it is the last
	}
	want := frame(s.Run, seq)
	wantSubject := subject.Event{
		Partition: s.Partition, Tenant: tenant, Run: s.Run, Session: want.Session, Task: want.Task, Kind: string(want.Kind),
	}
	if !bytes.Equal(m.Data, want.Data) || m.Subject != wantSubject.String() || m.Type != want.Type {
		c.finding(&c.Altered, "%s on %s has %.60q…", m.ID, m.Subject, m.Data)
	}
}

// finish compares with how many events each run had.
func (c *checker) finish(want map[string]uint64) findings {
	for run, n := range want {
		t := c.runs[run]
		for seq := uint64(1); seq <= n; seq++ {
			if !t.seen[seq] {
				c.finding(&c.Lost, "%s/%d", run, seq)
			}
		}
		if t.max > n {
			c.finding(&c.Foreign, "%s ends with %d, not %d", run, t.max, n)
		}
	}
	return c.findings
}

// The checker must find what it is for.
func TestChecker(t *testing.T) {
	stream := func(seqs ...uint64) (all []message) {
		for _, n := range seqs {
			e := frame("r", n)
			s := subject.Event{Tenant: tenant, Run: "r", Session: e.Session, Task: e.Task, Kind: string(e.Kind)}
			all = append(all, message{s.String(), e.ID(), strconv.FormatUint(n, 10), e.Type, e.Data})
		}
		return all
	}
	edit := func(all []message, i int, f func(*message)) []message {
		all = slices.Clone(all)
		f(&all[i])
		return all
	}
	for name, tc := range map[string]struct {
		stream []message
		want   findings
	}{
		"as it should be":  {stream(1, 2, 3, 4), findings{Frames: 4}},
		"lost":             {stream(1, 2, 4), findings{Frames: 3, Lost: 1}},
		"lost at the end":  {stream(1, 2), findings{Frames: 2, Lost: 2}},
		"all lost":         {nil, findings{Lost: 4}},
		"doubled":          {stream(1, 2, 2, 3, 4), findings{Frames: 5, Doubled: 1}},
		"doubled later":    {stream(1, 2, 3, 1, 4), findings{Frames: 5, Doubled: 1}},
		"reordered":        {stream(1, 3, 2, 4), findings{Frames: 4, Reordered: 1}},
		"one that is none": {stream(1, 2, 3, 4, 5), findings{Frames: 5, Foreign: 1}},
		"altered": {edit(stream(1, 2, 3, 4), 1, func(m *message) {
			m.Data = append(slices.Clone(m.Data), '\n')
		}), findings{Frames: 4, Altered: 1}},
		"another's bytes": {edit(stream(1, 2, 3, 4), 1, func(m *message) {
			m.Data = content("r", 3)
		}), findings{Frames: 4, Altered: 1}},
		"another's subject": {edit(stream(1, 2, 3, 4), 1, func(m *message) {
			m.Subject = strings.Replace(m.Subject, ".msg", ".raw", 1)
		}), findings{Frames: 4, Altered: 1}},
		"another's id": {edit(stream(1, 2, 3, 4), 1, func(m *message) {
			m.ID = "r/3"
		}), findings{Frames: 4, Foreign: 1, Lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker()
			c.expect("r")
			for _, m := range tc.stream {
				c.add(m)
			}
			got := c.finish(map[string]uint64{"r": 4})
			if got.wrong() != (len(got.examples) > 0) {
				t.Errorf("examples = %q", got.examples)
			}
			got.examples = nil
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(findings{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
