package sink

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

const (
	// mailTimeout is how long a server may take for one step.
	mailTimeout = 20 * time.Second

	// maxSubject bounds a subject, in characters.
	maxSubject = 150

	// maxMailText bounds each text of the child in a mail, in characters.
	maxMailText = 12_000

	// maxRecipients bounds who one mail goes to.
	maxRecipients = 100
)

// How a connection to a mail server is encrypted.
const (
	MailStartTLS      = "starttls" // must be offered
	MailTLS           = "tls"      // from the first byte on
	MailOpportunistic = "opportunistic"
	MailPlain         = "none"
)

// MailConfig is a mail server and who is written to.
type MailConfig struct {
	Name           string
	Host           string
	Port           int    // 0 is 587, with MailTLS 465, with MailPlain 25
	TLS            string // "" is MailStartTLS
	User, Password string // "" is no log-in
	From           string
	To             []string
	RootCAs        *x509.CertPool // nil is the system's
	Timeout        time.Duration  // of one step; 0 is 20 s
	Guard          *Guard         // nil allows public addresses only
}

// Mail writes each notice as a mail. Those of one run refer to its first one, so that
// readers show them as one conversation. The same notice has the same Message-ID.
type Mail struct {
	cfg   MailConfig
	from  *mail.Address
	to    []*mail.Address
	quiet *Hidden
}

// NewMail checks the configuration.
func NewMail(cfg MailConfig) (*Mail, error) {
	var bad settingErrors
	cfg.TLS = cmp.Or(cfg.TLS, MailStartTLS)
	if cfg.Host == "" || strings.ContainsFunc(cfg.Host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("/:@\x7f", r) }) && net.ParseIP(cfg.Host) == nil {
		bad.add("host", fmt.Errorf("host is %q: it must be the name of a mail server, and nothing else (its port stands in port)", short(cfg.Host, 60)))
	}
	if !slices.Contains([]string{MailStartTLS, MailTLS, MailOpportunistic, MailPlain}, cfg.TLS) {
		bad.say("tls", "tls must be starttls, tls, opportunistic or none")
	}
	if cfg.TLS == MailPlain && cfg.Password != "" {
		bad.say("password", "a password is not sent without TLS: tls must be starttls or tls")
	}
	if cfg.Password != "" && cfg.User == "" {
		bad.say("password", "a password is for a user: add user")
	}
	if cfg.Port == 0 {
		cfg.Port = map[string]int{MailStartTLS: 587, MailOpportunistic: 587, MailTLS: 465, MailPlain: 25}[cfg.TLS]
	}
	m := &Mail{cfg: cfg, quiet: HideLogin(cfg.User, cfg.Password).And(cfg.Guard.hidden())}
	from, err := parseAddresses([]string{cfg.From})
	switch {
	case err != nil:
		bad.add("from", fmt.Errorf("from: %w", err))
	case len(from) != 1:
		bad.add("from", fmt.Errorf("from has %d addresses: it must be one", len(from)))
	default:
		m.from = from[0]
	}
	for n, to := range cfg.To {
		if _, err := parseAddresses([]string{to}); err != nil {
			bad.add(fmt.Sprintf("to/%d", n), fmt.Errorf("to: %w", err))
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	if m.to, err = parseAddresses(cfg.To); err != nil { // too many of them
		return nil, &SettingError{"to", fmt.Errorf("to: %w", err)}
	}
	return m, nil
}

// CheckAddresses says what is wrong with addresses of mail, commas between them.
func CheckAddresses(s string) error {
	list, err := parseAddresses([]string{s})
	if err == nil && len(list) == 0 {
		err = errors.New("it names nobody")
	}
	return err
}

// parseAddresses reads addresses, several in one text or one each. A line break in one
// is no part of any.
func parseAddresses(list []string) ([]*mail.Address, error) {
	var out []*mail.Address
	for _, s := range list {
		if strings.TrimSpace(s) == "" {
			continue
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("%q is no address: it has a line break, or another character that is not seen", short(s, 60))
		}
		some, err := mail.ParseAddressList(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no address: write a@example.com, or Name <a@example.com> with a name that has more than "+
				"letters, digits and spaces in double quotes", short(s, 60))
		}
		for _, a := range some {
			if strings.ContainsFunc(a.Name+a.Address, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return nil, fmt.Errorf("%q is no address: it has a character that is not seen", short(s, 60))
			}
		}
		out = append(out, some...)
	}
	if len(out) > maxRecipients {
		return nil, fmt.Errorf("%d addresses; at most %d are written to", len(out), maxRecipients)
	}
	return out, nil
}

// Name implements [Sink].
func (m *Mail) Name() string { return m.cfg.Name }

// Capabilities implements [Sink]. A mail that comes twice has one Message-ID, by which
// servers and readers know it.
func (m *Mail) Capabilities() Capabilities { return Capabilities{Threads: true, Idempotent: true} }

// Lane implements [Sink].
func (m *Mail) Lane(*Notice) string { return "" }

// Close implements [Sink].
func (m *Mail) Close() error { return nil }

// Send implements [Sink].
func (m *Mail) Send(ctx context.Context, n *Notice) Outcome {
	to := m.to
	if n.To != "" {
		var err error
		if to, err = parseAddresses([]string{n.To}); err != nil {
			return Outcome{Verdict: Refused, Permanent: true, Err: fmt.Errorf("the rule's addresses: %w", err)}
		}
	}
	if len(to) == 0 {
		return Outcome{Verdict: Refused, Permanent: true, Err: errors.New("neither the rule nor the destination names anybody")}
	}
	msg, id := m.message(n, to)
	ref := &Ref{Message: id}
	if n.Updates != nil && n.Updates.Message != "" {
		ref.Message = n.Updates.Message
	}
	o := m.deliver(ctx, msg)
	if o.Verdict == Delivered && n.Run != "" {
		o.Ref = ref
	}
	return o
}

// messageID is that of a notice to these people.
func (m *Mail) messageID(n *Notice, to []*mail.Address) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s", m.cfg.Name, n.ID)
	for _, a := range to {
		fmt.Fprintf(h, "\x00%s", a.Address)
	}
	_, domain, _ := strings.Cut(m.from.Address, "@")
	return hex.EncodeToString(h.Sum(nil)[:20]) + "@" + cmp.Or(domain, "cbcast.invalid")
}

// message is the mail. Texts of others are in its subject, encoded, and in its body.
func (m *Mail) message(n *Notice, to []*mail.Address) (*gomail.Msg, string) {
	msg := gomail.NewMsg(gomail.WithCharset(gomail.CharsetUTF8), gomail.WithEncoding(gomail.EncodingQP), gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(m.from)
	msg.ToMailAddress(to...)
	b := briefOf(n)
	subject, _ := cutText("[cbcast] "+b.title(), budget{units: maxSubject}, plain)
	msg.Subject(subject)
	id := m.messageID(n, to)
	msg.SetMessageIDWithValue(id)
	date := n.At
	if date.IsZero() {
		date = time.Now()
	}
	msg.SetDateWithValue(date)
	if n.Updates != nil && n.Updates.Message != "" && n.Updates.Message != id && validMessageID(n.Updates.Message) {
		msg.SetGenHeader("In-Reply-To", "<"+n.Updates.Message+">")
		msg.SetGenHeader("References", "<"+n.Updates.Message+">")
	}
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(gomail.TypeTextPlain, mailText(n, &b))
	return msg, id
}

// validMessageID reports whether an id of the log of what was told is one of ours.
func validMessageID(id string) bool {
	return len(id) < 400 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' })
}

// mailText is the body.
func mailText(n *Notice, b *brief) string {
	var t strings.Builder
	line := func(s string) { t.WriteString(s + "\n") }
	line(short(b.title(), 1000))
	if n.Mention != "" && calls(n) {
		line("For: " + short(n.Mention, 500))
	}
	line("")
	for _, f := range b.facts {
		line(f.label + ": " + f.value)
	}
	if n.Run != "" {
		line("Run: " + oneLine(n.Run))
	}
	for _, l := range [...][2]string{{"Page", n.Links.Run}, {"CI job", n.Links.CI}} {
		if link := safeLink(l[1]); link != "" {
			line(l[0] + ": " + link)
		}
	}
	bounded := func(s string, more bool) {
		text, left := cutText(s, budget{units: maxMailText}, plain)
		line(text)
		switch {
		case left > 0:
			line(fmt.Sprintf("[%s; the run's page has all of it]", counted(left, "more character")))
		case more:
			line("[there is more; the run's page has all of it]")
		}
	}
	for i := range n.Asks[:min(len(n.Asks), 10)] {
		a := &n.Asks[i]
		line("\n" + askTitle(a))
		bounded(asked(a), a.Form != nil && a.Form.InputLeftOut)
	}
	if more := len(n.Asks) - 10; more > 0 {
		line("\nand " + counted(more, "more ask"))
	}
	if b.text != "" {
		line("")
		bounded(b.text, b.textLeft)
	}
	for i, l := range n.Digest {
		if i == 200 {
			line(fmt.Sprintf("and %d more", len(n.Digest)-i))
			break
		}
		text := strings.TrimSpace(cmp.Or(oneLine(l.Verdict), string(l.Kind)) + "  " + shortRun(oneLine(l.Run)) + "  " + short(l.Text, 200))
		if l.Count > 1 {
			text += fmt.Sprintf(" (%d times)", l.Count)
		}
		line(text)
		if link := safeLink(l.Link); link != "" {
			line("  " + link)
		}
	}
	return t.String()
}

// deliver speaks to the server once.
// dial connects as the guard allows; with MailTLS it is TLS from the start. The
// connection ends with ctx.
// said is the server's answer in an error, nil where it gave none.
// notDialled is the outcome where no mail was begun.
// notSent is the outcome where the server did not take the mail, or did not say so.
