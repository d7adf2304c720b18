package sink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

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

func (m *Mail) dial(life context.Context) gomail.DialContextFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := cmp.Or(m.cfg.Guard, &Guard{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(life, func() { _ = conn.Close() })
		if m.cfg.TLS != MailTLS {
			return conn, nil
		}
		t := tls.Client(conn, &tls.Config{ServerName: m.cfg.Host, RootCAs: m.cfg.RootCAs, MinVersion: tls.VersionTLS12})
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return t, nil
	}
}

func said(err error) *textproto.Error {
	var e *textproto.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

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
		text := m.quiet.Clean(e.Error())
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
	return fmt.Sprintf("%d %q", e.Code, short(m.quiet.Clean(e.Msg), maxQuoted))
}
