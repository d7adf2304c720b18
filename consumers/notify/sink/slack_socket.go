package sink

import (
	"context"
	"errors"
	"time"

	"github.com/gorilla/websocket"
	"github.com/slack-go/slack/socketmode"
)

const (
	// socketFirst and socketMost are the pauses before a connection that Slack refused
	// is tried anew; of lost ones the library takes care.
	socketFirst, socketMost = 5 * time.Second, 5 * time.Minute
)

// Interactive reports whether the destination has buttons, and whether it hears of
// clicks by Socket Mode (then Run is needed) or by its request URL (then the handler
// is, see [SlackHandler]).
func (s *Slack) Interactive() (socket, request bool) {
	if s.keys == nil {
		return false, false
	}
	return s.cfg.AppToken != "", s.cfg.AppToken == "" && s.cfg.SigningSecret != ""
}

// Run hears of clicks by Socket Mode until ctx ends. Without an app token it only
// waits. Troubles are logged and tried again: notices are sent all the same.
func (s *Slack) Run(ctx context.Context) error {
	if socket, _ := s.Interactive(); !socket {
		<-ctx.Done()
		return nil
	}
	for pause := socketFirst; ; pause = min(2*pause, socketMost) {
		began := time.Now()
		err := s.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > socketMost {
			pause = socketFirst
		}
		s.log.Warn("no clicks are heard: Socket Mode ended", "error", s.socketTrouble(err), "next_in", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// socketTrouble is an error of Socket Mode without addresses: they hold a ticket.
func (s *Slack) socketTrouble(err error) string {
	if err == nil {
		return "closed by Slack"
	}
	switch err.Error() {
	case "invalid_auth", "account_inactive", "not_authed", "token_revoked", "missing_scope":
		return "Slack says " + err.Error()
	}
	return reason(err)
}

// listen keeps one client of Socket Mode until it gives up.
func (s *Slack) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	proxy, dial := s.guard.dialing()
	client := socketmode.New(s.api, socketmode.OptionDialer(&websocket.Dialer{
		Proxy: proxy, NetDialContext: dial, HandshakeTimeout: slackTimeout,
	}))
	ended := make(chan error, 1) // so that the sender ends
	go func() { ended <- client.RunContext(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case e := <-client.Events:
			s.heard(ctx, client, &e)
		}
	}
}

// heard takes one event of Socket Mode. A callback is acknowledged before it is done.
func (s *Slack) heard(ctx context.Context, client *socketmode.Client, e *socketmode.Event) {
	switch e.Type {
	case socketmode.EventTypeConnected:
		s.log.Info("clicks are heard by Socket Mode")
	case socketmode.EventTypeConnectionError:
		s.log.Debug("Socket Mode does not connect")
	case socketmode.EventTypeInteractive:
		if e.Request == nil {
			return
		}
		ack, _ := s.interact(e.Request.Payload)
		var payload any
		if ack != nil {
			payload = rawJSON(ack)
		}
		if err := client.AckCtx(ctx, e.Request.EnvelopeID, payload); err != nil && !errors.Is(err, context.Canceled) {
			s.log.Warn("a click was not acknowledged", "error", reason(err))
		}
	default:
	}
}

type rawJSON []byte

// MarshalJSON implements [encoding/json.Marshaler].
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }
