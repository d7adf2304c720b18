package mockmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// request is what the model looks at, the same in all protocols.
type request struct {
	Model    string
	Stream   bool
	Tools    []json.RawMessage
	Messages []message
}

type message struct {
	Role    string
	Content any
}

// last is the text of everything after the model's own last message.
func (r *request) last() string {
	from := 0
	for i, m := range r.Messages {
		if m.Role == "assistant" {
			from = i + 1
		}
	}
	var b strings.Builder
	for _, m := range r.Messages[from:] {
		if m.Role != "system" {
			flatten(&b, m.Content)
		}
	}
	return b.String()
}

// flatten collects the text of a content value: a string, or blocks that hold
// text or further content.
func flatten(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
		b.WriteByte('\n')
	case []any:
		for _, e := range v {
			flatten(b, e)
		}
	case map[string]any:
		flatten(b, v["text"])
		flatten(b, v["content"])
		flatten(b, v["encrypted_content"]) // a test's own, and clear
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone; then nobody misses it
}

// sse writes one server-sent event and flushes it.
func sse(w http.ResponseWriter, event string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if event != "" {
		fmt.Fprintf(w, "event: %s\n", event)
	}
	fmt.Fprintf(w, "data: %s\n\n", b)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// messages speaks the Anthropic Messages API.
type messages struct {
	w     http.ResponseWriter
	index int  // of the open or next content block
	text  bool // a text block is open
}

type object = map[string]any

func (p *messages) message(id, model string, content []object, stop any) object {
	return object{
		"id": id, "type": "message", "role": "assistant", "model": model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": object{"input_tokens": 10, "output_tokens": 5},
	}
}

func (p *messages) emit(typ string, v object) {
	v["type"] = typ
	sse(p.w, typ, v)
}

func (p *messages) start(id, model string) {
	p.emit("message_start", object{"message": p.message(id, model, []object{}, nil)})
}

func (p *messages) say(text string) {
	if !p.text {
		p.text = true
		p.emit("content_block_start", object{"index": p.index, "content_block": object{"type": "text", "text": ""}})
	}
	p.emit("content_block_delta", object{"index": p.index, "delta": object{"type": "text_delta", "text": text}})
}

func (p *messages) closeText() {
	if p.text {
		p.emit("content_block_stop", object{"index": p.index})
		p.text = false
		p.index++
	}
}

func (p *messages) call(id, name string, input []byte) {
	p.closeText()
	p.emit("content_block_start", object{"index": p.index, "content_block": object{"type": "tool_use", "id": id, "name": name, "input": object{}}})
	p.emit("content_block_delta", object{"index": p.index, "delta": object{"type": "input_json_delta", "partial_json": string(input)}})
	p.emit("content_block_stop", object{"index": p.index})
	p.index++
}

func (p *messages) stop(calls bool) string {
	if calls {
		return "tool_use"
	}
	return "end_turn"
}

func (p *messages) end(calls bool) {
	p.closeText()
	p.emit("message_delta", object{"delta": object{"stop_reason": p.stop(calls), "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	p.emit("message_stop", object{})
}

func (p *messages) whole(id, model, text string, calls []toolCall) {
	content := []object{}
	if text != "" {
		content = append(content, object{"type": "text", "text": text})
	}
	for _, c := range calls {
		content = append(content, object{"type": "tool_use", "id": c.id, "name": c.name, "input": json.RawMessage(c.input)})
	}
	writeJSON(p.w, http.StatusOK, p.message(id, model, content, p.stop(len(calls) > 0)))
}

// chat speaks OpenAI chat completions.
type chat struct {
	w         http.ResponseWriter
	id, model string
	calls     int
}

func (p *chat) chunk(delta object, finish any) {
	v := object{
		"id": p.id, "object": "chat.completion.chunk", "created": 1700000000, "model": p.model,
		"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
	}
	if finish != nil {
		v["usage"] = object{"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
	}
	sse(p.w, "", v)
}

func (p *chat) start(id, model string) {
	p.id, p.model = id, model
	p.chunk(object{"role": "assistant", "content": ""}, nil)
}

func (p *chat) say(text string) { p.chunk(object{"content": text}, nil) }

func (p *chat) call(id, name string, input []byte) {
	p.chunk(object{"tool_calls": []object{p.toolCall(toolCall{id, name, input})}}, nil)
}

func (p *chat) toolCall(c toolCall) object {
	i := p.calls
	p.calls++
	return object{"index": i, "id": c.id, "type": "function", "function": object{"name": c.name, "arguments": string(c.input)}}
}

func (p *chat) stop(calls bool) string {
	if calls {
		return "tool_calls"
	}
	return "stop"
}

func (p *chat) end(calls bool) {
	p.chunk(object{}, p.stop(calls))
	fmt.Fprint(p.w, "data: [DONE]\n\n")
}

func (p *chat) whole(id, model, text string, calls []toolCall) {
	msg := object{"role": "assistant", "content": text}
	if len(calls) > 0 {
		var list []object
		for _, c := range calls {
			list = append(list, p.toolCall(c))
		}
		msg["tool_calls"] = list
	}
	writeJSON(p.w, http.StatusOK, object{
		"id": id, "object": "chat.completion", "created": 1700000000, "model": model,
		"choices": []object{{"index": 0, "message": msg, "finish_reason": p.stop(len(calls) > 0)}},
		"usage":   object{"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
	})
}
