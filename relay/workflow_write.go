package relay

import (
	"context"
	"errors"
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

// flush writes what is held, through to the connection.
func (s *watcher) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.write(s.buf)
	s.buf = s.buf[:0]
	if cap(s.buf) > idleBuffer {
		s.buf = nil
	}
	return err
}

// write gives b to the connection, a part at a time and each under a new deadline.
func (s *watcher) write(b []byte) error {
	defer s.busy(0)
	for len(b) > 0 {
		part := b[:min(len(b), batchBytes)]
		b = b[len(part):]
		now := time.Now()
		s.out.deadline(now.Add(s.r.cfg.WriteTimeout))
		s.busy(now.UnixNano())
		if s.place != nil && s.place.cut.Load() {
			return errSlow
		}
		if err := s.out.write(part); err != nil {
			return errors.Join(errNoBytes, err)
		}
		s.r.met.sent(len(part))
	}
	s.beat = time.Now().Add(s.r.cfg.Heartbeat)
	return nil
}

// busy notes since when a write is under way.
func (s *watcher) busy(since int64) {
	if s.place != nil {
		s.place.busy.Store(since)
	}
}
