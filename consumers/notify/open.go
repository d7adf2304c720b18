package notify

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
)

// settings are what the types of destinations need, as the rules file says it.
type settings struct {
	Type    string   `json:"type"`
	Timeout Duration `json:"timeout"`
	Allow   []string `json:"allow"`
	Proxy   string   `json:"proxy"`

	URL     string            `json:"url"` // webhook, slack_webhook
	Secrets []string          `json:"secrets"`
	Mode    string            `json:"mode"`
	Headers map[string]string `json:"headers"`

	Token         string              `json:"token"` // slack
	Channel       string              `json:"channel"`
	AppToken      string              `json:"app_token"`
	SigningSecret string              `json:"signing_secret"`
	API           string              `json:"api"`
	Users         map[string][]string `json:"users"`

	Host     string `json:"host"` // email
	Port     int    `json:"port"`
	TLS      string `json:"tls"`
	CA       string `json:"ca"`
	User     string `json:"user"`
	Password string `json:"password"`
	From     string `json:"from"`
	To       list   `json:"to"`

	Argv []string          `json:"argv"` // command
	Env  map[string]string `json:"env"`
}

// open makes the sink of a destination, or takes the one in use where nothing of it
// has changed.
func (n *Notifier) open(into map[string]*held, name string, set *settled) error {
	sum := sha256.Sum256(set.raw)
	n.d.mu.Lock()
	old := n.d.sinks[name]
	n.d.mu.Unlock()
	if old != nil && old.sum == sum && len(set.bad) == 0 {
		into[name] = old
		return nil
	}
	s, err := set.open(name, n.o)
	if err != nil {
		return err
	}
	into[name] = &held{Sink: s, sum: sum, hidden: set.hidden, stop: func() {}}
	return nil
}

func openSink(name string, raw json.RawMessage, o Options) (sink.Sink, error) {
	var s settings
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, errors.New("its settings cannot be read")
	}
	guard, badGuard := sink.NewGuard(s.Allow, s.Proxy)
	roots, badRoots := authorities(s.CA)
	opened, err := s.sink(name, guard, roots, o)
	if bad := errors.Join(badGuard, badRoots, err); bad != nil {
		if err == nil {
			bad = errors.Join(bad, opened.Close())
		}
		return nil, bad
	}
	return opened, nil
}

func (s *settings) sink(name string, guard *sink.Guard, roots *x509.CertPool, o Options) (sink.Sink, error) {
	timeout := time.Duration(s.Timeout)
	switch s.Type {
	case "webhook":
		return sink.NewWebhook(sink.WebhookConfig{
			Name: name, URL: s.URL, Secrets: s.Secrets, Binary: s.Mode == "binary", Headers: s.Headers, Timeout: timeout, Guard: guard, RootCAs: roots,
		})
	case "command":
		var env []string
		for k, v := range s.Env {
			env = append(env, k+"="+v)
		}
		slices.Sort(env)
		return sink.NewCommand(sink.CommandConfig{Name: name, Argv: s.Argv, Env: env, Timeout: timeout, Exec: o.Exec})
	case "log":
		return sink.NewLog(name, o.Log)
	case "slack":
		return sink.NewSlack(sink.SlackConfig{
			Name: name, Token: s.Token, Channel: s.Channel, AppToken: s.AppToken, SigningSecret: s.SigningSecret, Users: s.Users,
			Dir: filepath.Join(o.Dir, slackDir(name)), Actor: o.Actor, API: s.API, Timeout: timeout, Guard: guard, Log: o.Log,
		})
	case "slack_webhook":
		return sink.NewIncoming(sink.IncomingConfig{Name: name, URL: s.URL, Timeout: timeout, Guard: guard, RootCAs: roots})
	case "email":
		return sink.NewMail(sink.MailConfig{
			Name: name, Host: s.Host, Port: s.Port, TLS: s.TLS, User: s.User, Password: s.Password, From: s.From, To: s.To,
			RootCAs: roots, Timeout: timeout, Guard: guard,
		})
	}
	return nil, fmt.Errorf("the type %s is not known", s.Type) // the schema has these
}

// maxAuthorities bounds a file of certificates: the system's own has 200 kB.
const maxAuthorities = 4 << 20

// authorities reads the PEM file of a server's certificate authorities, nil for "".
func authorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	bad := func(err error) error {
		return &sink.SettingError{Key: "ca", Err: fmt.Errorf("read its authorities: %w", err)}
	}
	pem, err := durable.ReadRegular(path, maxAuthorities)
	if err != nil {
		return nil, bad(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, bad(fmt.Errorf("%s has no certificate", path))
	}
	return pool, nil
}

// Routes registers the request URLs of Slack: POST /slack for all apps, whose
// signatures tell them apart, and POST /slack/NAME for one.
func (n *Notifier) Routes(mux *http.ServeMux) {
	serve := func(w http.ResponseWriter, q *http.Request) {
		var list []*sink.Slack
		n.d.mu.Lock()
		for name, h := range n.d.sinks {
			s, ok := h.Sink.(*sink.Slack)
			if want := q.PathValue("name"); !ok || want != "" && want != name {
				continue
			}
			if _, request := s.Interactive(); request {
				list = append(list, s)
			}
		}
		n.d.mu.Unlock()
		if len(list) == 0 {
			http.NotFound(w, q)
			return
		}
		sink.SlackHandler(list...).ServeHTTP(w, q)
	}
	mux.HandleFunc("POST /slack", serve)
	mux.HandleFunc("POST /slack/{name}", serve)
}
