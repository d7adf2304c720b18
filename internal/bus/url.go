package bus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// schemes are those that a server's URL may have; without one it is nats.
var schemes = []string{"nats", "tls", "ws", "wss"}

// Check says what of the configuration can never work. It asks no server and reads no
// file, names the variable, and has no password in its text.
func (c Config) Check() error {
	var errs []error
	web, plain := false, false
	for one := range strings.SplitSeq(c.URL, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue // as the client library does
		}
		scheme, err := checkURL(one)
		if err != nil {
			errs = append(errs, fmt.Errorf("CBCAST_NATS_URL: %w", err))
			continue
		}
		isWeb := strings.HasPrefix(scheme, "ws")
		web, plain = web || isWeb, plain || !isWeb
	}
	if web && plain {
		errs = append(errs, errors.New("CBCAST_NATS_URL: servers with ws:// or wss:// and others cannot be in one list"))
	}
	if c.URL != "" && !web && !plain && errs == nil {
		errs = append(errs, fmt.Errorf("CBCAST_NATS_URL: %q names no server; write nats://HOST:4222, or leave the variable out", c.URL))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		errs = append(errs, errors.New("CBCAST_NATS_TLS_CERT and CBCAST_NATS_TLS_KEY: both or neither must be set"))
	}
	return errors.Join(errs...)
}

// checkURL returns the scheme of one server's URL.
func checkURL(one string) (string, error) {
	full := one
	if !strings.Contains(full, "://") {
		full = "nats://" + full
	}
	u, err := url.Parse(full)
	if err != nil {
		return "", whyNoURL(full)
	}
	shown := RedactURL(one)
	instead := func() string { // what was meant, as far as one can guess
		host := u.Hostname()
		if host == "" {
			host = "HOST"
		}
		return "nats://" + net.JoinHostPort(host, "4222")
	}
	switch p := strings.Trim(u.Path, "/"); {
	case strings.Contains(p+u.RawQuery+u.Fragment, "@"):
		return "", errURL
	case !slices.Contains(schemes, u.Scheme):
		return "", fmt.Errorf("%s: %s:// is no scheme of a NATS server; write %s (tls:// with TLS, ws:// or wss:// for a WebSocket listener)", shown, u.Scheme, instead())
	case p != "" && (u.Scheme == "nats" || u.Scheme == "tls"):
		return "", fmt.Errorf("%s has a path; write %s://HOST:4222", shown, u.Scheme)
	case u.Hostname() == "":
		return "", fmt.Errorf("%s names no host; write %s", shown, instead())
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return "", fmt.Errorf("%s: port %s is not from 1 to 65535; NATS servers have 4222 as a rule", shown, p)
		}
	}
	return u.Scheme, nil
}

// whyNoURL is about a URL that cannot be read. Only what is behind its last "@", or all
// where there is none, is looked at and shown.
func whyNoURL(full string) error {
	if strings.Contains(full, "@") {
		return errURL
	}
	_, host, _ := strings.Cut(full, "://")
	if _, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.Atoi(port); err != nil {
			return fmt.Errorf("%q: port %q is no number; NATS servers have 4222 as a rule", full, port)
		}
	}
	return fmt.Errorf("%q cannot be read as a URL; write nats://HOST:4222", full)
}

// tries are the addresses that one attempt to connect failed at, and why.
type tries struct {
	mu  sync.Mutex // guards why
	why []string
}

// maxTries is how many of them are told.
const maxTries = 6

func (t *tries) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why = nil
}

func (t *tries) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := err.Error(); !slices.Contains(t.why, s) && len(t.why) < maxTries {
		t.why = append(t.why, s)
	}
}

// explain is err with what a person needs to know: the addresses that were tried, since the
// client library names none when all refuse, and only what the last one says when there
// are several; and what may be the matter.
func (t *tries) explain(err error) error {
	if err == nil {
		return nil
	}
	t.mu.Lock()
	why := slices.Sorted(slices.Values(t.why)) // the library asks in any order
	t.mu.Unlock()
	switch {
	case len(why) > 0 && errors.Is(err, nats.ErrNoServers):
		return errors.New(strings.Join(why, "; "))
	case slices.Contains(why, err.Error()): // of the way there
	case errors.Is(err, nats.ErrNoInfoReceived), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
		err = fmt.Errorf("%w (what listens there does not speak NATS as it should: is this its port for clients, 4222 as a rule, and is CBCAST_NATS_TLS_FIRST right?)", err)
	case errors.Is(err, nats.ErrAuthorization):
		err = fmt.Errorf("%w (the server does not take the credentials: CBCAST_NATS_CREDS, _NKEY, _TOKEN, or _USER and _PASSWORD)", err)
	}
	return fmt.Errorf("%w%s", err, others(why, err.Error()))
}

// others are the reasons but one, each behind a semicolon.
func others(why []string, but string) string {
	var s strings.Builder
	for _, w := range why {
		if w != but {
			s.WriteString("; " + w)
		}
	}
	return s.String()
}
