package workflow

import (
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// codexSpeaker is the node of the thread that a frame is about, nil for none that
// the stream is about.
func (m *Mapper) codexSpeaker(r *dialect.RPC) (n *node, thread string) {
	thread = run.BoundID(r.Thread().Text())
	if n := m.rounds[thread]; n != nil {
		return n, thread
	}
	return m.bodyOf(thread), thread
}

// codexDelta reads a piece of a message or of a plan.
func (m *Mapper) codexDelta(r *dialect.RPC) (n *node, channel, text string) {
	switch r.Method {
	case "item/agentMessage/delta":
		channel = ChannelText
	case "item/plan/delta":
		channel = ChannelPlan
	default:
		return nil, "", ""
	}
	n, thread := m.codexSpeaker(r)
	if n == nil {
		return nil, "", ""
	}
	m.streamed.add(codexKey(thread, r.Params.Get("itemId")))
	return n, channel, r.Params.Get("delta").Text()
}

// codexKey names an item: its id is one of its thread.
func codexKey(thread string, item dialect.Value) string {
	return thread + "\x00" + run.BoundID(item.Text())
}

// codexItem maps what a notification says and does.
func (m *Mapper) codexItem(r *dialect.RPC) {
	switch r.Method {
	case dialect.MethodItemStarted, dialect.MethodItemCompleted:
	case dialect.MethodPlan:
		m.plan(r)
		return
	default:
		return
	}
	item := r.Params.Get("item")
	typ, id := item.Get("type").Text(), run.BoundID(item.Get("id").Text())
	n, thread := m.codexSpeaker(r)
	key := codexKey(thread, item.Get("id"))
	done := r.Method == dialect.MethodItemCompleted
	switch typ {
	case "agentMessage", "plan":
		if t := item.Get("text").Text(); n != nil && done && t != "" && !m.streamed.has(key) {
			channel := ChannelText
			if typ == "plan" {
				channel = ChannelPlan
			}
			m.say(n, channel, t)
		}
	case "commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch", "imageView", "imageGeneration", "collabAgentToolCall":
		switch {
		case done:
			m.toolFinished(key, codexStatus(item.Get("status").Text()), codexOutput(typ, item))
		case n != nil:
			name, input := codexCall(typ, item)
			m.toolStarted(n, key, id, name, input)
		}
	}
}

// codexCall is the name of a tool, and what it is called with.
func codexCall(typ string, item dialect.Value) (name string, input *Summary) {
	name = typ
	switch typ {
	case "commandExecution":
		return name, summary(item.Get("command").Text(), MaxSummary)
	case "fileChange":
		var paths []string
		for c := range item.Get("changes").Items {
			if len(paths) < maxArtifacts {
				paths = append(paths, c.Get("path").Text())
			}
		}
		return name, summary(strings.Join(paths, "\n"), MaxSummary)
	case "mcpToolCall":
		return item.Get("server").Text() + "/" + item.Get("tool").Text(), rawSummary(item.Get("arguments"))
	case "dynamicToolCall":
		return item.Get("tool").Text(), rawSummary(item.Get("arguments"))
	case "collabAgentToolCall":
		return item.Get("tool").Text(), summary(item.Get("prompt").Text(), MaxSummary)
	case "webSearch":
		return name, summary(item.Get("query").Text(), MaxSummary)
	case "imageView":
		return name, summary(item.Get("path").Text(), MaxSummary)
	}
	return name, nil
}

func codexOutput(typ string, item dialect.Value) string {
	switch typ {
	case "commandExecution":
		return item.Get("aggregatedOutput").Text()
	case "mcpToolCall":
		if msg := item.Get("error").Get("message").Text(); msg != "" {
			return msg
		}
		return resultText(item.Get("result").Get("content"))
	}
	return ""
}

func codexStatus(status string) string {
	switch status {
	case "failed":
		return toolFailed
	case "declined":
		return toolDenied
	}
	return toolCompleted
}

// plan tells what an update of a turn's plan changed: its steps are nodes, by their
// place, for they have no ids.
func (m *Mapper) plan(r *dialect.RPC) {
	main := m.rounds[run.BoundID(r.Thread().Text())]
	if main == nil {
		return
	}
	v, ok := m.state.Turn(main.turn)
	if !ok || len(v.Phases) == 0 {
		return
	}
	done := 0
	for _, p := range v.Phases {
		m.step(main, p)
		if p.Status == "completed" {
			done++
		}
	}
	percent := 100 * done / len(v.Phases)
	d := main.last
	d.Percent = &percent
	m.progress(main, d)
}

func (m *Mapper) step(main *node, p run.PhaseView) {
	n := m.steps[p.Index]
	if n != nil && (n.round != main || n.done && p.Status == "inProgress") {
		n = nil // of an earlier turn, or it is done once more
	}
	if n == nil {
		if len(m.open) >= maxNodes {
			return
		}
		id := "step/" + phaseID(p.Index+1)
		m.attempts[id]++
		n = newNode(id, m.attempts[id], NodeInfo{Kind: "step", Label: p.Title, ParentNodeID: main.id}, "")
		n.round = main
		m.steps[p.Index] = n
		if p.Status == "pending" {
			m.queue(n)
		}
	}
	if n.done || p.Status == "pending" {
		return
	}
	if !n.isStarted {
		m.startNode(n, nil, 0)
	}
	if p.Status == "completed" {
		n.done = true
		m.closeNode(n, ending{status: "completed", reported: true})
	}
}
