//go:build !linux

package ingest

// background runs f. Threads have no priority of their own here.
func background(f func()) { f() }
