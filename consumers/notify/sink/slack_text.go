package sink

import (
	"strings"

	"github.com/slack-go/slack"
)

// Slack's limits, in characters, and what is used of them. They count what is sent,
// which is longer than what is seen.
const (
	slackSection    = 3000 // a section's text
	slackField      = 2000 // one of its fields
	slackHeader     = 150
	slackButton     = 75   // a button's or an option's text
	slackText       = 4000 // of a message without blocks; Slack takes 40 000
	slackBlocks     = 50
	slackModal      = 100   // blocks of a view
	slackMessage    = 10000 // bytes of all texts; Slack refuses some 13 000 characters
	slackPageText   = 2900
	slackPageBlocks = 3
)

// mrkdwnRune is a character where Slack looks for links, mentions and commands. Those
// begin with <, so nothing else needs an escape; Slack decodes these three.
func mrkdwnRune(r rune) string {
	switch r {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	}
	return string(r)
}

// mrkdwn escapes a text of others.
func mrkdwn(s string) string {
	s, _ = cutText(s, budget{}, mrkdwnRune)
	return s
}

// mention is a mention of the rules, or several, where it has the form of one;
// anything else is a text.
func mention(s string) string {
	list := strings.Fields(s)
	for _, m := range list {
		if !isMention(m) {
			return mrkdwn(oneLine(s))
		}
	}
	return strings.Join(list, " ")
}

// isMention reports whether a word calls a user, a group of users or a channel.
func isMention(s string) bool {
	if s == "<!here>" || s == "<!channel>" {
		return true
	}
	user, isUser := strings.CutPrefix(s, "<@")
	group, isGroup := strings.CutPrefix(s, "<!subteam^S")
	switch {
	case isUser:
		return strings.HasSuffix(user, ">") && slackUser(strings.TrimSuffix(user, ">"))
	case isGroup:
		return strings.HasSuffix(group, ">") && slackID(strings.TrimSuffix(group, ">"))
	}
	return false
}

// slackUser reports whether s has the form of a user's id.
func slackUser(s string) bool {
	return s != "" && (s[0] == 'U' || s[0] == 'W') && slackID(s[1:])
}

func slackID(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 24 && strings.Trim(s, letters) == ""
}

// anchor is a link of ours.
func anchor(link, text string) string {
	if link = safeLink(link); link == "" {
		return ""
	}
	return "<" + mrkdwn(link) + "|" + strings.ReplaceAll(mrkdwn(oneLine(text)), "|", "¦") + ">"
}

// A composer builds the blocks of a message within Slack's limits. Texts of others
// are plain_text, which Slack neither formats nor links, and escaped all the same:
// the parts that Slack derives from them are parsed.
type composer struct {
	blocks []slack.Block
	room   int // bytes of text that still fit
	left   int // characters that did not
}

func newComposer() *composer { return &composer{room: slackMessage} }

// literal is a text of others, cut to most characters and to what keep leaves of the
// room.
func (c *composer) literal(s string, most, keep int) (t *slack.TextBlockObject, left int) {
	out, left := cutText(s, budget{most, max(len(ellipsis), c.room-keep)}, mrkdwnRune)
	if out == "" {
		out = ellipsis
	}
	c.room -= len(out)
	c.left += left
	return slack.NewTextBlockObject(slack.PlainTextType, out, false, false), left
}

// ours is a text of ours, in which texts of others are escaped. It is short.
func (c *composer) ours(s string) *slack.TextBlockObject {
	c.room -= len(s)
	return slack.NewTextBlockObject(slack.MarkdownType, s, false, true)
}

func (c *composer) add(b slack.Block) { c.blocks = append(c.blocks, b) }

// section adds a text of others, and says how much of it is not there.
func (c *composer) section(s string, most, keep int) (left int) {
	t, left := c.literal(s, most, keep)
	c.add(slack.NewSectionBlock(t, nil, nil))
	return left
}

// context adds a small line of ours.
func (c *composer) context(s string) {
	c.add(slack.NewContextBlock("", c.ours(s)))
}

// button is one of ours.
func (c *composer) button(action, value, text string, style slack.Style) *slack.ButtonBlockElement {
	c.room -= len(text) + len(value)
	b := slack.NewButtonBlockElement(action, value, slack.NewTextBlockObject(slack.PlainTextType, text, false, false))
	b.Style = style
	return b
}

// sections cuts a text into pieces that fit a section each, and loses nothing.
func sections(s string) []string {
	var out []string
	for s != "" {
		var b strings.Builder
		size, end := 0, len(s)
		for i, r := range s {
			piece := mrkdwnRune(r)
			if size+units(piece) > slackPageText {
				end = i
				break
			}
			b.WriteString(piece)
			size += units(piece)
		}
		out, s = append(out, b.String()), s[end:]
	}
	return out
}
