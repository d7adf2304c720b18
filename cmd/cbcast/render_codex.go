package main

import (
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
)

// codexSummary picks what a person wants to read of a frame of Codex.
func codexSummary(m *dialect.RPC) string {
	p := m.Params
	switch {
	case m.Kind == dialect.RPCResponse && m.Error != nil:
		return "error  " + short(m.Error.Get("message").Text())
	case m.Kind == dialect.RPCResponse:
		return ""
	case m.Method == dialect.MethodItemStarted, m.Method == dialect.MethodItemCompleted:
		return codexItem(p.Get("item"))
	case m.Method == dialect.MethodTurnCompleted:
		turn := p.Get("turn")
		return short(strings.Join(compact([]string{turn.Get("status").Text(), turn.Get("error").Get("message").Text()}), " "))
	case m.Method == dialect.MethodPlan:
		return codexPlan(p.Get("plan"))
	}
	parts := []string{
		p.Get("command").Text(), p.Get("reason").Text(), p.Get("message").Text(), p.Get("delta").Text(), p.Get("summary").Text(),
		p.Get("status").Get("type").Text(), p.Get("error").Get("message").Text(),
	}
	for q := range p.Get("questions").Items {
		parts = append(parts, q.Get("question").Text())
	}
	return short(strings.Join(compact(parts), " "))
}

// codexItem is what an item says or does.
func codexItem(item dialect.Value) string {
	parts := []string{
		item.Get("type").Text(), item.Get("text").Text(), item.Get("command").Text(), item.Get("tool").Text(), item.Get("kind").Text(),
		item.Get("agentPath").Text(), item.Get("status").Text(),
	}
	for c := range item.Get("changes").Items {
		parts = append(parts, c.Get("path").Text())
	}
	for c := range item.Get("content").Items {
		parts = append(parts, c.Get("text").Text())
	}
	return short(strings.Join(compact(parts), " "))
}

// codexPlan is the step in hand, and how many are done.
func codexPlan(list dialect.Value) string {
	now, done, all := "", 0, 0
	for step := range list.Items {
		all++
		switch step.Get("status").Text() {
		case "completed":
			done++
		case "inProgress":
			now = step.Get("step").Text()
		}
	}
	return short(strings.TrimSpace(strconv.Itoa(done) + "/" + strconv.Itoa(all) + " " + now))
}
