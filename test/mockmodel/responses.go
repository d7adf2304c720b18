package mockmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// responsesRequest is a request of the OpenAI Responses API, as Codex makes it.
type responsesRequest struct {
	Model  string
	Stream bool
	Tools  []json.RawMessage
	Input  []struct {
		Type, Role      string
		Content, Output any
	}
}

// common is the same request in the form of the other protocols: what the model
// said and called is the assistant's, outputs of tools are the user's.
func (r *responsesRequest) common() request {
	req := request{Model: r.Model, Stream: r.Stream, Tools: r.Tools}
	for _, in := range r.Input {
		m := message{Role: in.Role, Content: in.Content}
		switch {
		case strings.HasSuffix(in.Type, "_output"):
			m = message{Role: "user", Content: in.Output}
		case in.Type == "agent_message": // from another agent of Codex
			m.Role = "user"
		case in.Role == "developer":
			m.Role = "system"
		case in.Role == "":
			m = message{Role: "assistant"} // a call, or reasoning
		}
		req.Messages = append(req.Messages, m)
	}
	return req
}

// responses speaks the OpenAI Responses API.
type responses struct {
	w     http.ResponseWriter
	id    string
	seq   int
	items []object // the finished output items
	text  *strings.Builder
}

func (p *responses) emit(typ string, v object) {
	v["type"], v["sequence_number"] = typ, p.seq
	p.seq++
	sse(p.w, typ, v)
}

func (p *responses) itemID(prefix string) string {
	return fmt.Sprintf("%s_%s_%d", prefix, p.id, len(p.items))
}

func (p *responses) start(id, _ string) {
	p.id = id
	p.emit("response.created", object{"response": object{"id": id, "object": "response", "status": "in_progress", "output": []object{}}})
}

func (p *responses) message(text string) object {
	return object{
		"id": p.itemID("msg"), "type": "message", "role": "assistant", "status": "completed",
		"content": []object{{"type": "output_text", "text": text, "annotations": []any{}}},
	}
}

func (p *responses) say(text string) {
	if p.text == nil {
		p.text = &strings.Builder{}
		p.added(object{"id": p.itemID("msg"), "type": "message", "role": "assistant", "status": "in_progress", "content": []any{}})
	}
	p.text.WriteString(text)
	p.emit("response.output_text.delta", object{"item_id": p.itemID("msg"), "output_index": len(p.items), "content_index": 0, "delta": text})
}

func (p *responses) closeText() {
	if p.text != nil {
		p.done(p.message(p.text.String()))
		p.text = nil
	}
}

func (p *responses) added(item object) {
	p.emit("response.output_item.added", object{"output_index": len(p.items), "item": item})
}

func (p *responses) done(item object) {
	p.emit("response.output_item.done", object{"output_index": len(p.items), "item": item})
	p.items = append(p.items, item)
}

// toolCall is a function call; with a string for its input it is the call of a
// custom tool. The part of a name before a slash is its namespace.
func (p *responses) toolCall(c toolCall) object {
	var text string
	if json.Unmarshal(c.input, &text) == nil {
		return object{"id": p.itemID("ctc"), "type": "custom_tool_call", "status": "completed", "name": c.name, "call_id": c.id, "input": text}
	}
	item := object{"id": p.itemID("fc"), "type": "function_call", "status": "completed", "name": c.name, "call_id": c.id, "arguments": string(c.input)}
	if space, name, ok := strings.Cut(c.name, "/"); ok {
		item["namespace"], item["name"] = space, name
	}
	return item
}

func (p *responses) call(id, name string, input []byte) {
	p.closeText()
	item := p.toolCall(toolCall{id, name, input})
	p.added(item)
	p.done(item)
}

func (p *responses) whole(id, _, text string, calls []toolCall) {
	p.id = id
	if text != "" {
		p.items = append(p.items, p.message(text))
	}
	for _, c := range calls {
		p.items = append(p.items, p.toolCall(c))
	}
	writeJSON(p.w, http.StatusOK, p.response())
}

func (p *responses) end(bool) {
	p.closeText()
	p.emit("response.completed", object{"response": p.response()})
}

func (p *responses) response() object {
	return object{
		"id": p.id, "object": "response", "status": "completed", "output": p.items,
		"usage": object{
			"input_tokens": 10, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": 5, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 15,
		},
	}
}
