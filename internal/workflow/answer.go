package workflow

import (
	"encoding/json"
	"errors"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// ErrAnswer is returned by [AnswerOf] for an action or a form that the ask does not
// offer; its text says why.
var ErrAnswer = errors.New("not an answer to this ask")

// AnswerOf makes the answer to an open ask of one of the actions of its
// run.awaiting_input and of the object that its formSchema describes (nil or null
// where the action needs none).
func AnswerOf(a run.AskView, action string, input json.RawMessage) (event.Answer, error) {
	return event.Answer{}, ErrAnswer
}
