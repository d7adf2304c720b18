package dialect

import "bytes"

// RPCKind is what a JSON-RPC frame is.
type RPCKind uint8

// The kinds.
const (
	RPCNotification RPCKind = iota
	RPCRequest
	RPCResponse
)

// RPC is a frame of codex app-server: JSON-RPC 2.0 without the key "jsonrpc".
type RPC struct {
	Kind   RPCKind
	Method string // "" of a response
	// ID is the exact text of a request's or response's id, so that 0 and "0"
	// differ; nil where it is null, stands twice with two values, or is no string
	// and no whole number. Codex counts its own from 0 in each process.
	ID     Value
	Params Value
	Result Value
	Error  Value // of a response that is one
	// Emitted is when a notification was written, in Unix milliseconds.
	Emitted Value
}

// RPC reads the frame as JSON-RPC. It is none where it has a "type", like every
// frame of the other dialects, or neither a method nor an id with a result.
func (f *Frame) RPC() (RPC, bool) {
	if f.has(keyType) {
		return RPC{}, false
	}
	m := RPC{Params: f.field(keyParams), ID: rpcID(f.field(keyID)), Emitted: f.field(keyEmitted)}
	method := f.field(keyMethod)
	switch {
	case method.IsString():
		m.Method = intern(method)
		if f.has(keyID) {
			m.Kind = RPCRequest
		}
	case f.has(keyMethod) || !f.has(keyID) || !f.has(keyResult) && !f.has(keyError):
		return RPC{}, false
	default:
		m.Kind = RPCResponse
		m.Result, m.Error = f.field(keyResult), f.field(keyError)
		if f.has(keyError) && m.Error.Null() && f.has(keyResult) {
			m.Error = nil
		} else if f.has(keyError) && m.Error == nil {
			m.Error = Value("null")
		}
	}
	return m, true
}

// rpcID is id where requests may have it, otherwise nil.
func rpcID(id Value) Value {
	if id.IsString() {
		return id
	}
	if len(id) > 0 && (id[0] == '-' || id[0]-'0' <= 9) && !bytes.ContainsAny(id, ".eE") {
		return id
	}
	return nil
}

// Thread is the id of the thread that a frame of Codex is about, as text, nil
// where it names none: a response names one only in the thread it returns.
func (m *RPC) Thread() Value {
	switch m.Kind {
	case RPCResponse:
		return m.Result.Get("thread").Get("id")
	default:
		if v := m.Params.Get("threadId"); v.IsString() {
			return v
		}
		return m.Params.Get("thread").Get("id")
	}
}

// Turn is the id of the turn that a frame of Codex is about, nil where it names none.
func (m *RPC) Turn() Value {
	switch m.Kind {
	case RPCResponse:
		if v := m.Result.Get("turnId"); v.IsString() {
			return v
		}
		return m.Result.Get("turn").Get("id")
	default:
		if v := m.Params.Get("turnId"); v.IsString() {
			return v
		}
		return m.Params.Get("turn").Get("id")
	}
}

// AmbiguousRPC reports whether two readers may see two meanings in the frame; see
// [Frame.AmbiguousControl].
func (f *Frame) AmbiguousRPC(m *RPC) bool {
	return f.Dup || ambiguous(f.Raw, true, false) || ambiguous(m.Params, true, true) || ambiguous(m.Result, true, true)
}
