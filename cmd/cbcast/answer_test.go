package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/run"
)

// What a person types becomes the answers that it can only mean.
func TestAnswersOf(t *testing.T) {
	options := []run.AskOption{{Label: "React"}, {Label: "Vue, Nuxt"}, {Label: "7"}}
	questions := &run.AskForm{Questions: []run.AskQuestion{
		{ID: "Which?", Text: "Which?", Options: options}, {ID: "All?", Text: "All?", Options: options, Multi: true}, {ID: "free", Text: "Say"},
	}}
	cut := &run.AskForm{Questions: []run.AskQuestion{{ID: "Which?", Text: "Which?", Options: []run.AskOption{
		{Label: "a text that was c…"}, {Label: "key [redacted:api_key]"}, {Label: "whole"},
	}}}}
	form := &run.AskForm{Input: json.RawMessage(`{"properties":{"name":{"type":"string"},"age":{"type":"integer"},"ok":{"type":"boolean"}}}`)}
	for _, c := range []struct {
		form  *run.AskForm
		words string // separated by |
		want  string // JSON, or what the error says
	}{
		{questions, "1|2|2", `{"All?":"Vue, Nuxt","Which?":"React","free":"2"}`},
		{questions, "Vue, Nuxt|1, 3|x=y", `{"All?":["React","7"],"Which?":"Vue, Nuxt","free":"x=y"}`},
		{questions, "7|=1|=", `{"All?":"1","Which?":"7","free":""}`},
		{questions, "other|React|a,b", `{"All?":"React","Which?":"other","free":"a,b"}`},
		{questions, "free=z|1|1", `{"All?":"React","Which?":"React","free":"z"}`},
		{questions, "All?=1,2|1|z", `{"All?":["React","Vue, Nuxt"],"Which?":"React","free":"z"}`},
		{questions, "1|1|z|y", `has 3 questions; "y" is one answer too many`},
		{questions, "1|1", "3 questions, and 2 are answered"},
		{questions, "4|1|z", "none has the number 4"},
		{questions, "0|1|z", "none has the number 0"},
		{questions, "1,2|1|z", "takes one option"},
		{questions, "free=a|free=b|1|1", "answered twice"},
		{form, "name=Ada|age=36|ok=true", `{"age":36,"name":"Ada","ok":true}`},
		{form, "age=old|name=1", `{"age":"old","name":"1"}`},
		{form, "name=Ada|name=Bob", "answered twice"},
		{form, "nick=x", "its fields are name, age, ok"},
		{cut, "3", `{"Which?":"whole"}`},
		{cut, "1", "option 1 of \"Which?\" is not known whole here"},
		{cut, "2", "write its text"},
		{cut, "a text that was cut", `{"Which?":"a text that was cut"}`},
		{nil, "x", "no question"},
	} {
		got, err := answersOf(&run.AskView{ID: "a1", Form: c.form}, strings.Split(c.words, "|"))
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.words, err, c.want)
			}
			continue
		}
		b, _ := json.Marshal(got)
		if diff := cmp.Diff(c.want, string(b)); diff != "" {
			t.Errorf("%s: %s", c.words, diff)
		}
	}
}
