package relay_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// TestBusSubjects compares the channels of the document with what internal/subject
// builds, and the kinds.
func TestBusSubjects(t *testing.T) {
	doc := readSpec("asyncapi.json")
	got := map[string]string{}
	for _, ch := range at(doc, "channels").(map[string]any) {
		stream, _ := at(ch, "x-stream").(string)
		got[at(ch, "address").(string)] = stream
	}
	name := strings.NewReplacer("7", "{partition}", "TENANT", "{tenant}", "RUN", "{run}", "SESSION", "{session}",
		"TASK", "{task}", "KIND", "{kind}", "COMMAND", "{command}", "WHAT", "{what}")
	ev := subject.Event{Partition: 7, Tenant: "TENANT", Run: "RUN", Session: "SESSION", Task: "TASK", Kind: "KIND"}
	want := map[string]string{
		name.Replace(ev.String()):                                                       strings.Replace(subject.EventStream(7), "7", "<p>", 1),
		name.Replace(subject.Command("TENANT", "RUN", "COMMAND")):                       subject.CommandStream,
		name.Replace(strings.Replace(subject.Hint("TENANT", "RUN"), ">", "COMMAND", 1)): "",
		name.Replace(subject.Control("TENANT", "RUN", "WHAT")):                          subject.ControlStream,
		"$KV." + subject.RunsBucket + ".{key}":                                          "KV_" + subject.RunsBucket,
		"$KV." + subject.PresenceBucket + ".{key}":                                      "KV_" + subject.PresenceBucket,
		"$KV." + subject.SessionsBucket + ".{conversation}":                             "KV_" + subject.SessionsBucket,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("subjects and their streams (-code +spec/asyncapi.json):\n%s", d)
	}
	var kinds []string
	for _, k := range event.Kinds {
		kinds = append(kinds, string(k))
	}
	if d := cmp.Diff(kinds, texts(at(doc, "channels", "events", "parameters", "kind", "enum"))); d != "" {
		t.Errorf("kinds (-code +document):\n%s", d)
	}
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, w := range list {
		out = append(out, w.(string))
	}
	return out
}

// TestBusTypes says that each fact has one message, with the schema of its data,
// and each dialect one for all its frames.
func TestBusTypes(t *testing.T) {
	doc := readSpec("asyncapi.json")
	var got []string
	for name, m := range at(doc, "components", "messages").(map[string]any) {
		if typ, ok := at(m, "x-ce-type").(string); ok {
			got = append(got, typ)
			if at(m, "payload") == nil && typ != event.TypeOutput {
				t.Errorf("the message %s has no payload", name)
			}
		}
	}
	slices.Sort(got)
	want := []string{
		event.TypeStarted, event.TypeSession, event.TypeExited, event.TypeGap, event.TypeInput, event.TypeStalled, event.TypeConflict,
		event.TypeIncompatible, event.TypeCapabilities, event.TypeOutput, event.TypeCommand, event.TypeAsk, event.TypeDecision,
		event.TypeLost, event.TypeResumed, event.TypeCommandFact, event.TypeAudit, event.TypeCmd,
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("types of facts (-code +document):\n%s", d)
	}
	for name, d := range frameTypes {
		if diff := cmp.Diff(slices.Sorted(slices.Values(dialect.Types(d))), texts(at(doc, "components", "schemas", name, "enum"))); diff != "" {
			t.Errorf("%s (-code +document):\n%s", name, diff)
		}
	}
}

// TestBusHeaders compares the headers with the attributes that an event has.
func TestBusHeaders(t *testing.T) {
	full := event.Event{
		Tenant: "t", Run: "r", Seq: 1, Ref: "ref", Time: time.Unix(0, 0), Type: event.TypeStarted, Kind: event.Msg, Stream: event.Out,
		Session: "s", Task: "k", Parent: "p", ContentType: event.JSON, Chunk: event.Part{I: 1, N: 2},
		Part: event.Part{I: 1, N: 2}, Cut: true, TraceParent: "tp", Redacted: []event.Span{{Rule: "r", Off: 0, Len: 1, RawLen: 1}},
		RawLen: 1, RawHash: "h",
	}
	headers, c := map[string]any{}, theContract()
	full.Attributes(func(name, v string) { headers[event.HeaderPrefix+name] = v })
	schema := c.schema(c.busapi, asyncapiURL, "/components/schemas/EventHeaders")
	if err := schema.Validate(headers); err != nil {
		t.Error(err)
	}
	for name := range at(readSpec("asyncapi.json"), "components", "schemas", "EventHeaders", "properties").(map[string]any) {
		plain := strings.TrimPrefix(name, event.HeaderPrefix)
		if headers[name] == nil && !event.ValidExtension(plain) {
			t.Errorf("the header %s is none of an event", name)
		}
	}
	headers["ce-new"] = "x"
	if schema.Validate(headers) == nil {
		t.Error("a header that is not documented passes")
	}
}

// TestBusDocument says that what the document refers to is in it, that nothing is
// there unused, and that the parameters of a channel are those of its address.
func TestBusDocument(t *testing.T) {
	doc := readSpec("asyncapi.json")
	for _, key := range []string{"asyncapi", "info", "channels", "operations"} {
		if doc[key] == nil {
			t.Errorf("it has no %s", key)
		}
	}
	used := map[string]bool{}
	refs(doc, func(ref string) {
		used[ref] = true
		if at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
			t.Errorf("nothing is at %s", ref)
		}
	})
	for _, kind := range []string{"messages", "schemas"} {
		for name := range at(doc, "components", kind).(map[string]any) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("components/%s/%s is not used", kind, name)
			}
		}
	}
	for name, ch := range at(doc, "channels").(map[string]any) {
		for p := range at(ch, "parameters").(map[string]any) {
			if !strings.Contains(at(ch, "address").(string), "{"+p+"}") {
				t.Errorf("channel %s: %s is not in its address", name, p)
			}
		}
		if n := strings.Count(at(ch, "address").(string), "{"); n != len(at(ch, "parameters").(map[string]any)) {
			t.Errorf("channel %s: %d parameters in the address", name, n)
		}
		if !used["#/channels/"+name] {
			t.Errorf("no operation uses the channel %s", name)
		}
	}
	for name, op := range at(doc, "operations").(map[string]any) {
		if a := at(op, "action"); a != "send" && a != "receive" {
			t.Errorf("operation %s: action %v", name, a)
		}
	}
	for name, m := range at(doc, "components", "messages").(map[string]any) {
		if at(m, "name") != name || at(m, "headers") == nil || at(m, "summary") == nil {
			t.Errorf("message %s: %v", name, m)
		}
	}
}
