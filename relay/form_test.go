package relay_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	state "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay"
)

func TestFormFields(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"},"x":true},"required":["a","gone"]}`
	want := []relay.FormField{
		{Name: "z", Type: "string", Schema: json.RawMessage(`{"type":"string"}`)},
		{Name: "a", Type: "integer", Required: true, Schema: json.RawMessage(`{"type":"integer"}`)},
		{Name: "x", Schema: json.RawMessage(`true`)},
	}
	for _, c := range []struct {
		input string
		want  []relay.FormField
		ok    bool
	}{
		{schema, want, true},
		{`{"requestedSchema":` + schema + `,"mode":"form"}`, want, true},
		{`{"properties":{}}`, nil, true},
		{`{"mode":"url","url":"https://example.com"}`, nil, false},
		{`{"properties":{"a":{},"a":{}}}`, nil, false},
		{`{"properties":7}`, nil, false},
		{`"x"`, nil, false},
		{``, nil, false},
	} {
		got, ok := relay.FormFields(&state.AskForm{Input: json.RawMessage(c.input)})
		if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
			t.Errorf("%s: %v %s", c.input, ok, diff)
		}
	}
	if _, ok := relay.FormFields(nil); ok {
		t.Error("no form has fields")
	}
}
