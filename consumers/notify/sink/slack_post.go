package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slack-go/slack"
)

func (s *Slack) main(ctx context.Context, n *Notice) (ref *Ref, left int, o Outcome) {
	note, trouble := s.note(n)
	if n.Updates != nil && n.Updates.TS != "" {
		ref = &Ref{Channel: cmp.Or(n.Updates.Channel, s.channelOf(n)), TS: n.Updates.TS, Thread: slices.Clone(n.Updates.Thread), Message: n.Updates.Message}
		code, o := s.update(ctx, n, note, ref)
		if o.Verdict == Delivered || !slices.Contains(slackNoEdit, code) {
			o.Note = cmp.Or(o.Note, trouble)
			return ref, note.left, o
		}
		// Somebody has deleted it, or it is too old to be changed: tell it anew.
		n = &Notice{
			ID: n.ID, Kind: n.Kind, Tenant: n.Tenant, Run: n.Run, At: n.At, Event: n.Event, Summary: n.Summary, View: n.View, Asks: n.Asks,
			CI: n.CI, Links: n.Links, To: cmp.Or(n.Updates.Channel, n.To), Mention: n.Mention, Note: n.Note,
		}
	}
	ref, o = s.post(ctx, n, nil, whatRun)
	o.Note = cmp.Or(o.Note, trouble)
	return ref, note.left, o
}

func (s *Slack) note(n *Notice) (note slackNote, trouble string) {
	mentioned := calls(n) && (n.Updates == nil || n.Updates.TS == "")
	if s.keys == nil {
		note, _ = render(n, nil, mentioned)
		return note, ""
	}
	b, err := s.buttonsOf(n)
	if err != nil {
		note, _ = render(n, nil, mentioned)
		return note, "without buttons: " + short(err.Error(), maxQuoted)
	}
	note, _ = render(n, b, mentioned)
	return note, ""
}

func (s *Slack) update(ctx context.Context, n *Notice, note slackNote, ref *Ref) (code string, o Outcome) {
	try := func(note slackNote) (string, Outcome) {
		if err := s.pace(ctx, ref.Channel); err != nil {
			return "", Outcome{Verdict: Retry, Err: errors.New("given up before it was sent")}
		}
		return s.call(ctx, true, func(ctx context.Context) error {
			_, _, _, err := s.api.UpdateMessageContext(ctx, ref.Channel, ref.TS, note.options(n, whatRun)...)
			return err
		})
	}
	code, o = try(note)
	if slices.Contains(slackForm, code) {
		refused := o.Err
		if code, o = try(minimal(n)); o.Verdict == Delivered {
			o.Note = fmt.Sprintf("sent in its minimal form: %v", refused)
		}
	}
	return code, o
}

func (s *Slack) post(ctx context.Context, n *Notice, ref *Ref, what string) (*Ref, Outcome) {
	channel, thread := s.channelOf(n), ""
	if ref != nil {
		channel, thread = ref.Channel, ref.TS
	}
	if n.Unsure {
		s.mu.Lock()
		id := cmp.Or(s.ids[channel], channel)
		s.mu.Unlock()
		ts, o := s.find(ctx, n, id, thread, what)
		if o.Verdict != Delivered {
			return nil, o
		}
		if found := (&Ref{Channel: id, TS: ts}); ts != "" {
			if what != whatRun {
				return found, Outcome{Verdict: Delivered}
			}
			note, _ := s.note(n)
			_, o := s.update(ctx, n, note, found)
			o.Ref = found
			return found, o
		}
	}
	note := detail(n)
	if what != whatReply {
		note, _ = s.note(n)
	}
	code, posted, o := s.try(ctx, n, note, channel, thread, what)
	if slices.Contains(slackForm, code) {
		refused := o.Err
		if _, posted, o = s.try(ctx, n, minimal(n), channel, thread, what); o.Verdict == Delivered {
			o.Note = fmt.Sprintf("sent in its minimal form: %v", refused)
		}
	}
	return posted, o
}

func (s *Slack) try(ctx context.Context, n *Notice, note slackNote, channel, thread, what string) (code string, ref *Ref, o Outcome) {
	if err := s.pace(ctx, channel); err != nil {
		return "", nil, Outcome{Verdict: Retry, Err: errors.New("given up before it was sent")}
	}
	ref = &Ref{}
	code, o = s.call(ctx, false, func(ctx context.Context) error {
		options := note.options(n, what)
		if thread != "" {
			options = append(options, slack.MsgOptionTS(thread))
		}
		var err error
		ref.Channel, ref.TS, err = s.api.PostMessageContext(ctx, channel, options...)
		return err
	})
	if ref.Channel != "" && ref.Channel != channel {
		s.mu.Lock()
		if len(s.ids) >= maxSent {
			clear(s.ids)
		}
		s.ids[channel] = ref.Channel
		s.mu.Unlock()
	}
	return code, ref, o
}
