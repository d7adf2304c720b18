package relay

import (
	"context"
	"time"
)

// ends reports whether the relay's streams are to end.
func (s *watcher) ends() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// wait returns when there may be more to send, after d at the latest; more is false
// when there will not. It keeps the heartbeat. Where turn is given, got says that one
// was taken from it.
func (s *watcher) wait(ctx, bg context.Context, d time.Duration, turn <-chan struct{}) (more, got bool, err error) {
	if err := s.flush(); err != nil {
		return false, false, err
	}
	if s.ends() { // everything there was has been sent
		return false, false, errRelay
	}
	t := time.NewTimer(min(d, max(time.Until(s.beat), 0)))
	defer t.Stop()
	select {
	case <-s.place.wakes:
	case <-turn:
		return true, true, nil
	case <-t.C:
		if !time.Now().Before(s.beat) {
			s.buf = append(s.buf, heartbeat...)
			return true, false, s.flush()
		}
	case <-s.closing:
	case <-ctx.Done():
		return false, false, nil
	case <-bg.Done():
		return false, false, errRelay
	}
	return true, false, nil
}
