package spool

import "time"

// File is the writer's view of a segment.
type File = file

// WithCreate makes o open new segments with f.
func WithCreate(o Options, f func(path string) (File, error)) Options {
	o.create = f
	return o
}

// CreateFile is how segments are opened otherwise.
var CreateFile = createFile

// SetMeasureEvery shortens how often a full spool looks again.
func SetMeasureEvery(d time.Duration) (restore func()) {
	old := measureEvery
	measureEvery = d
	return func() { measureEvery = old }
}
