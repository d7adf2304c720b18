package workflow

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// call tells that a tool is used.
func (m *Mapper) call(n *node, item dialect.Value) {
	id := run.BoundID(item.Get("id").Text())
	name, in := dialect.EffectiveTool(item.Get("name").Text(), item.Get("input"))
	m.toolStarted(n, id, id, name, rawSummary(in))
}

func (m *Mapper) toolStarted(n *node, key, id, name string, input *Summary) {
	if id == "" || m.tools[key] != nil || len(m.tools) >= maxTools {
		return
	}
	m.tools[key] = &tool{node: n, id: id}
	n.tools = append(n.tools, key)
	m.emit(NodeToolStarted, n, NodeToolStartedData{ToolCallID: id, Name: clip(name, MaxTitle), Input: input})
}

// Statuses of a tool that has finished.
const (
	toolCompleted   = "completed"
	toolFailed      = "failed"
	toolDenied      = "denied"
	toolNotReported = "not_reported"
)

// result reads the result of a call. It also ends the sub-agent that was called.
func (m *Mapper) result(item dialect.Value) {
	call := run.BoundID(item.Get("tool_use_id").Text())
	status, code := toolCompleted, ""
	if item.Get("is_error").True() {
		status, code = toolFailed, CodeNodeFailed
	}
	output := resultText(item.Get("content"))
	if n := m.subs[call]; n != nil {
		m.closeNode(n, ending{status: status, reported: true, code: code, message: output, output: output})
	}
	m.toolFinished(call, status, output)
}

func (m *Mapper) toolFinished(key, status, output string) {
	c := m.tools[key]
	if c == nil {
		return
	}
	delete(m.tools, key)
	c.node.tools = slices.DeleteFunc(c.node.tools, func(k string) bool { return k == key })
	m.emit(NodeToolFinished, c.node, NodeToolFinishedData{ToolCallID: c.id, Status: status, Output: summary(output, MaxSummary)})
}

// resultText is the text of a tool's result: a string, or the texts of a list.
func resultText(v dialect.Value) string {
	if v.IsString() {
		return v.Text()
	}
	var b strings.Builder
	for item := range v.Items {
		if b.Len() > MaxSummary {
			break
		}
		if item.Get("type").Text() == "text" {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(item.Get("text").Text())
		}
	}
	return b.String()
}

// rawSummary is the text of a JSON value, as the child wrote it.
func rawSummary(v dialect.Value) *Summary {
	if v.Null() {
		return nil
	}
	n := len(v)
	s := summary(string(v[:min(n, MaxSummary+utf8.UTFMax)]), MaxSummary)
	s.Truncated = n > MaxSummary
	return s
}
