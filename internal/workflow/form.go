package workflow

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// Ids of actions.
const (
	ActionAllow        = "allow"
	ActionAllowSession = "allow_session" // and the like, for the rest of the session
	ActionAnswer       = "answer"
	ActionDeny         = "deny"
	ActionDenyStop     = "deny_and_stop" // and end the turn
)

// Values of [Action.Form].
const (
	formRequired = "required"
	formOptional = "optional"
	formNone     = "none"
)

// actions lists what can be answered to an ask, none where only its host can.
func actions(v *run.AskView) []Action {
	if v.Ambiguous || v.Form == nil {
		return []Action{}
	}
	deny := []Action{{ActionDeny, "Deny", formOptional}}
	switch {
	case v.Class == run.Approval:
		list := []Action{{ActionAllow, "Allow", formNone}}
		if v.Form.Session {
			list = append(list, Action{ActionAllowSession, "Allow for this session", formNone})
		}
		return append(append(list, deny...), Action{ActionDenyStop, "Deny and stop", formOptional})
	case v.Kind == "plan":
		return []Action{{ActionAllow, "Approve the plan", formNone}, {ActionDeny, "Keep planning", formOptional}}
	case len(fieldsOf(v)) > 0:
		if secret(v) {
			return deny // answers are recorded: a secret is given at the host
		}
		return append([]Action{{ActionAnswer, "Answer", formRequired}}, deny...)
	case v.Kind == "elicitation":
		return append([]Action{{ActionAllow, "Accept", formNone}}, deny...)
	}
	return deny
}

func secret(v *run.AskView) bool {
	for _, q := range v.Form.Questions {
		if q.Secret {
			return true
		}
	}
	return false
}

// schema is the part of JSON Schema that forms of ours have. All texts in it are
// the child's.
type schema struct {
	Type        string            `json:"type,omitempty"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Const       json.RawMessage   `json:"const,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
	OneOf       []schema          `json:"oneOf,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
	Format      string            `json:"format,omitempty"`
	MinLength   *int64            `json:"minLength,omitempty"`
	MaxLength   *int64            `json:"maxLength,omitempty"`
	Minimum     json.RawMessage   `json:"minimum,omitempty"`
	Maximum     json.RawMessage   `json:"maximum,omitempty"`
	Items       *schema           `json:"items,omitempty"`
	MinItems    *int64            `json:"minItems,omitempty"`
	Unique      bool              `json:"uniqueItems,omitempty"`
	WriteOnly   bool              `json:"writeOnly,omitempty"`
}

// A field is one member of a form's object.
type field struct {
	name     string // in the form
	schema   schema
	required bool
	// Of a question: its place, and whether the field is for an answer of one's own.
	question int
	other    bool
}

// fieldMessage is what goes with a denial.
const fieldMessage = "message"

// formSchema describes the object that goes with an action, as a JSON Schema.
func formSchema(v *run.AskView) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{`)
	var required, either []json.RawMessage
	fields := fieldsOf(v)
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(appendString(nil, f.name))
		b.WriteByte(':')
		b.Write(encode(f.schema))
		name := appendString(nil, f.name)
		switch {
		case f.other:
			either = append(either, encode(map[string]any{"anyOf": []any{
				map[string]any{"required": []json.RawMessage{appendString(nil, fields[i-1].name)}},
				map[string]any{"required": []json.RawMessage{name}},
			}}))
		case f.required && (i+1 == len(fields) || !fields[i+1].other):
			required = append(required, name)
		}
	}
	if len(fields) == 0 && v.Form != nil && !v.Ambiguous {
		b.Write(appendString(nil, fieldMessage))
		b.WriteByte(':')
		b.Write(encode(schema{Type: "string", Title: "Why not", Description: "told to the agent with a denial", MaxLength: ptr(maxMessage)}))
	}
	b.WriteByte('}')
	if len(required) > 0 {
		b.WriteString(`,"required":`)
		b.Write(encode(required))
	}
	if len(either) > 0 {
		b.WriteString(`,"allOf":`)
		b.Write(encode(either))
	}
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

func ptr(n int64) *int64 { return &n }

// fieldsOf lists the fields of an ask's form: its questions, or those that an MCP
// server asks for.
func fieldsOf(v *run.AskView) (list []field) {
	if v.Form == nil || v.Ambiguous {
		return nil
	}
	for i, q := range v.Form.Questions {
		list = append(list, questionFields(i, &q)...)
	}
	if v.Kind == "elicitation" && v.Class == run.Question {
		list = append(list, elicitationFields(dialect.Value(v.Form.Input))...)
	}
	return list
}

// questionFields is a field for what is offered and, where that is allowed, one for
// an answer of one's own.
func questionFields(i int, q *run.AskQuestion) []field {
	f := field{name: "q" + strconv.Itoa(i+1), required: true, question: i}
	f.schema = schema{Type: "string", Title: q.Header, Description: q.Text, WriteOnly: q.Secret}
	if q.Secret {
		f.schema.Format = "password"
	}
	if f.schema.Title == "" {
		f.schema.Title = "Question " + strconv.Itoa(i+1)
	}
	if len(q.Options) == 0 {
		f.schema.MinLength = ptr(1)
		return []field{f}
	}
	var options []schema
	for _, o := range q.Options {
		options = append(options, schema{Const: appendString(nil, o.Label), Title: o.Label, Description: o.Description})
	}
	if q.Multi {
		f.schema.Type, f.schema.Unique, f.schema.MinItems = "array", true, ptr(1)
		f.schema.Items = &schema{Type: "string", OneOf: options}
	} else {
		f.schema.OneOf = options
	}
	if !q.Other {
		return []field{f}
	}
	other := field{name: f.name + "_other", question: i, other: true}
	other.schema = schema{Type: "string", Title: f.schema.Title + ": other", MinLength: ptr(1)}
	return []field{f, other}
}
