// Package slackdouble is a Slack for tests: an HTTP server that keeps to what Slack
// documents of its Web API, incoming webhooks, modals, interactivity and Socket Mode
// (limits, errors, rate limits, signatures), and remembers what it was told. It is
// stricter than Slack where Slack is vague: characters count in UTF-16 units, and a
// message has at most 13 000 of them in its blocks.
package slackdouble

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// A Server is one workspace with one app in it.
type Server struct {
	Token, AppToken, SigningSecret string
	Team, Bot                      string
	// RequestURL is where clicks are sent where no client has Socket Mode.
	RequestURL string
	// Rate and Burst are of the messages in one channel: 1 a second, and 3 at once.
	Rate  time.Duration
	Burst int
	// TriggerAge is how long a trigger opens a modal: 3 s, as Slack has it.
	TriggerAge time.Duration

	t   testing.TB
	web *httptest.Server

	mu         sync.Mutex // guards the rest
	changed    *sync.Cond
	channels   map[string]string // id or name → id
	messages   []*Message
	ephemerals []Ephemeral
	views      []*View
	calls      []Call
	scripts    map[string][]Reply
	buckets    map[string]*bucket
	triggers   map[string]time.Time
	count      int
	incoming   string
	sockets    []*socket
	closed     bool
}

// A Message is what stands in a channel.
type Message struct {
	Channel, TS, Thread string
	Text                string
	Blocks              []json.RawMessage
	Metadata            json.RawMessage
	Updates             int       // how often it was changed
	Before              []string  // its texts before each change
	At                  time.Time // of its arrival
}

// An Ephemeral is a message that one user sees.
type Ephemeral struct{ Channel, User, Thread, Text string }

// A Call is one request of the app.
type Call struct {
	Method string
	Form   url.Values
	At     time.Time
	Error  string // that it was answered with
}

// A Reply is what a call is answered with instead. The zero one is the answer as
// ever.
type Reply struct {
	Status  int // 0 is 200
	Header  map[string]string
	Body    string
	Delay   time.Duration // before the answer
	Accept  bool          // do it all the same
	Reset   bool          // close the connection instead of an answer
	Default bool          // answer as ever, after Delay
}

// New starts a workspace with the channel C0CI ("#ci"). It ends with the test.
func New(t testing.TB) *Server {
	s := &Server{
		Token: "xoxb-test-token-0001", AppToken: "xapp-test-token-0001", SigningSecret: "8f742231b10e8888abcd99yyyzzz85a5",
		Team: "T0TEAM", Bot: "U0BOT", Rate: time.Second, Burst: 3, TriggerAge: 3 * time.Second, t: t,
		channels: map[string]string{}, scripts: map[string][]Reply{}, buckets: map[string]*bucket{}, triggers: map[string]time.Time{},
		incoming: "/services/T0TEAM/B0HOOK/SECRETPART",
	}
	s.changed = sync.NewCond(&s.mu)
	s.AddChannel("C0CI", "#ci")
	mux := http.NewServeMux()
	mux.HandleFunc("/api/", s.api)
	mux.HandleFunc("/socket", s.socket)
	mux.HandleFunc("POST "+s.incoming, s.hook)
	mux.HandleFunc("POST /response/{id}", s.response)
	s.web = httptest.NewServer(mux)
	t.Cleanup(s.close)
	return s
}

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.sockets {
		_ = c.conn.Close()
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	s.web.CloseClientConnections()
	s.web.Close()
}

// API is the address of the Web API.
func (s *Server) API() string { return s.web.URL + "/api/" }

// IncomingURL is the address of an incoming webhook into C0CI.
func (s *Server) IncomingURL() string { return s.web.URL + s.incoming }

// AddChannel makes a channel that the app is in.
func (s *Server) AddChannel(id string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range append(names, id) {
		s.channels[n] = id
	}
}

// Script answers the next calls of a method ("chat.postMessage"; "incoming" is the
// incoming webhook) with these, in turn.
func (s *Server) Script(method string, replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[method] = append(s.scripts[method], replies...)
}

// Messages are those of a channel, without replies in threads, the oldest first.
func (s *Server) Messages(channel string) []Message { return s.list(channel, "") }

// Thread are the replies to a message.
func (s *Server) Thread(channel, ts string) []Message { return s.list(channel, ts) }

func (s *Server) list(channel, thread string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Message
	for _, m := range s.messages {
		if m.Channel == channel && m.Thread == thread {
			out = append(out, *m)
		}
	}
	return out
}

// Ephemerals are what single users were told.
func (s *Server) Ephemerals() []Ephemeral {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Ephemeral{}, s.ephemerals...)
}

// Calls are those of one method, or all with "".
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

// Delete takes a message away, as a person does.
func (s *Server) Delete(channel, ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.messages {
		if m.Channel == channel && m.TS == ts {
			s.messages = append(s.messages[:i:i], s.messages[i+1:]...)
			return
		}
	}
}

// Forget takes everything away that was said and asked for.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages, s.ephemerals, s.views, s.calls = nil, nil, nil, nil
}

// Wait blocks until ok holds, which is asked after each change. It fails the test
// after two minutes.
func (s *Server) Wait(what string, ok func() bool) {
	s.t.Helper()
	late := time.AfterFunc(2*time.Minute, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer late.Stop()
	end := time.Now().Add(2 * time.Minute)
	for {
		s.mu.Lock()
		seen := s.count
		s.mu.Unlock()
		if ok() {
			return
		}
		s.mu.Lock()
		for s.count == seen && time.Now().Before(end) && !s.closed {
			s.changed.Wait()
		}
		over := s.closed || !time.Now().Before(end)
		s.mu.Unlock()
		if over {
			s.t.Fatalf("slack: never: %s", what)
		}
	}
}

// note counts a change. It is called with mu held.
func (s *Server) note() {
	s.count++
	s.changed.Broadcast()
}

// A bucket is a rate limit.
type bucket struct {
	tokens float64
	at     time.Time
}

// limited reports whether a channel has too many messages now, with mu held.
func (s *Server) limited(channel string) bool {
	now := time.Now()
	b := s.buckets[channel]
	if b == nil {
		b = &bucket{float64(s.Burst), now}
		s.buckets[channel] = b
	}
	b.tokens = min(float64(s.Burst), b.tokens+now.Sub(b.at).Seconds()/s.Rate.Seconds())
	b.at = now
	if b.tokens < 1 {
		return true
	}
	b.tokens--
	return false
}

// ts makes the timestamp that names a message, with mu held.
func (s *Server) ts() string {
	s.note()
	return fmt.Sprintf("%d.%06d", time.Now().Unix(), s.count)
}

// Specials are the parts in angle brackets that Slack would make something of: links,
// mentions, commands. All texts that Slack parses are looked through.
func (m *Message) Specials() []string {
	out := specials(m.Text)
	for _, b := range m.Blocks {
		var v any
		if json.Unmarshal(b, &v) == nil {
			walk(v, func(key, text string) {
				if key == "text" || key == "alt_text" || key == "title" {
					out = append(out, specials(text)...)
				}
			})
		}
	}
	return out
}

func specials(text string) (out []string) {
	for {
		i := strings.IndexByte(text, '<')
		if i < 0 {
			return out
		}
		j := strings.IndexByte(text[i:], '>')
		if j < 0 {
			return append(out, text[i:])
		}
		out, text = append(out, text[i:i+j+1]), text[i+j+1:]
	}
}

// Texts are all texts of a message's blocks, as a person reads them.
func (m *Message) Texts() []string {
	var out []string
	for _, b := range m.Blocks {
		var v any
		if json.Unmarshal(b, &v) == nil {
			walk(v, func(key, text string) {
				if key == "text" {
					out = append(out, Unescape(text))
				}
			})
		}
	}
	return out
}

// Unescape is a text as it is shown.
func Unescape(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

// walk calls f for every text in a value, with the key it stands under.
func walk(v any, f func(key, text string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if t, ok := e.(string); ok {
				f(k, t)
			} else {
				walk(e, f)
			}
		}
	case []any:
		for _, e := range v {
			walk(e, f)
		}
	}
}

// A socket is one client of Socket Mode.
type socket struct {
	mu   sync.Mutex // guards writes
	conn *websocket.Conn
	acks map[string]chan json.RawMessage // guarded by the server's mu
}
