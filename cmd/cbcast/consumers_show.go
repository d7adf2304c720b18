package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/health"
)

// checkKinds says at once, for all of them, what is set so that it can never work. What
// can heal by itself (NATS, a network, a disk) is not looked at.
func (a *app) checkKinds(kinds ...consumerKind) error {
	var errs []error
	for _, k := range kinds {
		if k.check == nil {
			continue
		}
		if err := k.check(a); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// check is checkKinds for what up runs.
func (cs *consumers) check() error {
	var kinds []consumerKind
	for _, u := range cs.all {
		kinds = append(kinds, u.kind)
	}
	return cs.a.checkKinds(kinds...)
}

// names says for people which programs up runs.
func (cs *consumers) names() string {
	all := []string{"relay"}
	for _, u := range cs.all {
		all = append(all, u.kind.name)
	}
	return strings.Join(all, ", ")
}

// gather are the metrics of those that run, and that the others are not ready.
func (cs *consumers) gather() health.Gatherers {
	var all health.Gatherers
	for _, u := range cs.all {
		if c, _ := u.get(); c != nil {
			all = append(all, c.Metrics())
			continue
		}
		all = append(all, health.Of(consume.Absent(consumerPrefix+u.kind.name)))
	}
	return all
}

// consumerPrefix stands before a program's name in that of its consumer.
const consumerPrefix = "cbcast-"

// also are the handlers of the programs, for the relay's server. Each is looked up when it
// is asked: a program may be started again.
func (cs *consumers) also() map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, u := range cs.all {
		for _, pattern := range u.kind.paths {
			all[pattern] = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				c, _ := u.get()
				if c == nil { // /readyz says why
					w.Header().Set("Retry-After", "5")
					http.Error(w, u.kind.name+" does not run here now", http.StatusServiceUnavailable)
					return
				}
				mux := http.NewServeMux()
				u.kind.add(c, mux)
				mux.ServeHTTP(w, q)
			})
		}
	}
	return all
}

// ready says for each how it does, in a line.
func (cs *consumers) ready() map[string]error {
	all := map[string]error{}
	for _, u := range cs.all {
		c, err := u.get()
		if c != nil {
			err = c.Ready()
		}
		all[u.kind.name] = brief(err)
	}
	return all
}

// dirUsed says who has a program's directory, and what to do about that.
func dirUsed(name string, err error) error {
	if !errors.Is(err, consume.ErrDirUsed) && !errors.Is(err, notify.ErrBusy) {
		return err
	}
	who := "another process of this machine, most likely cbcast up,"
	var used *consume.DirUsedError
	if errors.As(err, &used) && used.PID > 0 {
		who = fmt.Sprintf("process %d", used.PID)
		if c := commandOf(used.PID); c != "" {
			who += " (" + c + ")"
		}
	}
	return fmt.Errorf("%s runs %s already: %w; leave it to that one (cbcast up runs %[2]s as a part and shows it at the relay's /metrics and /readyz), "+
		"or start cbcast up with a CBCAST_UP_WITH that does not name it, or set another CBCAST_STATE_DIR here", who, name, err)
}

// commandOf is the command of a process of cbcast, "" where the system does not tell.
func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	args := strings.Split(string(b), "\x00")
	if len(args) < 2 || args[1] == "" || strings.HasPrefix(args[1], "-") {
		return ""
	}
	return "cbcast " + printable(args[1])
}

// maxBrief is the longest reason that stands in a line, in bytes.
const maxBrief = 300

// A briefError is the first line of another one.
type briefError struct{ err error }

func brief(err error) error {
	if err == nil {
		return nil
	}
	return &briefError{err}
}

func (e *briefError) Unwrap() error { return e.err }

func (e *briefError) Error() string {
	text, more, _ := strings.Cut(strings.TrimSpace(e.err.Error()), "\n")
	if len(text) > maxBrief {
		cut := maxBrief
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		return text[:cut] + "…"
	}
	if more = strings.TrimSpace(more); more != "" {
		text += fmt.Sprintf(" (and %d more)", strings.Count(more, "\n")+1)
	}
	return text
}
