package bus

import (
	"errors"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

// hidden stands for a secret.
const hidden = "xxxxx"

// RedactURL is a list of server URLs without their passwords and tokens: a name
// without a password is a token. What is no URL is shown from its host on.
func RedactURL(list string) string {
	var out []string
	for one := range strings.SplitSeq(list, ",") {
		out = append(out, redactOne(one))
	}
	return strings.Join(out, ",")
}

func redactOne(one string) string {
	at := strings.LastIndexByte(one, '@')
	if at < 0 {
		return one
	}
	full := one
	if !strings.Contains(full, "://") {
		full = "nats://" + full // as the client library reads it
	}
	scheme, _, _ := strings.Cut(full, "://")
	user := hidden
	if u, err := url.Parse(strings.TrimSpace(full)); err == nil && u.User != nil {
		if _, ok := u.User.Password(); ok {
			user = u.User.Username() + ":" + hidden
		}
	}
	return scheme + "://" + user + one[at:]
}

// errURL says no more: the text of a URL that cannot be read may have a password
// anywhere.
var errURL = errors.New("a server's URL cannot be read; a special character in its name or password is written %XX")

// withoutURL is an error of the client library without the URL that it is about.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return errURL
	}
	return err
}

func connectedTo(nc *nats.Conn) string { return RedactURL(nc.ConnectedUrl()) }
