package bus

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// ErrDenied is returned where the server refuses by its permissions. It comes
// with [ErrUnavailable]: permissions can be changed while we are connected.
var ErrDenied = errors.New("not permitted")

// A deniedError says what is not permitted.
type deniedError struct{ what string }

func (e *deniedError) Error() string { return ErrDenied.Error() + ": " + e.what }

// Is makes it an [ErrDenied] and an [ErrUnavailable].
func (e *deniedError) Is(target error) bool { return target == ErrDenied || target == ErrUnavailable }

// maxDenials bounds the subjects that are remembered as refused.
const maxDenials = 64

// A server says what a client may not do beside the requests: whoever waits for
// an answer would wait in vain.
var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// denials is what the server has refused on this connection, by subject, and who
// waits for an answer. The zero value is ready.
type denials struct {
	prefix string // of inboxes

	mu      sync.Mutex // guards the rest
	said    map[string]error
	inbox   error // answers do not reach us
	waiting map[string]map[*context.CancelCauseFunc]bool
}

// heard takes note of what the server complains about.
func (d *denials) heard(err error) {
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return
	}
	verb, subject := "publish to", m[2]
	if strings.EqualFold(m[1], "subscription") {
		verb = "subscribe to"
	}
	var denied error = &deniedError{verb + " " + subject}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said == nil || len(d.said) >= maxDenials {
		d.said = map[string]error{}
	}
	d.said[subject] = denied
	who := d.waiting[subject]
	if strings.HasPrefix(verb, "sub") && strings.HasPrefix(subject, d.prefix+".") {
		d.inbox = fmt.Errorf("%w, where answers come to (CBCAST_NATS_INBOX_PREFIX)", denied)
		for _, w := range d.waiting {
			cancelAll(w, d.inbox)
		}
		return
	}
	cancelAll(who, denied)
}

func cancelAll(who map[*context.CancelCauseFunc]bool, cause error) {
	for c := range who {
		(*c)(cause)
	}
}

// of is what was said about a subject, nil for nothing.
func (d *denials) of(subject string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.said[subject]; err != nil {
		return err
	}
	return d.inbox
}

func (d *denials) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said, d.inbox = nil, nil
}

// watch returns a context that ends when the server refuses subject, and a
// function that ends it otherwise.
func (d *denials) watch(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inbox != nil {
		cancel(d.inbox)
	}
	delete(d.said, subject) // it is tried again
	if d.waiting == nil {
		d.waiting = map[string]map[*context.CancelCauseFunc]bool{}
	}
	if d.waiting[subject] == nil {
		d.waiting[subject] = map[*context.CancelCauseFunc]bool{}
	}
	d.waiting[subject][&cancel] = true
	return ctx, func() {
		cancel(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting[subject], &cancel)
		if len(d.waiting[subject]) == 0 {
			delete(d.waiting, subject)
		}
	}
}
