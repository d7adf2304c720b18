package sink

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/textproto"
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
	quiet *secrets
}

// NewMail checks the configuration.
func NewMail(cfg MailConfig) (*Mail, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("mail %s: %w", cfg.Name, fmt.Errorf(format, args...))
	}
	cfg.TLS = cmp.Or(cfg.TLS, MailStartTLS)
	switch {
	case cfg.Host == "" || strings.ContainsAny(cfg.Host, " /:\r\n") && net.ParseIP(cfg.Host) == nil:
		return nil, bad("host must be the name of a mail server")
	case !slices.Contains([]string{MailStartTLS, MailTLS, MailOpportunistic, MailPlain}, cfg.TLS):
		return nil, bad("tls must be starttls, tls, opportunistic or none")
	case cfg.TLS == MailPlain && cfg.Password != "":
		return nil, bad("a password is not sent without TLS")
	}
	if cfg.Port == 0 {
		cfg.Port = map[string]int{MailStartTLS: 587, MailOpportunistic: 587, MailTLS: 465, MailPlain: 25}[cfg.TLS]
	}
	m := &Mail{cfg: cfg, quiet: newSecrets(nil, cfg.Password)}
	from, err := parseAddresses([]string{cfg.From})
	if err != nil || len(from) != 1 {
		return nil, bad("from must be one address")
	}
	m.from = from[0]
	if m.to, err = parseAddresses(cfg.To); err != nil {
		return nil, bad("to: %w", err)
	}
	return m, nil
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
			return nil, fmt.Errorf("%q is no address", short(s, 60))
		}
		some, err := mail.ParseAddressList(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no address", short(s, 60))
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
	if n.Kind == Progress {
		return Outcome{Verdict: Delivered}
	}
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
func (m *Mail) deliver(ctx context.Context, msg *gomail.Msg) Outcome {
	timeout := cmp.Or(m.cfg.Timeout, mailTimeout)
	ctx, cancel := context.WithTimeout(ctx, 4*timeout)
	defer cancel()
	options := []gomail.Option{
		gomail.WithPort(m.cfg.Port), gomail.WithTimeout(timeout), gomail.WithHELO("cbcast.localhost"), gomail.WithoutNoop(),
		gomail.WithTLSConfig(&tls.Config{ServerName: m.cfg.Host, RootCAs: m.cfg.RootCAs, MinVersion: tls.VersionTLS12}),
		gomail.WithDialContextFunc(m.dial(ctx)),
	}
	switch m.cfg.TLS {
	case MailStartTLS:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case MailOpportunistic:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case MailTLS:
		options = append(options, gomail.WithSSL())
	case MailPlain:
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	}
	if m.cfg.User != "" {
		options = append(options, gomail.WithUsername(m.cfg.User), gomail.WithPassword(m.cfg.Password), gomail.WithOpportunisticSMTPAuth(
			gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthCramMD5))
	}
	c, err := gomail.NewClient(m.cfg.Host, options...)
	if err != nil {
		return Outcome{Verdict: Refused, Permanent: true, Err: errors.New("the mail server's settings cannot be used")}
	}
	client, err := c.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return m.notDialled(err)
	}
	err = c.SendWithSMTPClient(client, msg)
	_ = c.CloseWithSMTPClient(client) // the mail is there, or it is not
	if err == nil || msg.IsDelivered() {
		return Outcome{Verdict: Delivered}
	}
	return m.notSent(err)
}

// dial connects as the guard allows; with MailTLS it is TLS from the start. The
// connection ends with ctx.
func (m *Mail) dial(life context.Context) gomail.DialContextFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := cmp.Or(m.cfg.Guard, &Guard{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(life, func() { conn.Close() })
		if m.cfg.TLS != MailTLS {
			return conn, nil
		}
		t := tls.Client(conn, &tls.Config{ServerName: m.cfg.Host, RootCAs: m.cfg.RootCAs, MinVersion: tls.VersionTLS12})
		if err := t.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return t, nil
	}
}

// said is the server's answer in an error, nil where it gave none.
func said(err error) *textproto.Error {
	var e *textproto.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// notDialled is the outcome where no mail was begun.
func (m *Mail) notDialled(err error) Outcome {
	if e := said(err); e != nil {
		v := Refused
		if e.Code < 500 {
			v = Retry
		}
		return Outcome{Verdict: v, Err: fmt.Errorf("the mail server said %s", m.words(e))}
	}
	if errors.Is(err, ErrBlocked) {
		return Outcome{Verdict: Refused, Err: errors.New(reason(err))}
	}
	r := reason(err)
	switch text := err.Error(); {
	case r != unnamed:
	case strings.Contains(text, "STARTTLS"):
		return Outcome{Verdict: Refused, Err: errors.New("the mail server offers no STARTTLS")}
	case strings.Contains(strings.ToUpper(text), "AUTH"):
		return Outcome{Verdict: Refused, Err: errors.New("the mail server offers no way to log in that is used here")}
	}
	return Outcome{Verdict: Retry, Err: errors.New(r)}
}

// notSent is the outcome where the server did not take the mail, or did not say so.
func (m *Mail) notSent(err error) Outcome {
	var e *gomail.SendError
	if !errors.As(err, &e) {
		return Outcome{Verdict: Retry, Err: errors.New(reason(err))}
	}
	code := e.ErrorCode()
	step := map[gomail.SendErrReason]string{
		gomail.ErrSMTPMailFrom: "the sender", gomail.ErrSMTPRcptTo: "a recipient", gomail.ErrSMTPData: "the mail", gomail.ErrSMTPDataClose: "the mail",
	}[e.Reason]
	if code >= 400 && step != "" {
		text := m.quiet.clean(e.Error())
		if i := strings.Index(text, fmt.Sprint(code)); i >= 0 {
			text = text[i:]
		}
		v := Refused
		if code < 500 {
			v = Retry
		}
		return Outcome{Verdict: v, Err: fmt.Errorf("the mail server refused %s: %q", step, short(text, maxQuoted))}
	}
	if e.Reason == gomail.ErrSMTPDataClose {
		return Outcome{Verdict: Unknown, Err: errors.New("the mail server did not say whether it took the mail")}
	}
	return Outcome{Verdict: Retry, Err: errors.New("the connection to the mail server was lost before the mail was sent")}
}

func (m *Mail) words(e *textproto.Error) string {
	return fmt.Sprintf("%d %q", e.Code, short(m.quiet.clean(e.Msg), maxQuoted))
}
