package ingest

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// maxWaiting bounds the files that wait to be read. What ends beside them is
	// only named.
	maxWaiting = 64
	// maxOutputs bounds what one run publishes of all files together, in bytes.
	maxOutputs = 64 << 20
	// outputsWait bounds how long the run's end waits for the files that tasks
	// left: its host waits for the exit.
	outputsWait = time.Second
	// maxNamed bounds the tasks that are remembered as told. An output of one that is
	// not may be published twice.
	maxNamed = 4096
	// maskPiece is how much of a file is masked at a time: whoever records a line
	// meanwhile waits for it.
	maskPiece = 64 << 10
)

// beforeOutput stands for a slow file system in tests.
var beforeOutput func(late *atomic.Bool)

// outputs publishes what tasks left in files. It learns of them from the lines
// that are recorded, reads them on a goroutine of its own, and is done before the
// run's last event.
type outputs struct {
	log   *slog.Logger
	rec   *recorder
	place func() (dialect.OutputPlace, bool)
	cwd   string // of the edge, which the child has inherited

	queue  chan output
	done   chan struct{}
	late   atomic.Bool     // no time is left for what waits
	closed bool            // nothing more is queued; guarded by rec.mu
	cwds   []string        // that the child may be in; guarded by rec.mu
	named  map[string]bool // tasks whose outputs were named; guarded by rec.mu
	left   int64           // bytes that may still be published; owned by the goroutine
}

// output is a file that a task's end named.
type output struct {
	dialect.OutputFile
	class  dialect.Class
	at     time.Time
	reason string // why it is not read
	lookup bool   // nobody named it: look where it would be
}

// newOutputs starts the goroutine; end ends it. getenv is the child's environment.
func newOutputs(rec *recorder, getenv func(string) string, cwd string, log *slog.Logger) *outputs {
	o := &outputs{
		log: log, rec: rec, cwd: cwd, cwds: directories(cwd), named: map[string]bool{}, left: maxOutputs,
		queue: make(chan output, maxWaiting+1), done: make(chan struct{}),
	}
	o.place = func() (dialect.OutputPlace, bool) {
		return dialect.OutputPlaceOf(rec.track.Dialect(), getenv, os.Geteuid())
	}
	go o.run() // ends by end
	return o
}

// directories are a directory and where it really is: a child sees either.
func directories(dir string) []string {
	list := []string{dir}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		list = append(list, real)
	}
	return list
}

// watch is told of every recorded line, under the recorder's lock.
func (o *outputs) watch(l line) {
	if o.closed || l.stream != event.Out || !l.class.Frame {
		return
	}
	switch {
	case strings.HasSuffix(l.class.Type, ".system.task_notification"):
		f, ok := dialect.Parse(l.data)
		if !ok {
			return
		}
		for _, file := range dialect.OutputFiles(&f) {
			if len(o.named) < maxNamed {
				o.named[l.class.Task] = true
			}
			o.add(output{OutputFile: file, class: l.class, at: time.Now()})
		}
	case strings.HasSuffix(l.class.Type, ".system.init"):
		if f, ok := dialect.Parse(l.data); ok {
			o.moved(f.Get("cwd").Text())
		}
	}
}

// moved notes where the child says that it works. It is believed within the
// directory it was started in: a child with a worktree of its own is there.
func (o *outputs) moved(cwd string) {
	const most = 16
	within := slices.ContainsFunc(directories(o.cwd), func(d string) bool { return strings.HasPrefix(cwd, d+"/") })
	if within && len(o.cwds) < most && cwd == filepath.Clean(cwd) && !slices.Contains(o.cwds, cwd) {
		o.cwds = append(o.cwds, cwd)
	}
}

// add queues a file. One more than maxWaiting has room, which says that there
// are too many; those behind it are not named either.
func (o *outputs) add(file output) {
	if len(o.queue) >= maxWaiting {
		file.reason = outputBusy
	}
	select {
	case o.queue <- file:
	default:
	}
}

func (o *outputs) run() {
	defer close(o.done)
	for file := range o.queue {
		switch {
		case o.late.Load() && file.lookup:
		case file.lookup:
			o.look(file)
		case o.late.Load():
			file.reason = outputLate
			fallthrough
		default:
			o.publish(file)
		}
	}
}

// untold queues the tasks that are open at the run's end: no frame told theirs, and
// none named what they wrote. Called under the recorder's lock.
func (o *outputs) untold() {
	for _, task := range o.rec.state.OpenTasks() {
		if !o.named[task] {
			o.add(output{class: dialect.Class{Session: o.rec.main, Task: task}, at: time.Now(), lookup: true})
		}
	}
}

// look publishes what stands where the task's outputs would be.
func (o *outputs) look(file output) {
	place, d, own, ok := o.owner(file)
	if !ok {
		return
	}
	base := filepath.Join(place.Temp, place.Own)
	dirs, err := os.ReadDir(base)
	if err != nil {
		return
	}
	names := make([]string, 0, len(dirs))
	for _, e := range dirs {
		names = append(names, e.Name())
	}
	for _, f := range dialect.TaskOutputs(d, names, own) {
		if name := base + "/" + f.Path; exists(name) {
			found := file
			found.OutputFile = dialect.OutputFile{Stream: f.Stream, Path: name}
			o.publish(found)
		}
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// owner says where the child keeps its outputs, and whose a file must be.
func (o *outputs) owner(file output) (dialect.OutputPlace, dialect.Name, dialect.OutputOwner, bool) {
	o.rec.mu.Lock()
	defer o.rec.mu.Unlock()
	place, ok := o.place()
	own := dialect.OutputOwner{Cwds: slices.Clone(o.cwds), Sessions: o.rec.state.Sessions(), Task: file.class.Task}
	return place, o.rec.track.Dialect(), own, ok
}

// end waits for the files that are queued, no longer than outputsWait and not
// after hurry: those that were not read by then are named with a reason. A file
// system that does not answer keeps the goroutine; what it brings is not recorded.
func (o *outputs) end(hurry <-chan struct{}) {
	o.rec.mu.Lock()
	o.untold()
	o.closed = true
	close(o.queue)
	o.rec.mu.Unlock()
	t := time.NewTimer(outputsWait)
	defer t.Stop()
	select {
	case <-o.done:
		return
	case <-hurry:
	case <-t.C:
	}
	o.late.Store(true)
	t.Reset(outputsWait / 4) // to name the rest
	select {
	case <-o.done:
	case <-t.C:
		o.log.Warn("a task's output file cannot be read; it is left out")
	}
}

// publish records one file, or why it is not there.
func (o *outputs) publish(file output) {
	var parts []outputPart
	var size int64
	err := error(&outputError{file.reason, nil})
	if file.reason == "" {
		parts, size, err = o.read(file)
	}
	if err != nil {
		reason := outputNoAccess
		if e := (*outputError)(nil); errors.As(err, &e) {
			reason = e.reason
		}
		o.log.Debug("output of a task", "task", file.class.Task, "file", file.Path, "error", err)
		o.rec.output(file, outputPart{}, map[string]string{"outputerror": reason})
		return
	}
	omitted := size
	for _, p := range parts {
		omitted -= int64(len(p.data))
	}
	for _, p := range parts {
		ext := map[string]string{
			"outputsize": strconv.FormatInt(size, 10), "outputoffset": strconv.FormatInt(p.off, 10),
		}
		if len(parts) > 1 {
			ext["outputomitted"] = strconv.FormatInt(omitted, 10)
		}
		o.rec.output(file, p, ext)
	}
}

// read reads a file that is what it must be. Its size is that of what was read
// where it has changed meanwhile.
func (o *outputs) read(file output) ([]outputPart, int64, error) {
	place, d, own, ok := o.owner(file)
	if !ok {
		return nil, 0, &outputError{outputOutside, nil}
	}
	path, err := outputParts(d, place, file.Path, own)
	if err != nil {
		return nil, 0, err
	}
	if beforeOutput != nil {
		beforeOutput(&o.late)
	}
	f, info, err := openOutput(place.Temp, place.Own, path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	size := info.Size()
	if min(size, maxOutput) > o.left {
		return nil, 0, &outputError{outputLimit, nil}
	}
	parts, err := readOutput(f, size)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range parts {
		o.left -= int64(len(p.data))
	}
	if len(parts) == 1 {
		size = int64(len(parts[0].data))
	}
	return parts, size, nil
}

// output records a part of a task's file, masked, unless the run is closed.
func (r *recorder) output(file output, p outputPart, ext map[string]string) {
	e := event.Event{
		Tenant: r.tenant, Run: r.run, Time: file.at, Type: event.TypeOutput, Kind: event.Raw, Stream: event.Edge,
		Session: file.class.Session, Task: file.class.Task, ContentType: event.Binary, Ext: ext,
	}
	r.mask(&e, p.data)
	name := r.red.Frame("", []byte(bound(file.Path, maxID)), false)
	ext["outputfile"], ext["outputstream"] = string(name.Data), string(file.Stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.identify(&e, len(e.Redacted) > 0)
	r.commit()
	r.append(&e, nil, false)
}

// mask gives e the data, masked piece by piece: a secret across two of them is
// found.
func (r *recorder) mask(e *event.Event, data []byte) {
	const stream = event.Stream("output") // a place of its own for what is held back
	var out []byte
	for rest := data; len(rest) > 0; {
		piece := rest[:min(maskPiece, len(rest))]
		rest = rest[len(piece):]
		res := r.red.Frame(stream, piece, len(rest) > 0)
		for _, s := range res.Spans {
			s.Off += len(out)
			e.Redacted = append(e.Redacted, s)
		}
		out = append(out, res.Data...)
	}
	e.Data, e.Redacted = event.LimitSpans(out, e.Redacted, "[redacted:many]")
	if len(e.Redacted) > 0 {
		e.RawLen, e.RawHash = len(data), r.red.Hash(data)
	}
}
