package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var errTooLong = errors.New("an event of the stream is too long")

// newLines returns a function that reads the lines of a stream of events, which end
// with LF, CR LF or CR. A line is valid until the next call.
func newLines(r io.Reader) func() ([]byte, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4<<10), maxEvent)
	afterCR := false
	s.Split(func(data []byte, end bool) (int, []byte, error) {
		skip := 0
		if afterCR && len(data) > 0 && data[0] == '\n' {
			skip = 1
		}
		if i := bytes.IndexAny(data[skip:], "\r\n"); i >= 0 {
			i += skip
			afterCR = data[i] == '\r'
			return i + 1, data[skip:i:i], nil
		}
		if end {
			return 0, nil, nil // a line without its end is none
		}
		if skip == 1 {
			afterCR = false
		}
		return skip, nil, nil
	})
	return func() ([]byte, error) {
		if s.Scan() {
			return s.Bytes(), nil
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return nil, errTooLong
		case err != nil:
			return nil, err
		}
		return nil, io.EOF
	}
}
