package ingest

import (
	"strconv"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// control is a command that is one request, and is over with its answer.
type control struct{ plain }

// say makes the request whose line mk builds.
func (a *control) say(mk func(id string) ([]byte, error)) error {
	id := newRequestID()
	line, err := mk(id)
	if err != nil || line == nil {
		return err // no line: it has its final fact
	}
	a.request(&request{id: id, line: line, replies: true})
	return nil
}

// settled gives the final fact.
func (a *control) settled(detail map[string]string) {
	a.c.finishLocked(a.pending, event.Settled, "", detail)
}

// setter changes the permission mode or the model: name is mode or model.
type setter struct {
	control
	name, value, before string
}

func newSetMode(p plain) action {
	return &setter{control: control{p}, name: "mode", value: p.args.Mode}
}

func newSetModel(p plain) action {
	return &setter{control: control{p}, name: "model", value: p.args.Model}
}

func (a *setter) refuse() string {
	if a.value == "" || len(a.value) > maxArgument {
		return "bad_arguments: " + a.cmd.Name + " needs a " + a.name + " of at most " + strconv.Itoa(maxArgument) + " bytes"
	}
	return ""
}

func (a *setter) prepare() error {
	mk := dialect.SetModel
	if a.name == "mode" {
		mk = dialect.SetPermissionMode
	}
	return a.say(func(id string) ([]byte, error) {
		return mk(a.dialect(), id, a.c.rec.track.Main(), a.value)
	})
}

func (a *setter) passed(*request) {
	if a.before = a.state().Mode(); a.name == "model" {
		a.before = a.state().Model()
	}
}

// acked settles it: the child has changed it when it says so. CodeBuddy says what
// was before; of Claude Code it is what its frames said.
func (a *setter) acked(_ *request, resp dialect.Response) {
	detail := map[string]string{a.name: a.value}
	if v := resp.Body.Get(a.name).Text(); v != "" {
		detail[a.name] = bound(v, maxReason)
	}
	if v := resp.Body.Get("previous_" + a.name).Text(); v != "" {
		a.before = v
	}
	if a.before != "" {
		detail["previous_"+a.name] = bound(a.before, maxReason)
	}
	if a.name == "mode" && detail[a.name] != a.value { // a model may have another name
		a.c.finishLocked(a.pending, event.Refused, "the child is in another mode than was asked for", detail)
		return
	}
	a.settled(detail)
}

// endSession asks the child to leave, and is settled when it has.
type endSession struct {
	control
	heard bool
}

func (a *endSession) refuse() string { return "" }

func (a *endSession) prepare() error {
	return a.say(func(id string) ([]byte, error) { return dialect.EndSession(a.dialect(), id) })
}

func (a *endSession) acked(*request, dialect.Response) { a.heard = true }

func (a *endSession) ended() {
	if a.heard {
		a.settled(map[string]string{"child": "ended"})
	}
}
