package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// What a button does, its action_id.
const (
	actAllow     = "allow"
	actSession   = "session"
	actDeny      = "deny"
	actWhy       = "why"    // asks for the reason of a no
	actDenyWhy   = "denied" // of its modal
	actOpen      = "open"   // shows all that is asked
	actAnswer    = "answer" // of the questions' modal
	actInterrupt = "interrupt"
)

// actTimeout is how long what was clicked may take, or longer where one call of Slack
// may.
const actTimeout = 15 * time.Second

func (s *Slack) acting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(actTimeout, s.cfg.Timeout))
}

// preparedButtons are the values of one message's buttons.
type preparedButtons struct {
	asks map[string]map[string]string // by ask and act
	done map[string]string
	stop string
}

// buttonsOf makes the keys of all buttons that a message could have, durable before
// it is sent.
func (s *Slack) buttonsOf(n *Notice) (*preparedButtons, error) {
	p := &preparedButtons{asks: map[string]map[string]string{}, done: map[string]string{}}
	var want []*grantKey
	for i := range n.Asks[:min(len(n.Asks), shownAsks)] {
		a := &n.Asks[i]
		hash := askHash(a)
		if u := s.keys.decided(n.Run, a.ID, hash); u != nil {
			p.done[a.ID] = withUser(u.Reply, u.Who[strings.LastIndexByte(u.Who, '/')+1:])
			continue
		}
		if !deniable(a) {
			continue
		}
		acts := []string{actDeny, actWhy}
		how, _ := offered(a)
		if s.readable(a) {
			acts = append(acts, actOpen)
		}
		switch how {
		case offerYes:
			acts = append(acts, actAllow, actOpen)
			if a.Form.Session {
				acts = append(acts, actSession)
			}
		case offerAnswer:
			acts = append(acts, actOpen)
		case offerNone:
		}
		for _, act := range acts {
			want = append(want, &grantKey{Tenant: n.Tenant, Run: n.Run, Ask: a.ID, Act: act, Hash: hash, Input: inputHash(a)})
		}
	}
	if interruptible(n) {
		want = append(want, &grantKey{Tenant: n.Tenant, Run: n.Run, Act: actInterrupt, Turn: len(n.View.Turns)})
	}
	if err := s.keys.mint(want...); err != nil {
		return nil, fmt.Errorf("the keys cannot be kept: %w", err)
	}
	for _, g := range want {
		if g.Act == actInterrupt {
			p.stop = g.Key
			continue
		}
		if p.asks[g.Ask] == nil {
			p.asks[g.Ask] = map[string]string{}
		}
		p.asks[g.Ask][g.Act] = g.Key
	}
	return p, nil
}

// ask implements [buttons]. What is not whole in the message is opened first.
func (p *preparedButtons) ask(_ *Notice, a *run.AskView, whole bool) (askButtons, error) {
	if done := p.done[a.ID]; done != "" {
		return askButtons{done: done}, nil
	}
	v := p.asks[a.ID]
	b := askButtons{deny: v[actDeny], why: v[actWhy]}
	switch how, _ := offered(a); {
	case how == offerNone && v[actOpen] != "":
		b.open, b.openText = v[actOpen], "Read all of it …"
	case how == offerAnswer:
		b.open, b.openText = v[actOpen], "Answer …"
	case how == offerYes && whole:
		b.allow, b.session = v[actAllow], v[actSession]
	case how == offerYes:
		b.open, b.openText = v[actOpen], "Read all of it …"
	}
	return b, nil
}

func (p *preparedButtons) interrupt(*Notice) (string, error) { return p.stop, nil }

// A click is somebody's use of a button or a modal.
type click struct {
	user, team  string
	act         string
	key         string
	channel, ts string // of the message, to answer in
	thread      string
	answers     map[string][]string // of a modal, by block
	did         string              // the user who had done it before
}

func (c *click) who() string { return c.team + "/" + c.user }

// do carries out a click, tells its sender what came of it, and writes it down.
func (s *Slack) do(ctx context.Context, c *click) {
	ctx, cancel := s.acting(ctx)
	defer cancel()
	g, code, reply, command := s.act(ctx, c)
	s.record(c, g, code, command)
	s.whisper(ctx, c, reply)
	if code == codeDone && g.Run != "" {
		s.refresh(ctx, g.Run)
	}
}

// record is the line of the log that says who did what: the relay's audit fact has the
// same, but of what was refused here it does not know.
func (s *Slack) record(c *click, g grantKey, code, command string) {
	s.log.Info("slack action", "user", short(c.who(), 60), "action", short(c.act, 40), "tenant", g.Tenant, "run", g.Run, "ask", g.Ask,
		"input_sha256", g.Input, "outcome", code, "command", command)
}

// What came of a click.
const (
	codeDone      = "done"
	codeAgain     = "done_before" // the same click once more
	codeUnknown   = "unknown_key"
	codeForbidden = "forbidden"
	codeUsed      = "key_used"
	codeBusy      = "busy"
	codeChanged   = "changed"
	codeNotHere   = "not_offered"
	codeFailed    = "failed"
)

// act checks and carries out a click. reply is for its sender, unescaped.
func (s *Slack) act(ctx context.Context, c *click) (g grantKey, code, reply, command string) {
	g, ok := s.keys.find(c.key)
	if !ok || g.Act != c.act {
		return grantKey{}, codeUnknown, "This button is not known here, or is too old. Nothing was done; the run's page can do it.", ""
	}
	if refusal := s.mayNot(ctx, c, g.Act); refusal != "" {
		return g, codeForbidden, refusal, ""
	}
	if !s.keys.take(c.key) {
		return s.taken(c, g)
	}
	var done Acted
	var err error
	if g.Act == actInterrupt {
		reply = fmt.Sprintf("Interrupt given by <%s>.", c.user)
		done, err = s.cfg.Actor.Interrupt(ctx, g.Run, "slack-"+g.Key, "interrupted in Slack", s.behalf(c))
	} else {
		code, reply, done, err = s.answer(ctx, c, g)
	}
	if code != "" || err != nil {
		s.keys.release(c.key)
		if err != nil {
			code, reply = refusedBy(err)
		}
		return g, code, reply, ""
	}
	if err := s.keys.used(c.key, keyUse{Who: c.who(), At: time.Now().UTC(), Reply: reply, Command: done.Command}); err != nil {
		s.log.Warn("a used button is not on disk", "run", g.Run, "ask", g.Ask, "error", err)
	}
	return g, codeDone, reply, done.Command
}

// taken says what a key was used for. The same click again gets the same reply.
func (s *Slack) taken(c *click, g grantKey) (grantKey, string, string, string) {
	now, _ := s.keys.find(c.key)
	switch {
	case now.Used == nil:
		return g, codeBusy, "Somebody is just doing this.", ""
	case now.Used.Who == c.who():
		return g, codeAgain, now.Used.Reply, now.Used.Command
	}
	c.did = now.Used.Who[strings.LastIndexByte(now.Used.Who, '/')+1:]
	return g, codeUsed, "This was done already. " + now.Used.Reply, now.Used.Command
}

// mayNot says why somebody may not do this.
func (s *Slack) mayNot(ctx context.Context, c *click, act string) string {
	scope := "answer"
	if act == actInterrupt {
		scope = "command"
	}
	scopes, ok := s.cfg.Users[c.who()]
	if !ok {
		own, err := s.ownTeam(ctx)
		if err != nil {
			return "Slack does not say which workspace this is, so nothing was done. Try again."
		}
		if scopes, ok = s.cfg.Users[c.user]; ok && c.team != own {
			return "You belong to another workspace and are not on the list of those who may do this. Nothing was done."
		}
	}
	switch {
	case !ok:
		return "You are not on the list of those who may do this. Nothing was done."
	case !slices.Contains(scopes, scope):
		return "You may not do this: it needs the scope " + scope + ", and you have " + cmp.Or(strings.Join(scopes, ", "), "none") + ". Nothing was done."
	}
	return ""
}

// ownTeam is the bot's workspace.
func (s *Slack) ownTeam(ctx context.Context) (string, error) {
	s.mu.Lock()
	team := s.team
	s.mu.Unlock()
	if team != "" {
		return team, nil
	}
	_, o := s.call(ctx, true, func(ctx context.Context) error {
		r, err := s.api.AuthTestContext(ctx)
		if err == nil {
			team = r.TeamID
		}
		return err
	})
	if o.Verdict != Delivered || team == "" {
		return "", errors.Join(errors.New("auth.test"), o.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.team = team
	return team, nil
}

// behalf is the name of who clicked, for the relay's audit.
func (s *Slack) behalf(c *click) string { return "slack:" + c.who() }

// answer decides an ask. code says that nothing was done, and reply why.
func (s *Slack) answer(ctx context.Context, c *click, g grantKey) (code, reply string, done Acted, err error) {
	view, err := s.cfg.Actor.Ask(ctx, g.Run, g.Ask)
	if err != nil {
		return "", "", Acted{}, err
	}
	if code, reply := current(view, g); code != "" {
		return code, reply, Acted{}, nil
	}
	if g.Act != actDeny && g.Act != actDenyWhy && s.readable(view) {
		whole, why := s.whole(ctx, g.Run, view)
		switch {
		case why != "":
			return codeNotHere, why, Acted{}, nil
		case inputHash(whole) != g.Input:
			return codeChanged, "What is asked is not what was read. Nothing was done; the run's page has it.", Acted{}, nil
		}
		view = whole
	}
	a, word, why := decision(view, g.Act, c.answers)
	if why != "" {
		return codeNotHere, why, Acted{}, nil
	}
	done, err = s.cfg.Actor.Answer(ctx, g.Run, g.Ask, a, s.behalf(c))
	if done.Duplicate {
		return "", word + ", as somebody else had done before.", done, err
	}
	return "", fmt.Sprintf("%s by <%s>; it is on its way to the agent.", word, c.user), done, err
}

// current says why a key stands for an ask no more.
// decision is what is answered. word says it in the reply; why that it cannot be.
func decision(view *run.AskView, act string, answers map[string][]string) (a event.Answer, word, why string) {
	how, no := offered(view)
	switch {
	case act == actDeny:
		return event.Answer{Decision: event.Deny, Message: "denied in Slack"}, "Denied", ""
	case act == actDenyWhy:
		return event.Answer{Decision: event.Deny, Message: reasonIn(answers)}, "Denied", ""
	case act == actAllow && how == offerYes:
		return event.Answer{Decision: event.Allow}, "Approved", ""
	case act == actSession && how == offerYes && view.Form.Session:
		return event.Answer{Decision: event.Allow, Session: true}, "Approved for the session", ""
	case act == actAnswer && how == offerAnswer:
		a, why = answersOf(view, answers)
		return a, "Answered", why
	}
	return event.Answer{}, "", cmp.Or(no, "This ask does not offer that.") + " Nothing was done."
}

// refusedBy is the reply for an error of the relay's.
// withUser escapes a reply and makes the mention in it one.
// whisper tells the one who clicked, and nobody else.
