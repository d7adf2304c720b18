package slackdouble

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// A View is a modal.
type View struct {
	ID, Hash, CallbackID, PrivateMetadata string
	Title                                 string
	Submit                                bool
	Blocks                                []json.RawMessage
	Updates                               int
}

// A Button is something to click in a message or a modal.
type Button struct{ Action, Value, Text, Block string }

// Buttons are those of blocks.
func Buttons(blocks []json.RawMessage) []Button {
	var out []Button
	for _, raw := range blocks {
		var b struct {
			BlockID  string `json:"block_id"`
			Elements []struct {
				Type     string `json:"type"`
				ActionID string `json:"action_id"`
				Value    string `json:"value"`
				Text     any    `json:"text"`
			} `json:"elements"`
		}
		_ = json.Unmarshal(raw, &b) // others have no such elements
		for _, e := range b.Elements {
			if e.Type == "button" {
				text, _ := e.Text.(map[string]any)
				s, _ := text["text"].(string)
				out = append(out, Button{e.ActionID, e.Value, s, b.BlockID})
			}
		}
	}
	return out
}

// A Click is what somebody does. Message or View is where.
type Click struct {
	User, Team    string // "" is the workspace's own
	Action, Value string
	Message       *Message
	View          *View
	// Submit sends the view's form with Values by block and action.
	Submit bool
	Values map[string]map[string]any
	// Age is how old the signature is. Secret signs instead of the app's. Header are
	// further ones. Payload is sent as it is.
	Age     time.Duration
	Secret  string
	Header  map[string]string
	Payload []byte
}

// An Ack is the app's answer to a click.
type Ack struct {
	Status int
	Body   string
	Took   time.Duration
}

// Payload is what Slack sends for a click.
func (s *Server) Payload(c Click) []byte {
	if c.Payload != nil {
		return c.Payload
	}
	team := c.Team
	if team == "" {
		team = s.Team
	}
	s.mu.Lock()
	s.count++
	trigger := fmt.Sprintf("trigger.%d", s.count)
	s.triggers[trigger] = time.Now()
	s.mu.Unlock()
	p := map[string]any{
		"type": "block_actions", "team": map[string]any{"id": team}, "api_app_id": "A0APP", "trigger_id": trigger,
		"user": map[string]any{"id": c.User, "team_id": team, "username": "someone"},
	}
	if c.Action != "" {
		p["actions"] = []any{map[string]any{
			"type": "button", "action_id": c.Action, "block_id": "b", "value": c.Value, "action_ts": fmt.Sprint(time.Now().Unix()),
		}}
	}
	if m := c.Message; m != nil {
		p["channel"] = map[string]any{"id": m.Channel, "name": "ci"}
		p["container"] = map[string]any{"type": "message", "message_ts": m.TS, "channel_id": m.Channel}
		p["message"] = map[string]any{"ts": m.TS, "text": m.Text, "blocks": m.Blocks}
		p["response_url"] = s.web.URL + "/response/" + m.Channel + "-" + c.User
	}
	if v := c.View; v != nil {
		if c.Submit {
			p["type"] = "view_submission"
		}
		p["view"] = map[string]any{
			"id": v.ID, "hash": v.Hash, "type": "modal", "callback_id": v.CallbackID, "private_metadata": v.PrivateMetadata,
			"state": map[string]any{"values": c.Values}, "blocks": v.Blocks,
		}
		p["container"] = map[string]any{"type": "view", "view_id": v.ID}
	}
	b, err := json.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// Click does it: by Socket Mode where a client has it, else at the request URL. The
// app has three seconds to answer.
func (s *Server) Click(ctx context.Context, c Click) Ack {
	s.t.Helper()
	payload := s.Payload(c)
	began := time.Now()
	s.mu.Lock()
	var to *socket
	if len(s.sockets) > 0 {
		to = s.sockets[len(s.sockets)-1]
	}
	s.mu.Unlock()
	if to != nil && c.Secret == "" && c.Age == 0 {
		return s.deliver(ctx, to, payload, began)
	}
	body := []byte(url.Values{"payload": {string(payload)}}.Encode())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.RequestURL, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	at := time.Now().Add(-c.Age)
	secret := s.SigningSecret
	if c.Secret != "" {
		secret = c.Secret
	}
	q.Header.Set("X-Slack-Request-Timestamp", strconv.FormatInt(at.Unix(), 10))
	q.Header.Set("X-Slack-Signature", Sign(secret, at, body))
	for k, v := range c.Header {
		q.Header.Set(k, v)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return Ack{r.StatusCode, string(answer), time.Since(began)}
}

// Sign makes the signature of a request, version v0.
func Sign(secret string, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "v0:%d:%s", at.Unix(), body)
	return "v0=" + hex.EncodeToString(h.Sum(nil))
}

// Views are all modals that were opened, as they are now.
func (s *Server) Views() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []View
	for _, v := range s.views {
		out = append(out, *v)
	}
	return out
}

// view opens or changes a modal, with mu held.
func (s *Server) view(method string, form url.Values) map[string]any {
	raw, blocks, why := checkView(json.RawMessage(form.Get("view")))
	if why != "" {
		a := no("invalid_arguments")
		a["response_metadata"] = map[string]any{"messages": []string{why}}
		return a
	}
	var v *View
	if method == "views.open" {
		at, ok := s.triggers[form.Get("trigger_id")]
		delete(s.triggers, form.Get("trigger_id"))
		switch {
		case !ok:
			return no("invalid_trigger_id")
		case time.Since(at) > s.TriggerAge:
			return no("expired_trigger_id")
		}
		v = &View{ID: fmt.Sprintf("V%04d", len(s.views)+1)}
		s.views = append(s.views, v)
	} else {
		for _, have := range s.views {
			if have.ID == form.Get("view_id") {
				v = have
			}
		}
		switch h := form.Get("hash"); {
		case v == nil:
			return no("not_found")
		case h != "" && h != v.Hash:
			return no("hash_conflict")
		}
		v.Updates++
	}
	title, _ := raw["title"].(map[string]any)
	v.Title, _ = title["text"].(string)
	v.CallbackID, _ = raw["callback_id"].(string)
	v.PrivateMetadata, _ = raw["private_metadata"].(string)
	v.Submit, v.Blocks = raw["submit"] != nil, blocks
	s.note()
	v.Hash = fmt.Sprintf("%d.h", s.count)
	return map[string]any{"ok": true, "view": map[string]any{"id": v.ID, "hash": v.Hash, "type": "modal"}}
}

// socket takes a client of Socket Mode.
func (s *Server) socket(w http.ResponseWriter, q *http.Request) {
	if q.URL.Query().Get("ticket") != "SECRETTICKET" {
		http.Error(w, "no ticket", http.StatusForbidden)
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, q, nil)
	if err != nil {
		return
	}
	c := &socket{conn: conn, acks: map[string]chan json.RawMessage{}}
	c.write(map[string]any{"type": "hello", "num_connections": 1, "connection_info": map[string]any{"app_id": "A0APP"}})
	s.mu.Lock()
	s.sockets = append(s.sockets, c)
	s.note()
	s.mu.Unlock()
	stop := make(chan struct{})
	go func() { // ends with the connection
		t := time.NewTicker(5 * time.Second)
		defer t.Stop()
		for {
			c.mu.Lock()
			err := conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(10*time.Second))
			c.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-t.C:
			case <-stop:
				return
			}
		}
	}()
	for {
		var m struct {
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		if conn.ReadJSON(&m) != nil {
			break
		}
		s.mu.Lock()
		ack := c.acks[m.EnvelopeID]
		delete(c.acks, m.EnvelopeID)
		s.mu.Unlock()
		if ack != nil {
			ack <- m.Payload
		}
	}
	close(stop)
	_ = conn.Close()
	s.mu.Lock()
	for i, have := range s.sockets {
		if have == c {
			s.sockets = append(s.sockets[:i:i], s.sockets[i+1:]...)
			break
		}
	}
	s.note()
	s.mu.Unlock()
}

// Sockets is how many clients have Socket Mode.
func (s *Server) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// DropSockets closes all connections of Socket Mode. From then on none of them is used:
// who waits for a connection waits for another one.
func (s *Server) DropSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sockets {
		_ = c.conn.Close()
	}
	s.sockets = nil
	s.note()
}

func (c *socket) write(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.WriteJSON(v) // the reader notices
}

// deliver sends an envelope and waits for its acknowledgement.
func (s *Server) deliver(ctx context.Context, c *socket, payload []byte, began time.Time) Ack {
	ack := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.count++
	id := fmt.Sprintf("envelope-%d", s.count)
	c.acks[id] = ack
	s.mu.Unlock()
	c.write(map[string]any{"type": "interactive", "envelope_id": id, "accepts_response_payload": true, "payload": json.RawMessage(payload)})
	select {
	case p := <-ack:
		return Ack{http.StatusOK, string(p), time.Since(began)}
	case <-ctx.Done():
		return Ack{}
	}
}
