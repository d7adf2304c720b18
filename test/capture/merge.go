package capture

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// merger turns a recording's streams and times into its timeline.
type merger struct {
	c            *Capture
	in, out, err source
	now          time.Duration
}

// source hands out the lines of one stream in order.
type source struct {
	dir   Dir
	lines [][]byte
	tail  []byte
	next  int
}

func newMerger(c *Capture) *merger {
	m := &merger{c: c, in: source{dir: In}, out: source{dir: Out}, err: source{dir: Err}}
	m.in.lines, m.in.tail = Lines(c.Stdin)
	m.out.lines, m.out.tail = Lines(c.Stdout)
	m.err.lines, m.err.tail = Lines(c.Stderr)
	return m
}

func (m *merger) add(e Entry) {
	m.now = max(m.now, e.At)
	e.At = m.now
	m.c.Timeline = append(m.c.Timeline, e)
}

// upto emits lines of s until n are out.
func (m *merger) upto(s *source, at time.Duration, n int) {
	for s.next < min(n, len(s.lines)) {
		m.add(Entry{At: at, Dir: s.dir, Data: s.lines[s.next]})
		s.next++
	}
}

// rest emits everything that s still holds, the unfinished tail too.
func (m *merger) rest(s *source, at time.Duration) {
	m.upto(s, at, len(s.lines))
	if len(s.tail) > 0 {
		m.add(Entry{At: at, Dir: s.dir, Data: s.tail, Cut: true})
		s.tail = nil
	}
}

// lines reads timing.ndjson: one object a line of the streams.
func (m *merger) lines(b []byte) {
	rows, _ := Lines(b)
	for _, row := range rows {
		var r struct {
			Dir        string  `json:"dir"`
			N          int     `json:"n"`
			At         float64 `json:"t_ms"`
			Signal     string  `json:"signal"`
			CloseStdin bool    `json:"close_stdin"`
			Exit       string  `json:"exit"`
		}
		if json.Unmarshal(row, &r) != nil {
			continue
		}
		at := time.Duration(r.At * float64(time.Millisecond))
		switch {
		case r.Dir == "in":
			m.upto(&m.in, at, r.N)
		case r.Dir == "out" && r.N > 0:
			m.upto(&m.out, at, r.N)
		case r.CloseStdin:
			m.rest(&m.in, at)
			m.add(Entry{At: at, Dir: InEOF})
		case r.Signal != "":
			m.add(Entry{At: at, Dir: Signal, Data: []byte(r.Signal)})
		case r.Exit != "":
			m.now = at
		}
	}
}

// reads parses timeline.tsv: bytes per read. Lines that were shortened after the
// recording hold "…"; they take the bytes that a read has too many.
func (m *merger) reads(b []byte) {
	rows, _ := Lines(b)
	var sum, had [2]int
	for _, row := range rows {
		if f := strings.Split(string(row), "\t"); len(f) == 3 {
			n, _ := strconv.Atoi(f[2])
			switch f[1] {
			case "stdin":
				sum[0] += n
			case "stdout":
				sum[1] += n
			}
		}
	}
	had = [2]int{len(m.c.Stdin), len(m.c.Stdout)}
	in := meter{s: &m.in, missing: sum[0] - had[0]}
	out := meter{s: &m.out, missing: sum[1] - had[1]}
	for _, row := range rows {
		f := strings.Split(string(row), "\t")
		if len(f) != 3 {
			continue
		}
		ms, _ := strconv.Atoi(f[0])
		at := time.Duration(ms) * time.Millisecond
		n, _ := strconv.Atoi(f[2])
		switch {
		case f[1] == "stdin":
			m.upto(&m.in, at, in.read(n))
		case f[1] == "stdout":
			m.upto(&m.out, at, out.read(n))
		case f[1] == "stdin-eof":
			m.rest(&m.in, at)
			m.add(Entry{At: at, Dir: InEOF})
		case strings.HasPrefix(f[1], "signal:"):
			m.add(Entry{At: at, Dir: Signal, Data: []byte(f[1][len("signal:"):])})
		case f[1] == "exit":
			m.now = at
		}
	}
}

// meter counts how many lines of a stream the reads so far have completed.
type meter struct {
	s       *source
	missing int // bytes that shortened lines have lost and that no line has taken yet
	left    int // bytes read of the line at n
	n       int
}

func (t *meter) read(bytesRead int) int {
	t.left += bytesRead
	for t.n < len(t.s.lines) {
		size := len(t.s.lines[t.n]) + 1
		if bytes.Contains(t.s.lines[t.n], []byte("…")) && t.left > size && t.missing > 0 {
			more := min(t.missing, t.left-size)
			t.missing -= more
			size += more
		}
		if t.left < size {
			break
		}
		t.left -= size
		t.n++
	}
	return t.n
}

// guess orders a recording without times: the lines up to the first user message
// first, one more line of stdin after each request of the child.
func (m *merger) guess() {
	for m.in.next < len(m.in.lines) {
		user := bytes.Contains(m.in.lines[m.in.next], []byte(`"type":"user"`))
		m.upto(&m.in, 0, m.in.next+1)
		if user {
			break
		}
	}
	for m.out.next < len(m.out.lines) {
		ask := bytes.Contains(m.out.lines[m.out.next], []byte(`"can_use_tool"`))
		m.upto(&m.out, 0, m.out.next+1)
		if ask {
			m.upto(&m.in, 0, m.in.next+1)
		}
	}
}

func (m *merger) finish() {
	end := m.now
	if n := len(m.c.Timeline); n > 0 {
		end = max(end, m.c.Timeline[n-1].At)
	}
	m.rest(&m.in, end)
	m.rest(&m.out, end)
	m.rest(&m.err, end)
	if sent := m.c.Sent; sent != "" && !m.signalled() {
		m.add(Entry{At: end, Dir: Signal, Data: []byte(sent)})
	}
	m.add(Entry{At: end, Dir: Exit})
}

func (m *merger) signalled() bool {
	return slices.ContainsFunc(m.c.Timeline, func(e Entry) bool { return e.Dir == Signal })
}
