package notify

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
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
	User     string `json:"user"`
	Password string `json:"password"`
	From     string `json:"from"`
	To       list   `json:"to"`

	Argv []string          `json:"argv"` // command
	Env  map[string]string `json:"env"`
}

// open makes the sink of a destination, or takes the one in use where nothing of it
// has changed.
func (n *Notifier) open(into map[string]*held, r *Rules, name string, raw json.RawMessage) error {
	sum := sha256.Sum256(raw)
	n.d.mu.Lock()
	old := n.d.sinks[name]
	n.d.mu.Unlock()
	if old != nil && old.sum == sum {
		into[name] = old
		return nil
	}
	s, err := openSink(name, raw, n.o)
	if err != nil {
		return err
	}
	into[name] = &held{Sink: s, sum: sum}
	return nil
}

func openSink(name string, raw json.RawMessage, o Options) (sink.Sink, error) {
	var s settings
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, errors.New("its settings cannot be read")
	}
	guard, err := sink.NewGuard(s.Allow, s.Proxy)
	if err != nil {
		return nil, err
	}
	timeout := time.Duration(s.Timeout)
	switch s.Type {
	case "webhook":
		return sink.NewWebhook(sink.WebhookConfig{
			Name: name, URL: s.URL, Secrets: s.Secrets, Binary: s.Mode == "binary", Headers: s.Headers, Timeout: timeout, Guard: guard,
		})
	case "command":
		var env []string
		for k, v := range s.Env {
			env = append(env, k+"="+v)
		}
		slices.Sort(env)
		return sink.NewCommand(sink.CommandConfig{Name: name, Argv: s.Argv, Env: env, Timeout: timeout, Exec: o.Exec})
	}
	return nil, fmt.Errorf("the type %s is not known", s.Type)
}

// Routes registers the request URLs of Slack destinations: POST /slack/NAME.
func (n *Notifier) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /slack/{name}", func(w http.ResponseWriter, q *http.Request) {
		n.d.mu.Lock()
		h := n.d.sinks[q.PathValue("name")]
		n.d.mu.Unlock()
		if h == nil {
			http.NotFound(w, q)
			return
		}
		s, ok := h.Sink.(http.Handler)
		if !ok {
			http.NotFound(w, q)
			return
		}
		s.ServeHTTP(w, q)
	})
}
