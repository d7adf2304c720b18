package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// AskID is the id that cbcast gives the n-th ask of a run.
func AskID(n int) string { return "a" + strconv.Itoa(n) }

// SplitAsks splits [Class.Ask] where it names several: Claude Code lists what is
// open in its answer to initialize.
func SplitAsks(ids string) []string {
	if ids == "" {
		return nil
	}
	return strings.Split(ids, ",")
}

// maxAsksLine bounds the asks that one line names; a child has a handful open.
const maxAsksLine = 64

// asks gives every request of the child that somebody answers an id of ours, in
// the order asked. It knows the vendor's: the exact text of the id, so that 0, "",
// "7" and 7 are four, and the method or subtype.
type asks struct {
	count int
	list  []askEntry // the latest at the end
}

type askEntry struct {
	key, method, id string
}

// opened returns the id of an ask that was just told, the same when it is told
// again. An id that cannot be read (it stands twice) makes an ask that nothing
// answers.
func (a *asks) opened(id Value, method string) string {
	key := string(id)
	if len(id) == 0 || len(id) > maxJoinID {
		key = ""
	}
	if e := a.find(id); e != nil && e.method == method {
		return e.id
	}
	if len(a.list) >= maxAsks {
		a.list = slices.Delete(a.list, 0, 1)
	}
	a.count++
	a.list = append(a.list, askEntry{key, method, AskID(a.count)})
	return AskID(a.count)
}

// find returns the latest ask with this id, nil where there is none.
func (a *asks) find(id Value) *askEntry {
	if len(id) == 0 || len(id) > maxJoinID {
		return nil
	}
	for i := len(a.list) - 1; i >= 0; i-- {
		if a.list[i].key == string(id) {
			return &a.list[i]
		}
	}
	return nil
}

// of is the ask that an answer or a cancellation names, "" where it is none.
func (a *asks) of(id Value) string {
	if e := a.find(id); e != nil {
		return e.id
	}
	return ""
}

// pending gives ids to the asks that Claude Code lists as open.
func (a *asks) pending(f *Frame) string {
	var ids []string
	for _, p := range f.PendingAsks() {
		ids = append(ids, a.opened(p.Get("request_id"), p.Get("request").Get("subtype").Text()))
	}
	return strings.Join(ids, ",")
}

// PendingAsks lists the requests that are told again in Claude Code's answer to
// initialize, whole control_requests each.
func (f *Frame) PendingAsks() (list []Value) {
	if f.Type != typeControlResponse {
		return nil
	}
	resp := f.field(keyResponse)
	for _, name := range [...]string{"pending_permission_requests", "pending_user_dialog_requests"} {
		for item := range resp.Get(name).Items {
			id := item.Get("request_id")
			if len(list) < maxAsksLine && IsAsk(item.Get("request").Get("subtype").Text()) && !id.Null() {
				list = append(list, item)
			}
		}
	}
	return list
}

// Answerable reports whether a control_request has an id at all. One without, or
// with null, waits for no answer that anybody could give. An id that stands twice
// is one: the child waits, and who answers would have to guess for which.
func (f *Frame) Answerable() bool {
	return !f.ControlID().Null() || f.torn&(1<<keyRequestID) != 0
}

// EffectiveTool looks through CodeBuddy's DeferExecuteTool, which carries another
// tool and its input.
func EffectiveTool(tool string, input Value) (string, Value) {
	if tool == "DeferExecuteTool" {
		if name := input.Get("toolName").Text(); name != "" {
			return name, input.Get("params")
		}
	}
	return tool, input
}
