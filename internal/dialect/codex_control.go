package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

func init() { // stop_task is an interrupt of a sub-agent's turn, or the end of a background command
	obeyed[Codex] = []string{"interrupt", "stop_task", "message", "steer"}
}

// codexResponse is [ResponseOf] for Codex.
func codexResponse(m *RPC) Response {
	r := Response{ID: m.ID, Body: m.Result}
	if m.Error != nil {
		if r.Error = m.Error.Get("message").Text(); r.Error == "" {
			r.Error = "error without text"
		}
	}
	return r
}

// CodexThread is what a thread is started or resumed with; "" is left to Codex.
type CodexThread struct {
	Cwd      string
	Model    string
	Approval string // untrusted, on-request, never
	// Sandbox is read-only, workspace-write or danger-full-access. A resumed thread
	// keeps its approval policy and model but not its sandbox: send it again.
	Sandbox string
}

// CodexInitialize returns the lines that open a connection: the request, and the
// notification that follows its answer. Without the experimental interface some
// requests of the host are refused; Codex sends the same either way.
func CodexInitialize(requestID, version string) (request, initialized []byte) {
	b := rpcRequest(requestID, MethodInitialize)
	b = append(b, `"clientInfo":{"name":"cbcast","title":"cbcast","version":`...)
	b = AppendASCII(b, version)
	b = append(b, `},"capabilities":{"experimentalApi":true}`...)
	return rpcEnd(b), []byte(`{"method":"initialized"}` + "\n")
}

// CodexThreadStart returns the request for a new thread.
func CodexThreadStart(requestID string, t CodexThread) []byte {
	return rpcEnd(t.append(rpcRequest(requestID, MethodThreadStart), true))
}

// CodexThreadResume returns the request to go on with a thread. Its history is
// not asked for.
func CodexThreadResume(requestID, thread string, t CodexThread) []byte {
	b := rpcRequest(requestID, MethodThreadResume)
	b = AppendASCII(append(b, `"threadId":`...), thread)
	b = append(b, `,"excludeTurns":true`...)
	return rpcEnd(t.append(b, false))
}

func (t CodexThread) append(b []byte, first bool) []byte {
	for _, f := range [...]struct{ key, value string }{
		{"cwd", t.Cwd}, {"model", t.Model}, {"approvalPolicy", t.Approval}, {"sandbox", t.Sandbox},
	} {
		if f.value == "" {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, f.key...)
		b = AppendASCII(append(b, `":`...), f.value)
	}
	return b
}

// CodexTurnStart returns the request for a turn. While one runs on the thread it
// would steer that one. content is a string or a list of content blocks, text and
// images. Codex echoes uuid as the message's clientId and runs a repeated one again.
func CodexTurnStart(requestID, thread, uuid string, content json.RawMessage) ([]byte, error) {
	b := rpcRequest(requestID, MethodTurnStart)
	b = AppendASCII(append(b, `"threadId":`...), thread)
	return codexInput(b, uuid, content)
}

// CodexTurnSteer returns the request that adds a message to the running turn. It
// fails where that turn is no longer the one that runs.
func CodexTurnSteer(requestID, thread, turn, uuid string, content json.RawMessage) ([]byte, error) {
	b := rpcRequest(requestID, MethodTurnSteer)
	b = AppendASCII(append(b, `"threadId":`...), thread)
	b = AppendASCII(append(b, `,"expectedTurnId":`...), turn)
	return codexInput(b, uuid, content)
}

func codexInput(b []byte, uuid string, content json.RawMessage) ([]byte, error) {
	if uuid != "" {
		b = AppendASCII(append(b, `,"clientUserMessageId":`...), uuid)
	}
	b = append(b, `,"input":[`...)
	b, err := appendCodexInput(b, Value(content))
	if err != nil {
		return nil, err
	}
	return rpcEnd(append(b, ']')), nil
}

// ErrContent is returned for a message that the child cannot be given.
var ErrContent = errors.New("content is no text and no list of text and image blocks")

// appendCodexInput translates content blocks as the Messages API has them.
func appendCodexInput(b []byte, content Value) ([]byte, error) {
	if !json.Valid(content) {
		return nil, ErrContent
	}
	if content.IsString() {
		return appendCodexText(b, content), nil
	}
	n := 0
	for block := range content.Items {
		if n++; n > 1 {
			b = append(b, ',')
		}
		switch block.Get("type").Text() {
		case "text":
			if !block.Get("text").IsString() {
				return nil, ErrContent
			}
			b = appendCodexText(b, block.Get("text"))
		case "image":
			url, ok := imageURL(block)
			if !ok {
				return nil, ErrContent
			}
			b = append(AppendASCII(append(b, `{"type":"image","url":`...), url), '}')
		default:
			return nil, fmt.Errorf("%w: there is a block of type %.40q", ErrContent, block.Get("type").Text())
		}
	}
	if n == 0 {
		return nil, ErrContent
	}
	return b, nil
}

func appendCodexText(b []byte, text Value) []byte {
	b = AppendASCII(append(b, `{"type":"text","text":`...), text.Text())
	return append(b, `,"text_elements":[]}`...)
}

// imageURL is the address of an image block: its own, or its data as a data URL.
func imageURL(block Value) (string, bool) {
	source := block.Get("source")
	switch source.Get("type").Text() {
	case "url":
		return source.Get("url").Text(), source.Get("url").IsString()
	case "base64":
		kind, data := source.Get("media_type").Text(), source.Get("data").Text()
		return "data:" + kind + ";base64," + data, kind != "" && data != ""
	}
	return "", false
}

// CodexInterrupt returns the request that ends a turn: of the main thread, or of
// a sub-agent's, which an interrupt of its parent leaves running.
func CodexInterrupt(requestID, thread, turn string) []byte {
	b := rpcRequest(requestID, MethodTurnInterrupt)
	b = AppendASCII(append(b, `"threadId":`...), thread)
	return rpcEnd(AppendASCII(append(b, `,"turnId":`...), turn))
}

// CodexTerminate returns the request that ends a background command by the id of
// its process, as its item names it.
func CodexTerminate(requestID, thread, process string) []byte {
	b := rpcRequest(requestID, MethodTerminate)
	b = AppendASCII(append(b, `"threadId":`...), thread)
	return rpcEnd(AppendASCII(append(b, `,"processId":`...), process))
}

// CodexError returns the answer to a request of the child that nobody here can
// serve. It decides: Codex goes on with "failed" or "declined". id is the exact
// text of the request's.
func CodexError(id Value, message string) []byte {
	b := appendASCIIValue([]byte(`{"id":`), id)
	b = append(b, `,"error":{"code":-32601,"message":`...)
	return append(AppendASCII(b, message), "}}\n"...)
}

func rpcRequest(id, method string) []byte {
	b := AppendASCII([]byte(`{"id":`), id)
	b = append(b, `,"method":"`...)
	b = append(b, method...)
	return append(b, `","params":{`...)
}

func rpcEnd(b []byte) []byte { return append(b, "}}\n"...) }

// appendASCIIValue appends a JSON value as it is written, in printable ASCII only:
// other characters, which stand in strings alone, become escapes, space between
// tokens a space. What is no UTF-8 becomes U+FFFD.
func appendASCIIValue(b []byte, v Value) []byte {
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case c >= ' ' && c < 0x7f:
			b = append(b, c)
			i++
		case c < ' ':
			b = append(b, ' ')
			i++
		default:
			r, n := utf8.DecodeRune(v[i:])
			if r < 0x10000 {
				b = appendHex4(b, uint64(r))
			} else {
				r -= 0x10000
				b = appendHex4(b, uint64(0xd800+(r>>10)))
				b = appendHex4(b, uint64(0xdc00+(r&0x3ff)))
			}
			i += n
		}
	}
	return b
}
