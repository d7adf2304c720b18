package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

const (
	// slackAPIURL is where Slack is.
	slackAPIURL = "https://slack.com/api/"

	// slackTimeout is how long one call of Slack's API may take.
	slackTimeout = 10 * time.Second

	// maxSlackAnswer bounds an answer; a page of history is the longest.
	maxSlackAnswer = 4 << 20
)

// A slackCall is what is known of one call beside its error: Slack's library keeps
// neither the status nor a Retry-After that is a date.
type slackCall struct {
	trace
	status int
	header http.Header
}

type slackCallKey struct{}

// slackDoer makes the library's requests.
type slackDoer struct{ client *http.Client }

func (d slackDoer) Do(q *http.Request) (*http.Response, error) {
	c, _ := q.Context().Value(slackCallKey{}).(*slackCall)
	if c == nil {
		c = &slackCall{}
	}
	r, err := d.client.Do(q.WithContext(c.with(q.Context())))
	if err != nil {
		return nil, err
	}
	c.status, c.header = r.StatusCode, r.Header
	if r.StatusCode == http.StatusTooManyRequests {
		r.Header = r.Header.Clone()
		r.Header.Del("Retry-After") // the library reads seconds only, and fails
	}
	r.Body = bounded{io.LimitReader(r.Body, maxSlackAnswer), r.Body}
	return r, nil
}

type bounded struct {
	io.Reader
	io.Closer
}

// call makes one call of the API and says what became of it. code is Slack's word for
// an error, "" where it said none. again says that the call can be repeated without
// harm, so that not knowing what it did is no more than a reason to.
func (s *Slack) call(ctx context.Context, again bool, f func(ctx context.Context) error) (code string, o Outcome) {
	var c slackCall
	err := f(context.WithValue(ctx, slackCallKey{}, &c))
	if err == nil {
		return "", Outcome{Verdict: Delivered}
	}
	var said slack.SlackErrorResponse
	switch {
	case errors.As(err, &said):
		code = said.Err
		o = s.refused(code, said.Needed)
	case c.status == 0:
		o = c.failed(err)
	case c.status == http.StatusOK: // an answer that is none
		o = Outcome{Verdict: Unknown, Err: errors.New("Slack's answer cannot be read")} //nolint:staticcheck // a name
	default:
		o = (&answer{status: c.status, header: c.header}).outcome(time.Now(), s.quiet)
		if c.status >= 500 && c.status != http.StatusServiceUnavailable {
			o.Verdict = Unknown // it may have been done before
		}
	}
	if o.Throttled || o.Verdict == Retry {
		o.After = max(o.After, retryAfter(c.header, time.Now()))
	}
	if o.Verdict == Unknown && again {
		o.Verdict = Retry
	}
	return code, o
}

// What Slack's words for errors mean.
var (
	slackBusy    = []string{"ratelimited", "rate_limited", "message_limit_exceeded"}
	slackAway    = []string{"service_unavailable", "request_timeout", "team_added_to_org", "org_login_required"}
	slackUnsure  = []string{"internal_error", "fatal_error"} // "some aspect of the operation may have succeeded"
	slackForm    = []string{"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "no_text", "invalid_attachments", "too_many_attachments", "invalid_arguments", "metadata_too_large", "invalid_metadata_format", "invalid_metadata_schema"}
	slackNoEdit  = []string{"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found", "cannot_reply_to_message"}
	slackHints   = map[string]string{"not_in_channel": "invite the app to the channel", "channel_not_found": "the channel is not there, or the app is not in it", "is_archived": "the channel is archived"}
	slackForever = []string{"not_allowed_token_type", "unknown_method", "method_deprecated"}
)

// refused is the outcome of an error in Slack's words.
func (s *Slack) refused(code, needed string) Outcome {
	word := short(s.quiet.Clean(code), 60)
	o := Outcome{Verdict: Refused, Err: fmt.Errorf("Slack says %s", word)}
	switch {
	case slices.Contains(slackBusy, code):
		o.Verdict, o.Throttled = Retry, true
	case slices.Contains(slackAway, code):
		o.Verdict = Retry
	case slices.Contains(slackUnsure, code):
		o.Verdict = Unknown
	case slices.Contains(slackForever, code):
		o.Permanent = true
	case slackHints[code] != "":
		o.Err = fmt.Errorf("Slack says %s: %s", word, slackHints[code])
	case code == "missing_scope":
		o.Err = fmt.Errorf("Slack says %s: the app needs %s", word, short(needed, 100))
	}
	return o
}

// options are a message's, for the library.
func (m slackNote) options(n *Notice, what string) []slack.MsgOption {
	o := []slack.MsgOption{
		slack.MsgOptionText(m.text, false), slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(), slack.MsgOptionParse(false),
		slack.MsgOptionLinkNames(false), slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: slackEvent, EventPayload: map[string]any{"what": what, "run": n.Run, "notice": n.ID},
		}),
	}
	if len(m.blocks) > 0 {
		return append(o, slack.MsgOptionBlocks(m.blocks...))
	}
	// The blocks of a message that is updated go only where it is told to have none.
	return append(o, slack.MsgOptionBlocks([]slack.Block{}...), slack.MsgOptionDisableMarkdown())
}

// slackEvent names the metadata of our messages, by which they are found again.
const slackEvent = "cbcast_notice"

// mine reports whether a message is the one of a notice: of its run, or with what a
// reply the notice's own.
func mine(m *slack.Message, n *Notice, what string) bool {
	p := m.Metadata.EventPayload
	if m.Metadata.EventType != slackEvent || p["what"] != what {
		return false
	}
	if what == whatRun {
		return n.Run != "" && p["run"] == n.Run
	}
	return p["notice"] == n.ID
}

// What a message of ours is.
const (
	whatRun   = "run"   // a run's message
	whatReply = "reply" // in its thread
	whatOther = "other" // a digest, a test
)

// find looks for a message that may have been posted before.
func (s *Slack) find(ctx context.Context, n *Notice, channel, thread, what string) (ts string, o Outcome) {
	since := n.At.Add(-10 * time.Minute)
	if n.At.IsZero() {
		since = time.Now().Add(-time.Hour)
	}
	oldest := fmt.Sprintf("%d.000000", since.Unix())
	cursor := ""
	for range 5 {
		var list []slack.Message
		var next string
		_, o := s.call(ctx, true, func(ctx context.Context) error {
			if thread != "" {
				var err error
				list, _, next, err = s.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
					ChannelID: channel, Timestamp: thread, Oldest: oldest, Limit: 200, Cursor: cursor, IncludeAllMetadata: true,
				})
				return err
			}
			h, err := s.api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{
				ChannelID: channel, Oldest: oldest, Limit: 200, Cursor: cursor, IncludeAllMetadata: true,
			})
			if err == nil {
				list, next = h.Messages, h.ResponseMetaData.NextCursor
			}
			return err
		})
		if o.Verdict != Delivered {
			o.Err = fmt.Errorf("look whether it arrived: %w", o.Err)
			if o.Verdict == Refused { // it may not read the channel
				o.Verdict = Unknown
			}
			return "", o
		}
		for i := range list {
			if mine(&list[i], n, what) {
				return list[i].Timestamp, o
			}
		}
		if cursor = next; cursor == "" {
			return "", o
		}
	}
	return "", Outcome{Verdict: Unknown, Err: errors.New("look whether it arrived: too much was said in the channel since")}
}

// channelOf is where a notice goes.
func (s *Slack) channelOf(n *Notice) string {
	if to := strings.TrimSpace(n.To); to != "" {
		return to
	}
	return s.cfg.Channel
}
