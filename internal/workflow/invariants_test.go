package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
)

// checker holds a stream against what the protocol promises, one envelope after the
// other.
type checker struct {
	id       workflow.ID
	seq      uint64
	n        int
	over     bool
	open     map[string]string // node runs that have started: their node
	queued   map[string]bool   // node runs that wait
	ended    map[string]bool
	tools    map[string]bool // node run and call
	asks     map[string]bool
	versions map[string]bool
}

func newChecker(id workflow.ID) *checker {
	return &checker{
		id: id, open: map[string]string{}, queued: map[string]bool{}, ended: map[string]bool{}, tools: map[string]bool{},
		asks: map[string]bool{}, versions: map[string]bool{},
	}
}

// add checks one envelope that was made of the event with this seq.
func (c *checker) add(v workflow.Envelope, frame uint64) error {
	c.n++
	line := v.AppendJSON(nil)
	switch {
	case c.over:
		return fmt.Errorf("%s after the end", v.Event)
	case !slices.Contains(workflow.Events, v.Event):
		return fmt.Errorf("no event %q", v.Event)
	case v.Seq <= c.seq:
		return fmt.Errorf("seq %d after %d", v.Seq, c.seq)
	case v.Seq/workflow.Step > frame || v.Seq%workflow.Step == 0:
		return fmt.Errorf("seq %d of event %d", v.Seq, frame)
	case v.RunID != c.id.String() || v.SchemaVersion != "1.0":
		return fmt.Errorf("envelope of %q, version %q", v.RunID, v.SchemaVersion)
	case bytes.ContainsAny(line, "\r\n") || !utf8.Valid(line) || !json.Valid(line):
		return fmt.Errorf("no single line of JSON: %q", line)
	case (c.n == 1) != (v.Event == workflow.RunCreated):
		return fmt.Errorf("%s is number %d", v.Event, c.n)
	case c.n == 2 && v.Event != workflow.RunStarted && v.Event != workflow.RunQueued:
		return fmt.Errorf("%s is number 2", v.Event)
	case strings.HasPrefix(string(v.Event), "node.") != (v.NodeID != "") && strings.HasPrefix(string(v.Event), "node."):
		return fmt.Errorf("%s without a node", v.Event)
	}
	c.seq = v.Seq
	c.versions[v.VersionID] = true
	if c.id.Task != "" && (len(c.versions) > 1 || strings.HasPrefix(v.NodeID, "task/")) {
		return fmt.Errorf("versions %v, node %s in the stream of a task", c.versions, v.NodeID)
	}
	return c.follow(v)
}

// follow keeps account of nodes, tools and asks.
func (c *checker) follow(v workflow.Envelope) error {
	var d struct {
		ToolCallID string `json:"toolCallId"`
		AskID      string `json:"askId"`
		Task       string `json:"task"`
		Pending    int    `json:"pending"`
		Artifact   struct {
			Task string `json:"task"`
		} `json:"artifact"`
	}
	if err := json.Unmarshal(v.Data, &d); err != nil {
		return err
	}
	run, _, _ := strings.Cut(v.NodeRunID, "@")
	if run != v.NodeID || strings.Count(v.NodeRunID, "@") > 1 {
		return fmt.Errorf("node run %q of node %q", v.NodeRunID, v.NodeID)
	}
	if t := d.Artifact.Task + d.Task; c.id.Task != "" && t != "" && t != c.id.Task {
		return fmt.Errorf("%s is about task %q", v.Event, t)
	}
	_, isOpen := c.open[v.NodeRunID]
	tool := v.NodeRunID + " " + d.ToolCallID
	switch v.Event {
	case workflow.NodeQueued:
		if c.queued[v.NodeRunID] || isOpen || c.ended[v.NodeRunID] {
			return fmt.Errorf("%s is queued again", v.NodeRunID)
		}
		c.queued[v.NodeRunID] = true
	case workflow.NodeStarted:
		if isOpen || c.ended[v.NodeRunID] {
			return fmt.Errorf("%s starts again", v.NodeRunID)
		}
		delete(c.queued, v.NodeRunID)
		c.open[v.NodeRunID] = v.NodeID
	case workflow.NodeProgress, workflow.NodeOutputDelta:
		if !isOpen {
			return fmt.Errorf("%s of %s, which does not work", v.Event, v.NodeRunID)
		}
	case workflow.NodeToolStarted:
		if c.tools[tool] || !isOpen {
			return fmt.Errorf("%s: tool %s starts again, or outside its node", v.NodeRunID, d.ToolCallID)
		}
		c.tools[tool] = true
	case workflow.NodeToolFinished:
		if !c.tools[tool] || !isOpen {
			return fmt.Errorf("%s: tool %s finishes and is not open", v.NodeRunID, d.ToolCallID)
		}
		delete(c.tools, tool)
	case workflow.NodeCompleted, workflow.NodeFailed:
		if !isOpen && !c.queued[v.NodeRunID] {
			return fmt.Errorf("%s ends and is not open", v.NodeRunID)
		}
		for k := range c.tools {
			if strings.HasPrefix(k, v.NodeRunID+" ") {
				return fmt.Errorf("%s ends with an open tool %s", v.NodeRunID, k)
			}
		}
		delete(c.queued, v.NodeRunID)
		delete(c.open, v.NodeRunID)
		c.ended[v.NodeRunID] = true
	case workflow.RunAwaitingInput:
		if c.asks[d.AskID] {
			return fmt.Errorf("ask %s waits twice", d.AskID)
		}
		c.asks[d.AskID] = true
		return c.pending(d.Pending)
	case workflow.RunResumed:
		if !c.asks[d.AskID] {
			return fmt.Errorf("ask %s is resumed and did not wait", d.AskID)
		}
		delete(c.asks, d.AskID)
		return c.pending(d.Pending)
	case workflow.RunCompleted, workflow.RunFailed, workflow.RunCancelled:
		if len(c.open)+len(c.queued)+len(c.tools) > 0 {
			return fmt.Errorf("open at the end: %v %v %v", c.open, c.queued, c.tools)
		}
		c.over = true
	case workflow.RunCreated, workflow.RunQueued, workflow.RunStarted, workflow.ArtifactCreated, workflow.RunCancelRequested:
	}
	return nil
}

func (c *checker) pending(n int) error {
	if n != len(c.asks) {
		return fmt.Errorf("pending %d of %d", n, len(c.asks))
	}
	return nil
}

// mapAll maps events to a whole stream and checks each envelope. A mapping that ends
// with an error returns it.
func mapAll(t testing.TB, id workflow.ID, events []*event.Event) ([]workflow.Envelope, error) {
	t.Helper()
	m := workflow.New(id)
	m.Token = token
	c := newChecker(id)
	schema := envelopeSchema()
	var all []workflow.Envelope
	for _, e := range events {
		out, err := m.Apply(e)
		if err != nil {
			return all, err
		}
		for _, v := range out {
			if err := c.add(v, e.Seq); err != nil {
				t.Fatalf("%s, event %d %s: %v", id, e.Seq, e.Type, err)
			}
			key := string(v.Event) + v.NodeRunID + string(v.Data)
			if passed[key] {
				continue // the rest of it is the checker's
			}
			if err := validate(schema, v); err != nil {
				t.Fatalf("%s, event %d: %v\n%s", id, e.Seq, err, v.AppendJSON(nil))
			}
			if len(passed) < maxPassed {
				passed[key] = true
			}
		}
		all = append(all, out...)
		if m.Over() != (c.over || m.Over() && !m.Known()) {
			t.Fatalf("%s, event %d: over %t, terminal seen %t", id, e.Seq, m.Over(), c.over)
		}
		if !slices.Contains(workflow.Statuses, m.Status()) {
			t.Fatalf("%s, event %d: status %q", id, e.Seq, m.Status())
		}
	}
	return all, nil
}

// passed are data that have passed the schema. Tests of this package run one after
// the other.
var passed = map[string]bool{}

const maxPassed = 20_000

func token(ask string) string { return "token-of-" + ask }

func validate(s *jsonschema.Schema, v workflow.Envelope) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.AppendJSON(nil)))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// envelopeSchema compiles the one document of all schemas.
var envelopeSchema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(workflow.Schema()))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("combined.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("combined.json")
})

// fileSchema compiles one of the files, which refer to one another by their names.
func fileSchema(name string) (*jsonschema.Schema, error) {
	names, err := fs.Glob(workflow.Schemas, "schema/*.json")
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	var id string
	for _, n := range names {
		b, err := workflow.Schemas.ReadFile(n)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		url, _ := doc.(map[string]any)["$id"].(string)
		if err := c.AddResource(url, doc); err != nil {
			return nil, err
		}
		if path.Base(n) == name {
			id = url
		}
	}
	return c.Compile(id)
}
