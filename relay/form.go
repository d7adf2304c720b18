package relay

import (
	"encoding/json"
	"slices"

	"github.com/cbcast/cbcast/internal/run"
)

// A FormField is one field of a form that an MCP server asks to be filled in.
type FormField struct {
	Name     string
	Type     string // as the schema has it: string, number, integer, boolean …
	Required bool
	Schema   json.RawMessage
}

// FormFields lists the fields of the form that an elicitation shows, in their
// order. ok is false where the form is not known, or is none.
func FormFields(f *run.AskForm) (fields []FormField, ok bool) {
	type schema struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	var form struct {
		schema
		Codex *schema `json:"requestedSchema"`
	}
	if f == nil || json.Unmarshal(f.Input, &form) != nil {
		return nil, false
	}
	s := form.schema
	if form.Codex != nil {
		s = *form.Codex
	}
	names, err := objectKeys(s.Properties)
	if err != nil {
		return nil, false
	}
	var properties map[string]json.RawMessage
	if json.Unmarshal(s.Properties, &properties) != nil {
		return nil, false
	}
	for _, name := range names {
		var p struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(properties[name], &p) // then it has no type
		fields = append(fields, FormField{name, p.Type, slices.Contains(s.Required, name), properties[name]})
	}
	return fields, true
}
