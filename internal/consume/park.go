package consume

import (
	"context"
	"time"
)

// A park is one run that is held up: its first entry could not be handled.
type park struct {
	entries []*Entry
	err     error
	tries   int // of the first entry
	again   int // tries in a row that were nobody's fault
	next    time.Time
	broken  bool // an entry of it became a dead letter, and none was handled since
}

// keyOf is what an entry is held up with.
func keyOf(e *Entry) string {
	tenant, run := e.Run()
	if run == "" {
		return "\x00" + e.Log.String()
	}
	return tenant + "\x00" + run
}

// park holds a run up from its entry e on.
func (l *loop) park(key string, e *Entry, err error) {
	p := &park{}
	l.parked[key] = p
	l.hold(p, e)
	l.failedTry(p, err)
}

func (l *loop) hold(p *park, e *Entry) {
	if e.Raw.Header == nil {
		e.Raw.Header = e.header() // what a dead letter needs
	}
	p.entries = append(p.entries, e)
	l.bytes += e.size()
	l.later(l.c.cfg.Every) // others may be acked
}

// failedTry takes note of an error of the first entry, and says when it is tried again.
func (l *loop) failedTry(p *park, err error) {
	e := p.entries[0]
	p.err = err
	if notItsFault(err) {
		p.again++
		p.next = now().Add(l.c.cfg.pause(p.again))
		l.c.cfg.Log.Debug("entry waits", "log", e.Log, "stream_seq", e.At.Seq, "error", err)
		return
	}
	p.tries++
	if p.again = 0; p.broken {
		p.tries = max(p.tries, l.c.cfg.Tries)
	}
	p.next = now().Add(l.c.cfg.pause(p.tries))
	_, run := e.Run()
	l.c.cfg.Log.Warn("entry not handled", "log", e.Log, "stream_seq", e.At.Seq, "run", run, "tries", p.tries, "error", err)
}

// pause is how long is waited after so many failures in a row.
func (c Config) pause(failures int) time.Duration {
	return min(c.MaxPause, c.Pause<<min(failures-1, 20))
}

// retry handles what has waited long enough.
func (l *loop) retry(ctx context.Context) {
	for _, key := range l.runsParked() {
		p := l.parked[key]
		if p.tries < l.c.cfg.Tries && now().Before(p.next) || ctx.Err() != nil {
			continue
		}
		l.resume(ctx, key, p)
	}
}

// resume handles the entries of a run until one fails.
func (l *loop) resume(ctx context.Context, key string, p *park) {
	for len(p.entries) > 0 && ctx.Err() == nil {
		e := p.entries[0]
		if p.tries >= l.c.cfg.Tries {
			if !l.bury(p, e) {
				return
			}
			l.drop(p)
			continue
		}
		if err := l.handle(ctx, e); err != nil {
			l.failedTry(p, err)
			if p.tries < l.c.cfg.Tries {
				return
			}
			continue
		}
		p.broken = false
		l.drop(p)
		if l.failed == 0 && l.full() {
			l.commit(ctx, l.press())
		}
	}
	if len(p.entries) == 0 {
		delete(l.parked, key)
	}
}

// bury makes a dead letter of a run's first entry. Where that is not possible, it waits.
func (l *loop) bury(p *park, e *Entry) bool {
	if now().Before(p.next) && p.again > 0 {
		return false
	}
	d := letterOf(l.c.cfg.Name, e, p.err, p.tries, now())
	if err := l.c.letters.put(d); err != nil {
		p.again++
		p.next = now().Add(l.c.cfg.pause(p.again))
		l.c.cfg.Log.Error("dead letter not written, its run waits", "log", e.Log, "stream_seq", e.At.Seq, "error", err)
		l.c.trouble(err)
		return false
	}
	l.c.trouble(nil)
	l.c.buried()
	l.c.cfg.Log.Error("entry given up: it is a dead letter", "letter", d.ID, "log", e.Log, "stream_seq", e.At.Seq, "run", d.Run, "error", p.err)
	p.broken = true
	return true
}

// drop takes the first entry away.
func (l *loop) drop(p *park) {
	l.bytes -= p.entries[0].size()
	p.entries[0] = nil
	p.entries, p.tries, p.again = p.entries[1:], 0, 0
	l.later(l.c.cfg.Every)
}

// forget drops the waiting entries that gone says so of.
func (l *loop) forget(gone func(*Entry) bool) {
	for key, p := range l.parked {
		first := p.entries[0]
		keep := p.entries[:0:0]
		for _, e := range p.entries {
			if gone(e) {
				l.bytes -= e.size()
			} else {
				keep = append(keep, e)
			}
		}
		if p.entries = keep; len(keep) == 0 {
			delete(l.parked, key)
		} else if keep[0] != first {
			p.tries, p.again, p.next = 0, 0, now()
		}
	}
}
