package run

import (
	"slices"
	"strconv"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// codexItem folds item/started and item/completed.
func (s *State) codexItem(e *event.Event, m *dialect.RPC) {
	item := m.Params.Get("item")
	id, typ := boundID(item.Get("id").Text()), clip(item.Get("type").Text(), maxText)
	done := m.Method == dialect.MethodItemCompleted
	t := s.threadOf(m)
	if t == nil {
		return
	}
	ct := s.codexTurn(m)
	s.countItem(t, typ, item, done)
	if typ == "subAgentActivity" || typ == "collabAgentToolCall" {
		s.agentItem(e, item, typ, ct)
	}
	if k := s.tasks[id]; k != nil && k.typ == "command" && k.thread == t.id {
		if done {
			s.commandEnded(e, k, item)
			s.codexOutcome(e, m, id, item)
		}
		return
	}
	switch {
	case ct == nil:
	case done:
		if typ == "userMessage" && ct.work != nil && t.host {
			ct.work.origin = "user" // also where stdin is not recorded
		}
		ct.end(id, item.Get("status").Text())
		s.codexOutcome(e, m, id, item)
	case t.turn == ct:
		ct.begin(id, typ, item, e.Seq)
	}
}

func (ct *codexTurn) begin(id, typ string, item dialect.Value, seq uint64) {
	if _, ok := ct.open[id]; ok || len(ct.open) >= maxOpen {
		return
	}
	ct.items.Started++
	it := openItem{typ: typ, seq: seq}
	switch typ {
	case "commandExecution":
		it.text, it.process = clip(item.Get("command").Text(), maxText), clip(item.Get("processId").Text(), maxText)
	case "mcpToolCall":
		it.text, it.process = clip(item.Get("tool").Text(), maxText), clip(item.Get("server").Text(), maxText)
	case "fileChange":
		it.setChanges(item.Get("changes"))
	}
	ct.open[id] = it
	ct.order = append(ct.order, id)
}

// setChanges keeps what a change of files is about, for who is asked to allow it:
// the request itself does not say.
func (it *openItem) setChanges(list dialect.Value) {
	n := 0
	for c := range list.Items {
		if n++; n == 1 {
			it.text = clip(c.Get("path").Text(), maxText)
		}
	}
	if n > 1 {
		it.text += " and " + strconv.Itoa(n-1) + " more"
	}
	if it.long = len(list) > maxInput; !it.long && list.IsArray() {
		it.changes = append(append([]byte(`{"changes":`), list...), '}')
	}
}

func (ct *codexTurn) end(id, status string) {
	if _, ok := ct.open[id]; !ok {
		return // it began before this fold, or is one too many
	}
	delete(ct.open, id)
	ct.order = slices.DeleteFunc(ct.order, func(have string) bool { return have == id })
	switch status {
	case "failed":
		ct.items.Failed++
	case "declined":
		ct.items.Declined++
	default:
		ct.items.Completed++
	}
}

// countItem counts messages and calls.
func (s *State) countItem(t *thread, typ string, item dialect.Value, done bool) {
	switch typ {
	case "agentMessage", "plan": // a plan is what plan mode ends with
		if done {
			s.counts.Messages++
			t.said = clip(item.Get("text").Text(), maxResultText+1)
		}
	case "commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch", "imageView", "imageGeneration", "collabAgentToolCall":
		if done {
			return
		}
		s.counts.ToolCalls++
		t.calls++
		if t.tool = clip(item.Get("tool").Text(), maxText); t.tool == "" {
			t.tool = typ
		}
	}
}

// commandEnded ends a background command.
func (s *State) commandEnded(e *event.Event, k *task, item dialect.Value) {
	if k.ended {
		s.lateFrame(k)
		return
	}
	if v := item.Get("exitCode"); !v.Null() {
		k.summary = "exit code " + clip(string(v), maxText)
	}
	status := "failed"
	var by *interrupt
	if item.Get("status").Text() == "completed" {
		status = "completed"
	} else if by = s.terminated(k, e.Seq); by != nil {
		status = "stopped" // Codex has no word of its own for it
	}
	k.end(status, e.Seq, s.now, false)
	s.codexTaskOver(e.Seq, k, by)
}

// terminated finds the request that ended a background command, nil where it did
// so by itself.
func (s *State) terminated(k *task, seq uint64) *interrupt {
	for _, in := range s.interrupts {
		if in.What == "stop_task" && in.Task == k.id && in.EndedSeq == 0 && in.Error == "" {
			in.EndedSeq, in.Effect = seq, "task"
			return in
		}
	}
	return nil
}

// codexTaskOver judges a task's end for its turn; in is the interrupt that ended it.
func (s *State) codexTaskOver(seq uint64, k *task, in *interrupt) {
	work := s.turn(k.turn)
	switch {
	case work == nil || k.status == "completed":
	case in != nil:
		k.by = in.What
		work.ev.add(Interrupted, Evidence{seq, byKilled, k.id})
		work.ev.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, stopText(in)})
	default:
		work.ev.add(Incomplete, Evidence{seq, byTask, k.id + " " + k.status})
	}
}

// setPlan replaces the plan: each update has the whole list, and its steps have
// no ids.
func (ct *codexTurn) setPlan(list dialect.Value) {
	ct.plan = nil
	for step := range list.Items {
		if len(ct.plan) < maxSteps {
			ct.plan = append(ct.plan, PhaseView{
				Index: int64(len(ct.plan)), Title: clip(step.Get("step").Text(), maxText), Status: clip(step.Get("status").Text(), maxText),
			})
		}
	}
}

// codexTokens counts what a thread used: each update restates its total. The
// first one of a thread that has a history, told before any turn of this run,
// holds what earlier runs used.
func (s *State) codexTokens(m *dialect.RPC) {
	t := s.threadOf(m)
	if t == nil {
		return
	}
	ct := s.codexTurn(m)
	usage := m.Params.Get("tokenUsage")
	total := codexUsed(usage.Get("total"))
	before := t.total
	if !t.counted {
		before = total
		if ct != nil {
			before = less(total, codexUsed(usage.Get("last")))
		}
	}
	t.total, t.counted = total, true
	add := less(total, before)
	t.used.add(add)
	s.use.tokens.add(add)
	if u, ok := s.use.models[t.model]; t.model != "" && (ok || len(s.use.models) < maxModels) {
		u.add(add)
		s.use.models[t.model] = u
	}
	work := t.parent
	if ct != nil && ct.work != nil {
		work = ct.work
	}
	if work != nil {
		work.tokens.add(add)
	}
}

func less(a, b Tokens) Tokens {
	return Tokens{
		Input: rise(b.Input, a.Input), Output: rise(b.Output, a.Output),
		CacheRead: rise(b.CacheRead, a.CacheRead), CacheCreate: rise(b.CacheCreate, a.CacheCreate),
	}
}

// codexUsed reads a count of tokens. What came from the cache is part of Codex's
// input, and stands beside it here, as in the other dialects. Its totalTokens is
// the size of the context, and made up where the model gave none.
func codexUsed(v dialect.Value) Tokens {
	cached := number(v.Get("cachedInputTokens"))
	return Tokens{
		Input: max(0, number(v.Get("inputTokens"))-cached), Output: number(v.Get("outputTokens")),
		CacheRead: cached, CacheCreate: number(v.Get("cacheWriteInputTokens")),
	}
}
