// Package segment is the archive: its format, writer, reader and verifier.
package segment
