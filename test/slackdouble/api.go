package slackdouble

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// api answers one call of the Web API.
func (s *Server) api(w http.ResponseWriter, q *http.Request) {
	method := strings.TrimPrefix(q.URL.Path, "/api/")
	form, token, err := read(q)
	if err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	reply := s.scripted(method)
	var answer map[string]any
	status, header := http.StatusOK, map[string]string{}
	if reply == nil || reply.Accept || reply.Default {
		answer, status, header = s.do(method, token, form)
	}
	code, _ := answer["error"].(string)
	s.mu.Lock()
	form.Del("token")
	s.calls = append(s.calls, Call{method, form, time.Now(), code})
	s.note()
	s.mu.Unlock()
	s.reply(w, q, reply, func() {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// read is a call's arguments, a form or JSON, and its token.
func read(q *http.Request) (form url.Values, token string, err error) {
	body, err := io.ReadAll(io.LimitReader(q.Body, 4<<20))
	if err != nil {
		return nil, "", err
	}
	token = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(q.Header.Get("Content-Type"), "application/json") {
		form = url.Values{}
		var m map[string]json.RawMessage
		if len(body) > 0 && json.Unmarshal(body, &m) != nil {
			return nil, "", fmt.Errorf("no JSON")
		}
		for k, v := range m {
			var text string
			if json.Unmarshal(v, &text) != nil {
				text = string(v)
			}
			form.Set(k, text)
		}
		return form, token, nil
	}
	if form, err = url.ParseQuery(string(body)); err != nil {
		return nil, "", err
	}
	for k, v := range q.URL.Query() {
		form[k] = append(form[k], v...)
	}
	return form, cmp.Or(form.Get("token"), token), nil
}

// scripted takes the next reply that a test has asked for.
func (s *Server) scripted(method string) *Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.scripts[method]
	if len(list) == 0 {
		return nil
	}
	s.scripts[method] = list[1:]
	return &list[0]
}

// reply sends what was scripted, or the answer.
func (s *Server) reply(w http.ResponseWriter, q *http.Request, r *Reply, answer func()) {
	if r == nil {
		answer()
		return
	}
	if r.Delay > 0 {
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-q.Context().Done():
			return
		}
	}
	if r.Reset {
		panic(http.ErrAbortHandler)
	}
	if r.Default {
		answer()
		return
	}
	for k, v := range r.Header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(cmp.Or(r.Status, http.StatusOK))
	_, _ = io.WriteString(w, r.Body)
}

func no(code string) map[string]any { return map[string]any{"ok": false, "error": code} }

// do carries out a call.
func (s *Server) do(method, token string, form url.Values) (answer map[string]any, status int, header map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status = http.StatusOK
	want := s.Token
	if method == "apps.connections.open" {
		want = s.AppToken
	}
	switch {
	case token == "":
		return no("not_authed"), status, nil
	case token != want:
		return no("invalid_auth"), status, nil
	}
	switch method {
	case "auth.test":
		return map[string]any{"ok": true, "team_id": s.Team, "team": "test", "user_id": s.Bot, "user": "cbcast", "bot_id": "B0BOT", "url": "https://test.slack.com/"}, status, nil
	case "chat.postMessage", "chat.update", "chat.postEphemeral":
		id := s.channels[form.Get("channel")]
		if id == "" {
			return no("channel_not_found"), status, nil
		}
		if s.limited(method + id) {
			return no("ratelimited"), http.StatusTooManyRequests, map[string]string{"Retry-After": "1"}
		}
		return s.chat(method, id, form), status, nil
	case "conversations.history", "conversations.replies":
		return s.history(method, form), status, nil
	case "views.open", "views.update":
		return s.view(method, form), status, nil
	case "apps.connections.open":
		return map[string]any{"ok": true, "url": "ws" + strings.TrimPrefix(s.web.URL, "http") + "/socket?ticket=SECRETTICKET"}, status, nil
	}
	return no("unknown_method"), status, nil
}

// chat posts or changes a message, with mu held.
func (s *Server) chat(method, channel string, form url.Values) map[string]any {
	var blocks []json.RawMessage
	if b := form.Get("blocks"); b != "" && json.Unmarshal([]byte(b), &blocks) != nil {
		return no("invalid_blocks_format")
	}
	text := form.Get("text")
	if code, why := checkMessage(text, blocks); code != "" {
		a := no(code)
		a["response_metadata"] = map[string]any{"messages": []string{why}}
		return a
	}
	meta := json.RawMessage(form.Get("metadata"))
	if len(meta) > 0 && !json.Valid(meta) {
		return no("invalid_metadata_format")
	}
	switch method {
	case "chat.postEphemeral":
		if form.Get("user") == "" {
			return no("user_not_in_channel")
		}
		s.ephemerals = append(s.ephemerals, Ephemeral{channel, form.Get("user"), form.Get("thread_ts"), text})
		return map[string]any{"ok": true, "message_ts": s.ts()}
	case "chat.update":
		i := slices.IndexFunc(s.messages, func(m *Message) bool { return m.Channel == channel && m.TS == form.Get("ts") })
		if i < 0 {
			return no("message_not_found")
		}
		m := s.messages[i]
		m.Updates++
		m.Before = append(m.Before, m.Text)
		m.Text, m.Blocks = text, blocks
		if len(meta) > 0 {
			m.Metadata = meta
		}
		s.note()
		return map[string]any{"ok": true, "channel": channel, "ts": m.TS, "text": text}
	}
	m := &Message{Channel: channel, TS: s.ts(), Thread: form.Get("thread_ts"), Text: text, Blocks: blocks, Metadata: meta, At: time.Now()}
	if m.Thread != "" && !slices.ContainsFunc(s.messages, func(p *Message) bool { return p.Channel == channel && p.TS == m.Thread }) {
		return no("thread_not_found")
	}
	s.messages = append(s.messages, m)
	return map[string]any{"ok": true, "channel": channel, "ts": m.TS, "message": map[string]any{"text": text, "ts": m.TS}}
}

// history lists messages, with mu held.
func (s *Server) history(method string, form url.Values) map[string]any {
	channel, thread := form.Get("channel"), ""
	if method == "conversations.replies" {
		thread = form.Get("ts")
	}
	if s.channels[channel] != channel { // a name is none
		return no("channel_not_found")
	}
	list := []map[string]any{}
	for _, m := range s.messages {
		if m.Channel != channel || m.Thread != thread && (thread == "" || m.TS != thread) || m.TS < form.Get("oldest") {
			continue
		}
		e := map[string]any{"type": "message", "ts": m.TS, "text": m.Text, "bot_id": "B0BOT"}
		if form.Get("include_all_metadata") == "1" && len(m.Metadata) > 0 {
			e["metadata"] = m.Metadata
		}
		list = append(list, e)
	}
	if thread == "" {
		slices.Reverse(list)
	}
	return map[string]any{"ok": true, "messages": list, "has_more": false}
}

// hook takes a message by the incoming webhook.
func (s *Server) hook(w http.ResponseWriter, q *http.Request) {
	var m struct {
		Text   string            `json:"text"`
		Blocks []json.RawMessage `json:"blocks"`
	}
	err := json.NewDecoder(io.LimitReader(q.Body, 4<<20)).Decode(&m)
	reply := s.scripted("incoming")
	code, status := "", http.StatusOK
	if reply == nil || reply.Accept || reply.Default {
		s.mu.Lock()
		switch {
		case err != nil:
			code, status = "invalid_payload", http.StatusBadRequest
		case s.limited("incoming"):
			code, status = "rate_limited", http.StatusTooManyRequests
			w.Header().Set("Retry-After", "1")
		default:
			if code, _ = checkMessage(m.Text, m.Blocks); code != "" {
				status = http.StatusBadRequest
				break
			}
			s.messages = append(s.messages, &Message{Channel: "C0CI", TS: s.ts(), Text: m.Text, Blocks: m.Blocks, At: time.Now()})
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.calls = append(s.calls, Call{"incoming", nil, time.Now(), code})
	s.note()
	s.mu.Unlock()
	s.reply(w, q, reply, func() {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, cmp.Or(code, "ok"))
	})
}

// response takes a message by the response_url of a click.
func (s *Server) response(w http.ResponseWriter, q *http.Request) {
	var m struct {
		Text string `json:"text"`
	}
	if json.NewDecoder(io.LimitReader(q.Body, 1<<20)).Decode(&m) != nil {
		http.Error(w, "invalid_payload", http.StatusBadRequest)
		return
	}
	channel, user, _ := strings.Cut(q.PathValue("id"), "-")
	s.mu.Lock()
	s.ephemerals = append(s.ephemerals, Ephemeral{Channel: channel, User: user, Text: m.Text})
	s.note()
	s.mu.Unlock()
	_, _ = io.WriteString(w, "ok")
}
