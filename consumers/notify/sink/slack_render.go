package sink

import (
	"fmt"
	"strings"

	"github.com/slack-go/slack"

	"github.com/cbcast/cbcast/internal/run"
)

const (
	// shownAsks is how many asks a message shows with buttons.
	shownAsks = 4

	// tailRoom is kept free for what stands at the end of a message.
	tailRoom = 1400
)

// A slackNote is a message as it is sent.
type slackNote struct {
	text   string // the fallback, which notifications show; escaped
	blocks []slack.Block
	left   int  // characters of texts that are not in it
	bare   bool // the minimal form: no blocks, nothing is formatted
}

// buttons gives the values of a message's buttons. Nil: the message has none.
type buttons interface {
	// ask says how an open ask is shown: its buttons' values, or what was clicked.
	ask(n *Notice, a *run.AskView, whole bool) (askButtons, error)
	interrupt(n *Notice) (value string, err error)
}

// askButtons are the values of the buttons of one ask; "" is no such button.
type askButtons struct {
	allow, session, deny, why, open string
	openText                        string
	done                            string // what was clicked already, escaped
}

// render is the message of a run or a digest. mentioned says that people are called
// in it.
func render(n *Notice, b buttons, mentioned bool) (slackNote, error) {
	brief := briefOf(n)
	c := newComposer()
	if mentioned && n.Mention != "" {
		c.add(slack.NewSectionBlock(c.ours(mention(n.Mention)), nil, nil))
	}
	title, _ := c.literal(brief.title(), slackHeader, tailRoom)
	c.add(slack.NewHeaderBlock(title))
	c.facts(brief.facts)
	c.digest(n)
	if err := c.asks(n, b); err != nil {
		return slackNote{}, err
	}
	if brief.text != "" {
		left := c.section(brief.text, slackSection, tailRoom)
		c.cutNote(left, brief.textLeft)
	}
	c.links(n)
	if b != nil && interruptible(n) {
		value, err := b.interrupt(n)
		if err != nil {
			return slackNote{}, err
		}
		stop := c.button("interrupt", value, "Interrupt", slack.StyleDanger)
		stop.Confirm = slack.NewConfirmationBlockObject(
			plainText("Interrupt the run?"), plainText("What it does now is stopped."), plainText("Interrupt"), plainText("Go on"))
		c.add(slack.NewActionBlock("run", stop))
	}
	return slackNote{text: fallback(n, &brief), blocks: c.blocks, left: c.left}, nil
}

func plainText(s string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.PlainTextType, s, false, false)
}

// interruptible reports whether an interrupt could do something.
func interruptible(n *Notice) bool {
	v := n.View
	if v == nil || n.Kind == Digest || v.State == "done" || v.State == "lost" || v.State == "starting" {
		return false
	}
	return v.Open.Any() && (v.Capabilities == nil || v.Capabilities.Interrupt)
}

// fallback is what notifications and screen readers show.
func fallback(n *Notice, b *brief) string {
	text, _ := cutText(b.title(), budget{units: 500}, mrkdwnRune)
	if n.Mention != "" && calls(n) {
		text = mention(n.Mention) + " " + text
	}
	return text
}

// calls reports whether a notice calls its people: not where nothing is asked of them.
func calls(n *Notice) bool { return n.Kind != Answered }

// minimal is a message that nothing can be wrong with: for when Slack refuses the
// whole one.
func minimal(n *Notice) slackNote {
	b := briefOf(n)
	text, _ := cutText(b.title(), budget{units: 600}, mrkdwnRune)
	if link := safeLink(n.Links.Run); link != "" {
		text += "\n" + mrkdwn(link)
	}
	if n.Mention != "" && calls(n) {
		text = mention(n.Mention) + " " + text
	}
	return slackNote{text: text, bare: true}
}

func (c *composer) facts(list []fact) {
	var fields []*slack.TextBlockObject
	for _, f := range list[:min(len(list), 10)] {
		t, _ := c.literal(f.label+": "+f.value, 250, tailRoom)
		fields = append(fields, t)
	}
	if len(fields) > 0 {
		c.add(slack.NewSectionBlock(nil, fields, nil))
	}
}

// digest adds its lines, as many as fit, and says how many do not.
func (c *composer) digest(n *Notice) {
	shown := 0
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			c.add(slack.NewSectionBlock(c.ours(text.String()), nil, nil))
			text.Reset()
		}
	}
	for _, l := range n.Digest {
		line := digestLine(l)
		if c.room-tailRoom-text.Len() < len(line)+1 || len(c.blocks) > slackBlocks-8 {
			break
		}
		if text.Len()+len(line)+1 > slackPageText {
			flush()
		}
		text.WriteString(line + "\n")
		shown++
	}
	flush()
	if more := len(n.Digest) - shown; more > 0 {
		c.context(fmt.Sprintf("and %d more", more))
	}
}

// digestLine is one line, in mrkdwn.
func digestLine(l Line) string {
	verdict := oneLine(l.Verdict)
	if verdict == "" {
		verdict = string(l.Kind)
	}
	text, _ := cutText(oneLine(l.Text), budget{units: 160}, mrkdwnRune)
	name := shortRun(oneLine(l.Run))
	if a := anchor(l.Link, name); a != "" {
		name = a
	} else {
		name = mrkdwn(name)
	}
	line := marks[l.Kind] + " " + mrkdwn(short(verdict, 40)) + " " + name
	if text != "" {
		line += " " + text
	}
	if l.Count > 1 {
		line += fmt.Sprintf(" (%d times)", l.Count)
	}
	return strings.TrimSpace(line)
}

func (c *composer) asks(n *Notice, b buttons) error {
	for i := range n.Asks[:min(len(n.Asks), shownAsks)] {
		left := min(len(n.Asks), shownAsks) - i
		if err := c.ask(n, &n.Asks[i], b, max(600, (c.room-tailRoom)/left)); err != nil {
			return err
		}
	}
	if more := len(n.Asks) - shownAsks; more > 0 {
		c.context(counted(more, "more ask") + "; the run's page has them")
	}
	return nil
}

// ask adds one ask within a share of the room.
func (c *composer) ask(n *Notice, a *run.AskView, b buttons, share int) error {
	room := c.room - share
	head, _ := c.literal(askTitle(a), 200, tailRoom)
	c.add(slack.NewSectionBlock(head, nil, nil))
	left := 0
	if text := asked(a); text != "" {
		left = c.section(text, slackPageText, max(tailRoom, room+500))
	}
	how, why := offered(a)
	whole := left == 0
	if b == nil {
		c.cutNote(left, how == offerNone && a.Form != nil && a.Form.InputLeftOut)
		return nil
	}
	values, err := b.ask(n, a, whole)
	if err != nil {
		return err
	}
	switch {
	case values.done != "":
		c.context(values.done)
		return nil
	case how == offerNone && values.open != "":
		c.context("What is asked is too long for a message. Open it to read all of it; then it can be approved.")
	case how == offerNone:
		c.context(mrkdwn(why))
	case !whole && how == offerYes:
		c.context(fmt.Sprintf("%d characters more. Open it to read all of it; then it can be approved.", left))
	case !whole:
		c.cutNote(left, false)
	}
	var row []slack.BlockElement
	if values.allow != "" {
		row = append(row, c.button("allow", values.allow, approveText(a), slack.StylePrimary))
	}
	if values.session != "" {
		row = append(row, c.button("session", values.session, "Approve for the session", slack.StyleDefault))
	}
	if values.open != "" {
		row = append(row, c.button("open", values.open, values.openText, slack.StyleDefault))
	}
	if values.deny != "" {
		row = append(row, c.button("deny", values.deny, "Deny", slack.StyleDanger))
	}
	if values.why != "" {
		row = append(row, c.button("why", values.why, "Deny, and say why …", slack.StyleDefault))
	}
	if len(row) > 0 {
		c.add(slack.NewActionBlock("ask-"+short(a.ID, 40), row...))
	}
	return nil
}

func approveText(a *run.AskView) string {
	if a.Kind == "plan" {
		return "Approve the plan"
	}
	return "Approve"
}

var askWords = map[string]string{
	"permission": "wants to use", "plan": "has a plan", "question": "asks", "elicitation": "asks for", "command": "wants to run a command",
	"file_change": "wants to change files", "permissions": "wants more permissions",
}

// askTitle is one line over what is asked.
func askTitle(a *run.AskView) string {
	words := askWords[a.Kind]
	if words == "" {
		words = "asks"
	}
	t := oneLine(a.ID) + ": " + words
	if a.Tool != "" && a.Kind != "question" && a.Kind != "plan" {
		t += " " + oneLine(a.Tool)
	}
	if a.Repeats > 0 {
		t += fmt.Sprintf(", asked %d times before", a.Repeats)
	}
	return t
}

// cutNote says how much of a text is not here, and where it is.
func (c *composer) cutNote(left int, more bool) {
	switch {
	case left > 0 && more:
		c.context(fmt.Sprintf("more than %d characters are not shown; the run's page has them", left))
	case left > 0:
		c.context(counted(left, "more character") + "; the run's page has all of it")
	case more:
		c.context("There is more; the run's page has all of it")
	}
}

func (c *composer) links(n *Notice) {
	var parts []string
	for _, a := range []string{anchor(n.Links.Run, "Open the run"), anchor(n.Links.CI, "CI job")} {
		if a != "" {
			parts = append(parts, a)
		}
	}
	if n.Run != "" {
		parts = append(parts, mrkdwn(short(n.Run, 80)))
	}
	if len(parts) > 0 {
		c.context(strings.Join(parts, "  ·  "))
	}
}

// detail is the reply in the thread: what happened, for people who come later, and
// who is called now.
func detail(n *Notice) slackNote {
	b := briefOf(n)
	c := newComposer()
	if n.Mention != "" && calls(n) {
		c.add(slack.NewSectionBlock(c.ours(mention(n.Mention)), nil, nil))
	}
	c.section(b.title(), slackSection, tailRoom)
	for i := range n.Asks[:min(len(n.Asks), shownAsks)] {
		a := &n.Asks[i]
		left := c.section(askTitle(a)+"\n"+asked(a), 1200, tailRoom)
		c.cutNote(left, false)
	}
	parts := sections(b.text)
	for i, part := range parts {
		if c.room-tailRoom < len(part) || len(c.blocks) > slackBlocks-6 {
			c.cutNote(len([]rune(strings.Join(parts[i:], ""))), b.textLeft)
			break
		}
		c.add(slack.NewSectionBlock(slack.NewTextBlockObject(slack.PlainTextType, part, false, false), nil, nil))
		c.room -= len(part)
	}
	if len(n.Asks) > 0 || b.text == "" {
		c.facts(b.facts)
	}
	c.links(n)
	return slackNote{text: fallback(n, &b), blocks: c.blocks, left: c.left}
}
