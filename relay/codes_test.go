package relay

import (
	"testing"
	"time"
)

// Codes of one token push out its own only.
func TestCodesOfOneToken(t *testing.T) {
	var s codes
	now := time.Now()
	admin, reader := localGrant("a"), localGrant("b")
	first := s.make(admin, now)
	var last CodeDoc
	for range 3 * maxCodes {
		last = s.make(reader, now)
	}
	if n := len(s.list); n != maxCodes+1 {
		t.Errorf("%d codes are kept", n)
	}
	if s.use(first.Code, now) != admin || s.use(last.Code, now) != reader || s.use(last.Code, now) != nil {
		t.Error("a code of another token was pushed out, or one counted twice")
	}
	s.make(admin, now)
	s.make(reader, now.Add(codeAge))
	if n := len(s.list); n != 1 {
		t.Errorf("%d codes are kept when all but one are over", n)
	}
}
