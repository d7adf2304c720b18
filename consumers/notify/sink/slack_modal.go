package sink

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slack-go/slack"

	"github.com/cbcast/cbcast/internal/run"
)

// Callback ids of modals, and the buttons in them that do not decide anything.
const (
	viewRead    = "read"
	viewAnswer  = "answer"
	viewWhy     = "why"
	viewDone    = "done"
	actNext     = "next"
	actBack     = "back"
	maxOptions  = 10 // of radio buttons and checkboxes; Slack's limit
	optionUnits = 75
)

// modalState travels in a view's private_metadata, from us to us: Slack signs what
// it sends, and users do not see or change it.
type modalState struct {
	Open    string `json:"o"` // the key of the button that opened it
	Key     string `json:"k,omitempty"`
	Page    int    `json:"p,omitempty"`
	Seen    int    `json:"s,omitempty"` // the last page that was shown, from 0
	Channel string `json:"c,omitempty"`
	TS      string `json:"t,omitempty"`
	Thread  string `json:"h,omitempty"`
}

// maxRead bounds an input that can be read and approved in Slack: about 15 pages, more
// than anybody reads with care.
const maxRead = 128 << 10

// readable reports whether what a message leaves out of an ask can be opened.
func (s *Slack) readable(a *run.AskView) bool {
	_, ok := s.cfg.Actor.(InputReader)
	return ok && tooLong(a)
}

// whole is an ask with all of its input. why says that it cannot be shown.
func (s *Slack) whole(ctx context.Context, runID string, a *run.AskView) (whole *run.AskView, why string) {
	r, ok := s.cfg.Actor.(InputReader)
	if !ok {
		return nil, "The request is too long to be shown here: open the run to answer it."
	}
	input, err := r.Input(ctx, runID, a)
	switch {
	case err != nil:
		s.log.Warn("the whole of an ask cannot be read", "run", runID, "ask", a.ID, "error", s.quiet.Clean(err.Error()))
		return nil, "All that is asked cannot be read here now: try again, or open the run to answer it."
	case len(input) > maxRead:
		return nil, fmt.Sprintf("The request has %d kB, and at most %d are shown here: open the run to answer it.", len(input)>>10, maxRead>>10)
	}
	whole = filled(a, input)
	if how, no := offered(whole); how != offerYes {
		return nil, no
	}
	return whole, ""
}

// open shows all that is asked, or the form of its questions, or the one for a reason.
func (s *Slack) open(ctx context.Context, c *click, trigger string) {
	ctx, cancel := s.acting(ctx)
	defer cancel()
	g, view, code, reply := s.look(ctx, c, c.key)
	if code == "" {
		st := modalState{Open: c.key, Channel: c.channel, TS: c.ts, Thread: c.thread}
		var v slack.ModalViewRequest
		if v, reply = s.modal(ctx, g, view, st); reply == "" {
			_, o := s.call(ctx, true, func(ctx context.Context) error {
				_, err := s.api.OpenViewContext(ctx, trigger, v)
				return err
			})
			if o.Verdict == Delivered {
				return
			}
			code, reply = codeFailed, "Slack did not open it: "+o.Err.Error()+". Try again."
		} else {
			code = codeNotHere
		}
	}
	s.record(c, g, code, "")
	s.whisper(ctx, c, reply)
}

// look checks that the one who clicked may, and that what the key stands for is still
// asked. code says why not.
func (s *Slack) look(ctx context.Context, c *click, key string) (g grantKey, view *run.AskView, code, reply string) {
	g, ok := s.keys.find(key)
	if !ok || g.Act != actOpen && g.Act != actWhy {
		return grantKey{}, nil, codeUnknown, "This button is not known here, or is too old. The run's page has what is asked."
	}
	if refusal := s.mayNot(ctx, c, g.Act); refusal != "" {
		return g, nil, codeForbidden, refusal
	}
	view, err := s.cfg.Actor.Ask(ctx, g.Run, g.Ask)
	if err != nil {
		code, reply = refusedBy(err)
		return g, nil, code, reply
	}
	code, reply = current(view, g)
	return g, view, code, reply
}

// turn shows another page of a modal. Each page has been shown before the last one
// can be: only there it can be approved.
func (s *Slack) turn(ctx context.Context, c *click, v callbackView, by int) {
	ctx, cancel := s.acting(ctx)
	defer cancel()
	var st modalState
	if json.Unmarshal([]byte(v.PrivateMetadata), &st) != nil {
		return
	}
	g, view, code, reply := s.look(ctx, c, st.Open)
	if code != "" {
		s.record(c, g, code, "")
		s.close(ctx, v, reply)
		return
	}
	st.Page += by
	next, why := s.modal(ctx, g, view, st)
	if why != "" {
		s.close(ctx, v, why)
		return
	}
	_, _ = s.call(ctx, true, func(ctx context.Context) error { // the page stays as it is
		_, err := s.api.UpdateViewContext(ctx, next, "", v.Hash, v.ID)
		return err
	})
}

// close shows what became of it in the modal itself.
func (s *Slack) close(ctx context.Context, v callbackView, reply string) {
	_, _ = s.call(ctx, true, func(ctx context.Context) error { // who clicked is told in the channel, too
		_, err := s.api.UpdateViewContext(ctx, doneView(reply), "", "", v.ID)
		return err
	})
}

func doneView(reply string) slack.ModalViewRequest {
	text, _ := cutText(reply, budget{units: slackSection}, mrkdwnRune)
	return slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: viewDone, Title: plainText("cbcast"), Close: plainText("Close"),
		Blocks: slack.Blocks{BlockSet: []slack.Block{slack.NewSectionBlock(plainText(text), nil, nil)}},
	}
}

// modal is the view of an ask. why says that there is none.
func (s *Slack) modal(ctx context.Context, g grantKey, view *run.AskView, st modalState) (v slack.ModalViewRequest, why string) {
	if g.Act == actWhy {
		return s.reasons(g, view, st)
	}
	if s.readable(view) {
		if view, why = s.whole(ctx, g.Run, view); why != "" {
			return v, why
		}
		g.Input = inputHash(view) // what is read is what the keys made of g stand for
	}
	switch how, no := offered(view); how {
	case offerYes:
		return s.reading(g, view, st)
	case offerAnswer:
		return s.questions(g, view, st)
	case offerNone:
		why = no
	}
	return v, why
}

// also makes a key for another act on what g stands for.
func (s *Slack) also(g grantKey, act string) (string, error) {
	g.Act, g.Used = act, nil
	err := s.keys.mint(&g)
	return g.Key, err
}

// pages cuts what is asked into pages of a few sections.
func pages(view *run.AskView) [][]string {
	parts := sections(askTitle(view) + "\n\n" + asked(view))
	var out [][]string
	for len(parts) > 0 {
		n := min(len(parts), slackPageBlocks)
		out, parts = append(out, parts[:n]), parts[n:]
	}
	return out
}

// reading is one page of all that is asked. The last one can be approved.
func (s *Slack) reading(g grantKey, view *run.AskView, st modalState) (v slack.ModalViewRequest, why string) {
	all := pages(view)
	st.Page = max(0, min(st.Page, len(all)-1, st.Seen+1))
	st.Seen = max(st.Seen, st.Page)
	v = slack.ModalViewRequest{Type: slack.VTModal, CallbackID: viewRead, Title: plainText(pageTitle(st.Page, len(all))), Close: plainText("Close")}
	for _, part := range all[st.Page] {
		v.Blocks.BlockSet = append(v.Blocks.BlockSet, slack.NewSectionBlock(plainText(part), nil, nil))
	}
	var row []slack.BlockElement
	press := func(action, value, text string) {
		row = append(row, slack.NewButtonBlockElement(action, value, plainText(text)))
	}
	if st.Page > 0 {
		press(actBack, g.Key, "Back")
	}
	if st.Page < len(all)-1 {
		press(actNext, g.Key, "Next page")
	} else {
		key, err := s.also(g, actAllow)
		if err == nil && view.Form.Session {
			var session string
			if session, err = s.also(g, actSession); err == nil {
				press(actSession, session, "Approve for the session")
			}
		}
		if err != nil {
			return v, "The button's key cannot be kept: nothing can be approved here now."
		}
		st.Key, v.Submit = key, plainText(approveText(view))
	}
	if len(row) > 0 {
		v.Blocks.BlockSet = append(v.Blocks.BlockSet, slack.NewActionBlock("pages", row...))
	}
	return s.with(v, st)
}

func pageTitle(page, of int) string {
	if of == 1 {
		return "What is asked"
	}
	return fmt.Sprintf("Page %d of %d", page+1, of)
}

func (s *Slack) with(v slack.ModalViewRequest, st modalState) (slack.ModalViewRequest, string) {
	b, err := json.Marshal(st)
	if err != nil || len(b) > 3000 {
		return v, "It cannot be shown here: open the run."
	}
	v.PrivateMetadata = string(b)
	return v, ""
}

// questions is a form with an input for each question.
// questionBlocks show one question whole, its options, and what it is answered with.
// choices is the element for a question's options. The value of one is its place.
// values are a modal's inputs by block: the places of options, or a text.
// unanswered are the errors of a form, by block: questions with a choice and a text
// of which neither is given.
// answersOf reads a form's inputs as an answer. A text of one's own counts where it is
// there; with several choices it is one more.
// labels are what stands for the options at these places.
