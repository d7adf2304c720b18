package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

func newLogin(a *app) *cobra.Command {
	var at, tokenFile string
	c := &cobra.Command{
		Use:   "login",
		Short: "Print an address that logs a browser in",
		Long: `login asks the relay for a code and prints an address with it. Who opens it within ten
minutes is logged in to the relay's page, once, with the rights of the token: this
machine's own, or the one in --token-file. The token itself is neither shown nor in any
address, command line or history.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), hubPatience)
			defer cancel()
			address, err := a.login(ctx, at, tokenFile)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.io.out, address)
			return nil
		},
	}
	c.Flags().StringVar(&at, "url", "", "the relay's address, as the browser will call it; this machine's relay without")
	c.Flags().StringVar(&tokenFile, "token-file", "", "file with the token; this machine's own without")
	return c
}

func (a *app) login(ctx context.Context, at, tokenFile string) (string, error) {
	other := ""
	if at == "" {
		if at, _ = a.relayAt(ctx); at == "" {
			return "", errors.New("no relay is known on this machine; cbcast up serves one, CBCAST_RELAY_ADDR or --url names another")
		}
		other = "; CBCAST_RELAY_ADDR or --url names another address"
	}
	u, err := url.Parse(at)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", &exitError{exitUsage, fmt.Errorf("%q is no address of a relay; want https://HOST[:PORT]", at)}
	}
	if u.Scheme == "http" && !loopbackHost(u.Hostname()) {
		return "", &exitError{exitUsage, fmt.Errorf("a token is not sent to %s without TLS", u.Host)}
	}
	if tokenFile == "" {
		tokenFile = a.tokenFile()
	}
	token, err := os.ReadFile(tokenFile)
	if err == nil {
		err = private(tokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	base := u.Scheme + "://" + u.Host
	doc, err := a.askCode(ctx, base, strings.TrimSpace(string(token)))
	if err != nil {
		return "", fmt.Errorf("log in at %s: %w%s", base, err, other)
	}
	return base + doc.Path, nil
}

// relayAt is where this machine's relay should be: at the configured address, where
// something listens there, or where the hub's owner says. sure says that one was
// recorded there; "" is that nobody can know.
func (a *app) relayAt(ctx context.Context) (at string, sure bool) {
	addr := a.relayAddr()
	configured := addr != "" && a.cfg.Relay.Addr != defaultRelayAddr
	if a.cfg.Bus.URL == "" && !(configured && listens(ctx, addr)) {
		info, err := natsd.Find(ctx, a.cfg.StateDir)
		if err == nil && info.Relay != "" {
			return info.Relay, true
		}
		if !configured {
			return "", false
		}
	}
	if addr == "" {
		return "", false
	}
	return a.relayScheme() + addr, false
}

// relayAddr is the configured address as a client calls it; "" for any port.
func (a *app) relayAddr() string {
	host, port, err := net.SplitHostPort(a.cfg.Relay.Addr)
	if err != nil || port == "0" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func listens(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func (a *app) relayScheme() string {
	if a.cfg.Relay.TLSCert != "" {
		return "https://"
	}
	return "http://"
}

func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

func (a *app) askCode(ctx context.Context, base, token string) (relay.CodeDoc, error) {
	var doc relay.CodeDoc
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/session/code", http.NoBody)
	if err != nil {
		return doc, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: a.relayTLS(), DialContext: (&net.Dialer{}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a token goes where it was told to
	}
	resp, err := c.Do(req)
	if err != nil {
		return doc, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return doc, err
	}
	if resp.StatusCode != http.StatusOK {
		var e relay.ErrorBody
		_ = json.Unmarshal(body, &e) // else it has no message
		return doc, fmt.Errorf("HTTP %d %s", resp.StatusCode, e.Message)
	}
	if err := json.Unmarshal(body, &doc); err != nil || !strings.HasPrefix(doc.Path, "/") {
		return doc, errors.New("the answer is none of a relay")
	}
	return doc, nil
}

// relayTLS also trusts the certificate that this machine's relay is configured with:
// it may be one that nobody has signed.
func (a *app) relayTLS() *tls.Config {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if pem, err := os.ReadFile(a.cfg.Relay.TLSCert); err == nil {
		roots.AppendCertsFromPEM(pem)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
