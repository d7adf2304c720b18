package ingest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
)

// Questions whose text is not shown whole have an id that can be answered by, and
// what is masked in an ask is masked in what is said of it.
func TestQuestionHidden(t *testing.T) {
	secret := "ghp_" + strings.Repeat("a1B2", 9)
	long := strings.Repeat("x", 3000) + "?"
	texts := []string{"Use " + secret + "?", long, "Which?"}
	input := fmt.Sprintf(`{"questions":[{"question":%q},{"question":%q},{"question":%q}]}`, texts[0], texts[1], texts[2])
	r := session(t, claude)
	r.say(ask(`"q1"`, "AskUserQuestion", input))
	r.await("the ask", func(e *event.Event) bool { return e.Ext["ask"] == "a1" })
	f := view(r.w.history(t, r.run)).Asks[0].Form
	answers := map[string]string{}
	for i, q := range f.Questions {
		answers[q.ID] = fmt.Sprint("answer ", i)
	}
	some, _ := json.Marshal(map[string]string{"Which?": "x"})
	got := r.final(r.answer("a1", `"decision":"answer","answers":`+string(some)))
	if len(got) != 1 || !strings.Contains(got[0], "has no answer") {
		t.Errorf("a question was left out: %q", got)
	}
	all, _ := json.Marshal(answers)
	id := r.answer("a1", `"decision":"answer","answers":`+string(all))
	_, body := r.heard()
	var said struct {
		Input struct{ Answers map[string]string } `json:"updatedInput"`
	}
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		t.Fatal(err)
	}
	equal(t, "answers", said.Input.Answers, map[string]string{texts[0]: "answer 0", texts[1]: "answer 1", texts[2]: "answer 2"})
	r.say(claude.toolResult(`"q1"`, false))
	equal(t, "facts", r.final(id), []string{written, settled})
	// The child's own words stand in a fact, too.
	req := r.command("set_model", `{"model":"m"}`)
	key := r.request().ID
	r.say(`{"type":"control_response","response":{"subtype":"error","request_id":"` + key + `","error":"no ` + secret + `"}}`)
	if got := r.final(req); !strings.Contains(strings.Join(got, " "), "refused: ") {
		t.Errorf("facts %q", got)
	}
	r.quietly()
	r.exit(0)
	for _, e := range r.w.history(t, r.run) {
		if strings.Contains(string(e.Data), secret) {
			t.Errorf("event %d %s tells it: %.300s", e.Seq, e.Type, e.Data)
		}
		if e.Stream == event.Edge && !json.Valid(e.Data) {
			t.Errorf("event %d is no JSON: %s", e.Seq, e.Data)
		}
	}
}
