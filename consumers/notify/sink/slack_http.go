package sink

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/slack-go/slack"
)

const (
	// maxCallback bounds a callback's body: a modal's state is the longest.
	maxCallback = 512 << 10

	// maxReplies bounds the replies that are kept for repeated callbacks.
	maxReplies = 1000

	// ackWithin is how long a repeated callback waits for the reply of the first.
	ackWithin = 2 * time.Second
)

// A callback is what Slack sends when somebody clicks, as far as it is used.
type callback struct {
	Type string `json:"type"`
	Team struct {
		ID string `json:"id"`
	} `json:"team"`
	User struct {
		ID     string `json:"id"`
		TeamID string `json:"team_id"`
	} `json:"user"`
	TriggerID string `json:"trigger_id"`
	Channel   struct {
		ID string `json:"id"`
	} `json:"channel"`
	Container struct {
		ChannelID string `json:"channel_id"`
		MessageTS string `json:"message_ts"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Actions []struct {
		ActionID string `json:"action_id"`
		Value    string `json:"value"`
	} `json:"actions"`
	View callbackView `json:"view"`
}

type callbackView struct {
	ID              string `json:"id"`
	Hash            string `json:"hash"`
	CallbackID      string `json:"callback_id"`
	PrivateMetadata string `json:"private_metadata"`
	State           struct {
		Values map[string]map[string]callbackValue `json:"values"`
	} `json:"state"`
}

type callbackValue struct {
	Value    *string          `json:"value"`
	Selected *callbackOption  `json:"selected_option"`
	Many     []callbackOption `json:"selected_options"`
}

type callbackOption struct {
	Value string `json:"value"`
}

// A callbackReply is what a callback was answered with.
type callbackReply struct {
	done chan struct{}
	ack  []byte // JSON, nil for an empty answer
}

// SlackHandler takes Slack's callbacks (POST, at the request URL that the app's
// settings name) for whichever of the destinations' signing secrets has signed it. It
// answers at once; what was clicked is done after.
func SlackHandler(list ...*Slack) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method_not_allowed", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxCallback))
		if err != nil {
			http.Error(w, "too_large", http.StatusRequestEntityTooLarge)
			return
		}
		word := "bad_signature"
		for _, s := range list {
			err := s.signed(q.Header, body)
			if err == nil {
				s.serve(w, body)
				return
			}
			if errors.Is(err, slack.ErrExpiredTimestamp) {
				word = "too_old"
			}
		}
		for _, s := range list[:min(len(list), 1)] {
			s.log.Warn("slack callback refused", "outcome", word, "from", q.RemoteAddr)
		}
		http.Error(w, word, http.StatusUnauthorized)
	})
}

// signed checks Slack's signature (v0) over the time and the body, and that the time
// is at most five minutes away.
func (s *Slack) signed(h http.Header, body []byte) error {
	v, err := slack.NewSecretsVerifier(h, s.cfg.SigningSecret)
	if err != nil {
		return err
	}
	_, _ = v.Write(body) // of a hash
	return v.Ensure()
}

func (s *Slack) serve(w http.ResponseWriter, body []byte) {
	form, err := url.ParseQuery(string(body))
	payload := form.Get("payload")
	if err != nil || payload == "" {
		http.Error(w, "no payload", http.StatusBadRequest)
		return
	}
	ack, ok := s.interact([]byte(payload))
	switch {
	case !ok:
		http.Error(w, "not understood", http.StatusBadRequest)
	case ack == nil:
		w.WriteHeader(http.StatusOK)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(ack)
	}
}

// interact takes one callback. The same one again, as Slack sends it when it has not
// heard in time, gets the same answer and has no second effect.
func (s *Slack) interact(payload []byte) (ack []byte, ok bool) {
	if s.keys == nil {
		return nil, true
	}
	var cb callback
	if json.Unmarshal(payload, &cb) != nil || !slackUser(cb.User.ID) {
		return nil, false
	}
	id := sha256.Sum256(payload)
	s.mu.Lock()
	before := s.seen[id]
	r := &callbackReply{done: make(chan struct{})}
	if before == nil {
		s.seen[id], s.old = r, append(s.old, id)
		for len(s.old) > maxReplies {
			delete(s.seen, s.old[0])
			s.old = s.old[1:]
		}
	}
	s.mu.Unlock()
	if before != nil {
		select {
		case <-before.done:
			return before.ack, true
		case <-time.After(ackWithin):
			return nil, true
		}
	}
	r.ack = s.dispatch(&cb)
	close(r.done)
	return r.ack, true
}

// dispatch begins what was clicked and returns the answer to Slack.
func (s *Slack) dispatch(cb *callback) (ack []byte) {
	c := &click{
		user: cb.User.ID, team: cb.User.TeamID, channel: cb.Channel.ID, ts: cb.Container.MessageTS, thread: cb.Container.ThreadTS,
	}
	if c.team == "" {
		c.team = cb.Team.ID
	}
	if c.channel == "" {
		c.channel = cb.Container.ChannelID
	}
	if cb.View.ID != "" { // it remembers where it was opened
		var st modalState
		if json.Unmarshal([]byte(cb.View.PrivateMetadata), &st) == nil {
			c.channel, c.ts, c.thread = st.Channel, st.TS, st.Thread
			c.key = st.Key
		}
	}
	switch cb.Type {
	case "block_actions":
		if len(cb.Actions) == 1 {
			s.pressed(c, cb)
		}
	case "view_submission":
		return s.submitted(c, &cb.View)
	}
	return nil
}

// pressed is a click on a button.
func (s *Slack) pressed(c *click, cb *callback) {
	a := cb.Actions[0]
	c.act, c.key = a.ActionID, a.Value
	switch a.ActionID {
	case actOpen, actWhy:
		s.begin(c, func(ctx context.Context) { s.open(ctx, c, cb.TriggerID) })
	case actNext:
		s.begin(c, func(ctx context.Context) { s.turn(ctx, c, cb.View, 1) })
	case actBack:
		s.begin(c, func(ctx context.Context) { s.turn(ctx, c, cb.View, -1) })
	case actAllow, actSession, actDeny, actInterrupt:
		s.begin(c, func(ctx context.Context) {
			s.do(ctx, c)
			if cb.View.ID != "" {
				s.close(ctx, cb.View, "Done; the channel has what became of it.")
			}
		})
	default:
		// A choice inside of a form: it counts when the form is sent.
		if cb.View.ID == "" {
			s.begin(c, func(ctx context.Context) { s.do(ctx, c) }) // told that it is not known
		}
	}
}

// submitted is a modal that was sent.
func (s *Slack) submitted(c *click, v *callbackView) []byte {
	switch v.CallbackID {
	case viewRead:
		c.act = actAllow
	case viewAnswer:
		if missing := v.unanswered(); len(missing) > 0 {
			return mustAck(map[string]any{"response_action": "errors", "errors": missing})
		}
		c.act, c.answers = actAnswer, v.values()
	case viewWhy:
		c.act, c.answers = actDenyWhy, v.values()
	default:
		return nil
	}
	s.begin(c, func(ctx context.Context) { s.do(ctx, c) })
	return mustAck(map[string]any{"response_action": "clear"})
}

func mustAck(v any) []byte {
	b, _ := json.Marshal(v) // of strings: cannot fail
	return b
}

// begin does work after the answer to Slack. Close waits for it.
func (s *Slack) begin(c *click, f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	select {
	case s.work <- struct{}{}:
	default:
		s.log.Warn("slack action", "user", short(c.who(), 60), "action", short(c.act, 40), "outcome", "too_busy")
		return
	}
	// Not s.ctx: what has begun is done to its end, which its time-outs bound.
	s.wg.Go(func() {
		defer func() { <-s.work }()
		f(context.WithoutCancel(s.ctx))
	})
}
