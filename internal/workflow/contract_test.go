package workflow_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/internal/workflow"
)

// fixtures is where the examples are that clients are built against.
const fixtures = "../../test/testdata/workflow"

// members are those of an envelope, in the order that the protocol freezes.
var members = []string{
	"schemaVersion", "runId", "workflowId", "versionId", "seq", "event", "nodeId", "nodeRunId", "timestamp", "data",
}

// The one example envelope is what we write, byte for byte but for space.
func TestExampleEnvelope(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(fixtures, "event_envelope_example.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkExample(t, raw)
}

// There is one example of each event, and each is what a recording gives.
func TestExamples(t *testing.T) {
	file := filepath.Join(fixtures, "event_examples.json")
	if *update {
		writeExamples(t, file)
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var got []workflow.Event
	for _, e := range list {
		got = append(got, checkExample(t, e).Event)
	}
	if d := cmp.Diff(workflow.Events, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	want, _ := examples(t)
	if d := cmp.Diff(string(want), string(raw)); d != "" {
		t.Errorf("run the tests with -update and look at what changed (-want +got)\n%s", d)
	}
}

func checkExample(t *testing.T, raw []byte) workflow.Envelope {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := envelopeSchema().Validate(doc); err != nil {
		t.Errorf("%v\n%s", err, raw)
	}
	var v workflow.Envelope
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := json.Compact(&data, v.Data); err != nil {
		t.Fatal(err)
	}
	v.Data = data.Bytes()
	if d := cmp.Diff(compact.String(), string(v.AppendJSON(nil))); d != "" {
		t.Errorf("read and written again (-was +is)\n%s", d)
	}
	var have []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	for depth := 0; dec.More() || depth > 0; {
		tok, err := dec.Token()
		if err != nil {
			break
		}
		switch s := tok.(type) {
		case json.Delim:
			if depth++; s == '}' || s == ']' {
				depth -= 2
			}
		case string:
			if depth == 1 && slices.Contains(members, s) && !slices.Contains(have, s) {
				have = append(have, s)
			}
		}
	}
	if d := cmp.Diff(members, have); d != "" {
		t.Errorf("members (-want +got)\n%s", d)
	}
	return v
}

// examples takes the first envelope of each event that the goldens' recordings have.
func examples(t *testing.T) (all []byte, one workflow.Envelope) {
	t.Helper()
	found := map[workflow.Event]workflow.Envelope{}
	for _, name := range goldens {
		evs := events(t, name)
		for _, id := range streams(evs) {
			list, err := mapAll(t, id, evs)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				if _, ok := found[v.Event]; !ok {
					found[v.Event] = v
				}
			}
		}
	}
	var list []workflow.Envelope
	for _, e := range workflow.Events {
		if v, ok := found[e]; ok {
			list = append(list, v)
		}
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n'), found[workflow.NodeOutputDelta]
}

func writeExamples(t *testing.T, file string) {
	t.Helper()
	all, one := examples(t)
	b, err := json.MarshalIndent(one, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, all, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fixtures, "event_envelope_example.json"), append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The schemas are one set: each compiles by itself and with the others, each event
// has one, and what is ours takes no member that is not listed.
func TestSchemas(t *testing.T) {
	names, err := fs.Glob(workflow.Schemas, "schema/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, n := range names {
		name := path.Base(n)
		have = append(have, strings.TrimSuffix(name, ".json"))
		if _, err := fileSchema(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b, err := workflow.Schemas.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		strict(t, name, doc)
	}
	want := []string{"common", "envelope"}
	for _, e := range workflow.Events {
		want = append(want, string(e))
	}
	slices.Sort(want)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// strict looks for objects with listed members that others may stand beside.
func strict(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		_, props := v["properties"]
		if _, closed := v["additionalProperties"]; props && v["type"] == "object" && !closed {
			t.Errorf("%s: an object takes any member", where)
		}
		for k, x := range v {
			strict(t, where+"/"+k, x)
		}
	case []any:
		for _, x := range v {
			strict(t, where, x)
		}
	}
}

// What is not of the protocol does not pass.
func TestSchemaRefuses(t *testing.T) {
	good := `{"schemaVersion":"1.0","runId":"r","workflowId":"w","versionId":"v","seq":4097,"event":"run.started","nodeId":null,"nodeRunId":null,"timestamp":"2026-08-26T10:00:00+08:00","data":{"startedAt":"2026-08-26T10:00:00Z"}}`
	if err := check(good); err != nil {
		t.Fatal(err)
	}
	for old, bad := range map[string]string{
		`"1.0"`:             `"1.1"`,
		`"run.started"`:     `"run.paused"`,
		`"seq":4097`:        `"seq":-1`,
		`"runId":"r"`:       `"runId":"r:t:u"`,
		`"nodeId":null`:     `"nodeId":"main"`, // without its run
		`"workflowId":"w"`:  `"workflowId":""`,
		`,"data":{`:         `,"more":1,"data":{`,
		`"startedAt":"2026`: `"x":1,"startedAt":"2026`,
		`+08:00"`:           `"`,
		`10:00:00Z"`:        `10:00:00"`,
	} {
		if err := check(strings.Replace(good, old, bad, 1)); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
	if err := check(strings.Replace(strings.Replace(good, "run.started", "node.progress", 1), `{"startedAt":"2026-08-26T10:00:00Z"}`, `{"percent":101}`, 1)); err == nil {
		t.Error("an event of no node passes, and 101 percent")
	}
}

func check(doc string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		return err
	}
	return envelopeSchema().Validate(v)
}

// Docs and code name the same events and codes.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/workflow-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	in := false
	for line := range strings.Lines(string(doc)) {
		switch {
		case strings.HasPrefix(line, "<!-- events -->"):
			in = true
		case line == "\n":
			in = false
		}
		if cell, ok := strings.CutPrefix(line, "| `"); ok && in {
			name, _, _ := strings.Cut(cell, "`")
			rows = append(rows, name)
		}
	}
	var want []string
	for _, e := range workflow.Events {
		want = append(want, string(e))
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("events (-code +docs)\n%s", d)
	}
	for _, c := range workflow.Codes {
		if !bytes.Contains(doc, []byte("`"+c+"`")) {
			t.Errorf("the code %s is not in the docs", c)
		}
	}
	for _, s := range workflow.Statuses {
		if !bytes.Contains(doc, []byte("`"+s+"`")) {
			t.Errorf("the status %s is not in the docs", s)
		}
	}
}

// The envelope in the document is the example.
func TestEnvelopeInDocument(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(fixtures, "event_envelope_example.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "workflow-protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, append(append([]byte("```json\n"), want...), "```\n"...)) {
		t.Errorf("docs/workflow-protocol.md does not show\n%s", want)
	}
}
