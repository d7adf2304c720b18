// Package capture reads the recorded sessions of real children in data/, for
// tests. Each is what one run of Claude Code, CodeBuddy or Codex read and wrote, merged
// into one timeline. data/README.md says where they come from.
package capture

import (
	"archive/zip"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed data/*.zip
var data embed.FS

// Dirs lists the program versions that there are recordings of.
var Dirs = []string{"claude-2.1.220", "cbc-2.163.0", "cbc-2.117.0", "codex-0.153.4"}

// A Dir says what an [Entry] is.
type Dir string

// The directions.
const (
	In     Dir = "in"     // a line that the parent wrote to the child's stdin
	Out    Dir = "out"    // a line on the child's stdout
	Err    Dir = "err"    // a line on the child's stderr
	InEOF  Dir = "in-eof" // the parent closed the child's stdin
	Signal Dir = "signal" // the parent sent the child the signal in Data
	Exit   Dir = "exit"   // the child ended; always the last entry
)

// An Entry is one thing that happened.
type Entry struct {
	At   time.Duration // since the child's start
	Dir  Dir
	Data []byte // a line without its LF, or the name of a signal
	Cut  bool   // no LF followed
}

// A Capture is one recorded run.
type Capture struct {
	Name  string // "<program version>/<scenario>"
	Argv  []string
	About string // what the scenario was to show

	Stdin, Stdout, Stderr []byte // as read and written, byte for byte

	// Timeline orders everything. Lines of Claude Code and Codex have their own
	// times. CodeBuddy's were recorded per read and before long lines were shortened, so
	// their times are near, never out of order within a stream.
	Timeline []Entry

	Code   int    // exit code; -1 where Signal is set
	Signal string // "SIGKILL" …: the signal the child died of
	// Sent is a signal that the recording program sent where its time may not be
	// known: when the child had not ended by itself, or as the scenario says.
	Sent   string
	Killed bool // the recording program gave up and killed the child
}

type meta struct {
	Argv       []string `json:"argv"`
	About      string   `json:"about"`
	Code       int      `json:"code"`
	Signal     string   `json:"signal"`
	SignalSent string   `json:"signal_sent"`
	Killed     bool     `json:"killed_by_driver"`
}

// List returns the names of all recordings, sorted within each of [Dirs].
func List() []string {
	var names []string
	for _, d := range Dirs {
		z, err := open(d)
		if err != nil {
			panic(err) // the archive is compiled in
		}
		var in []string
		for _, f := range z.File {
			if name, ok := strings.CutSuffix(f.Name, "/meta.json"); ok {
				in = append(in, d+"/"+name)
			}
		}
		slices.Sort(in)
		names = append(names, in...)
	}
	return names
}

func open(dir string) (*zip.Reader, error) {
	b, err := data.ReadFile("data/" + dir + ".zip")
	if err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(b), int64(len(b)))
}

// Load reads one recording by its name in [List].
func Load(name string) (*Capture, error) {
	dir, base, _ := strings.Cut(name, "/")
	z, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	files := map[string][]byte{}
	for _, f := range z.File {
		part, ok := strings.CutPrefix(f.Name, base+"/")
		if !ok {
			continue
		}
		if files[part], err = read(f); err != nil {
			return nil, fmt.Errorf("capture %s: %w", name, err)
		}
	}
	var m meta
	if err := json.Unmarshal(files["meta.json"], &m); err != nil {
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	c := &Capture{
		Name: name, Argv: m.Argv, About: m.About, Code: m.Code, Signal: m.Signal, Sent: m.SignalSent, Killed: m.Killed,
		Stdin: files["stdin"], Stdout: files["stdout"], Stderr: files["stderr"],
	}
	m2 := newMerger(c)
	switch {
	case files["timing.ndjson"] != nil:
		m2.lines(files["timing.ndjson"])
	case files["timeline.tsv"] != nil:
		m2.reads(files["timeline.tsv"])
	default:
		m2.guess()
	}
	m2.finish()
	return c, nil
}

func read(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Lines cuts b at each LF; last is what follows the last one.
func Lines(b []byte) (lines [][]byte, last []byte) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return lines, b
		}
		lines, b = append(lines, b[:i:i]), b[i+1:]
	}
}
