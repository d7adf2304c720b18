package test

import (
	"go/ast"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const subjectsDoc = "subjects.md"

// The first column of each marked table of subjects.md is checked against the
// packages that implement it. Parts in <…> are what varies.

func TestDocsStreams(t *testing.T) {
	got := map[string]string{}
	for _, r := range table(t, subjectsDoc, "streams") {
		if len(r) > 1 {
			got[r[0]] = r[1]
		}
	}
	want := map[string]string{
		strings.Replace(subject.EventStream(7), "7", "<p>", 1): strings.Replace(subject.EventStreamSubjects(7), "7", "<p>", 1),
		subject.CommandStream: subject.CommandStreamSubjects,
		subject.ControlStream: subject.ControlStreamSubjects,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("streams and their subjects (-code +table):\n%s", d)
	}
	same(t, "buckets", column(table(t, subjectsDoc, "buckets"), 0), []string{subject.RunsBucket, subject.PresenceBucket, subject.SessionsBucket})
}

func TestDocsConsumers(t *testing.T) {
	same(t, "durable consumers", column(table(t, subjectsDoc, "consumers"), 0),
		[]string{subject.NotifyConsumer, subject.MetricsConsumer, subject.TraceConsumer, subject.ArchiveConsumer})
}

func TestDocsSubjects(t *testing.T) {
	// Digits and letters that Token leaves alone stand for the parts that vary.
	name := strings.NewReplacer("7", "<p>", "TENANT", "<tenant>", "RUN", "<run>", "SESSION", "<session>",
		"TASK", "<task>", "KIND", "<kind>", "COMMAND", "<command>", "WHAT", "<what>")
	ev := subject.Event{Partition: 7, Tenant: "TENANT", Run: "RUN", Session: "SESSION", Task: "TASK", Kind: "KIND"}
	want := []string{
		name.Replace(ev.String()),
		name.Replace(subject.Command("TENANT", "RUN", "COMMAND")),
		name.Replace(strings.Replace(subject.Hint("TENANT", "RUN"), ">", "COMMAND", 1)),
		name.Replace(subject.Control("TENANT", "RUN", "WHAT")),
	}
	same(t, "subjects", column(table(t, subjectsDoc, "subjects"), 0), want)
	same(t, "control facts", column(table(t, subjectsDoc, "controls"), 0), []string{
		subject.Liveness,
		name.Replace(subject.CommandFact("COMMAND")),
		name.Replace(subject.Audit("COMMAND")),
	})
}

func TestDocsKinds(t *testing.T) {
	var want []string
	for _, k := range event.Kinds {
		want = append(want, string(k))
	}
	if d := cmp.Diff(want, column(table(t, subjectsDoc, "kinds"), 0)); d != "" {
		t.Errorf("kinds, in order (-code +table):\n%s", d)
	}
}

func TestDocsTypes(t *testing.T) {
	same(t, "types", column(table(t, subjectsDoc, "types"), 0), eventTypes(t))
}

// eventTypes are the values of internal/event's constants Type….
func eventTypes(t *testing.T) []string {
	t.Helper()
	var types []string
	for _, f := range parseDir(t, "internal/event") {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || len(s.Names) != 1 || len(s.Values) != 1 || !strings.HasPrefix(s.Names[0].Name, "Type") {
				return true
			}
			sum, ok := s.Values[0].(*ast.BinaryExpr) // TypePrefix + "…"
			if !ok {
				return true
			}
			lit, ok := sum.Y.(*ast.BasicLit)
			if !ok {
				return true
			}
			v, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, event.TypePrefix+v)
			return true
		})
	}
	if len(types) == 0 {
		t.Fatal("found no type constants in internal/event")
	}
	return types
}

func TestDocsAttributes(t *testing.T) {
	full := event.Event{
		Tenant: "t", Run: "r", Seq: 1, Ref: "ref", Time: time.Unix(0, 0), Type: "x", Kind: event.Msg, Stream: event.Out,
		Session: "s", Task: "k", Parent: "p", ContentType: event.JSON, Chunk: event.Part{I: 1, N: 2},
		Part: event.Part{I: 1, N: 2}, Cut: true, TraceParent: "tp", Redacted: []event.Span{{Rule: "r", Off: 0, Len: 1, RawLen: 1}},
		RawLen: 1, RawHash: "h",
	}
	var want []string
	full.Attributes(func(name, _ string) { want = append(want, event.HeaderPrefix+name) })
	same(t, "attributes", column(table(t, subjectsDoc, "attributes"), 0), want)
}

// A row of the table of frames is a type and its subtypes; a type with
// subtypes also has "other".
func TestDocsFrames(t *testing.T) {
	var got []string
	for _, r := range table(t, subjectsDoc, "frames") {
		if len(r) < 2 || r[1] == "" {
			got = append(got, r[0])
			continue
		}
		got = append(got, r[0]+".other")
		for sub := range strings.FieldsSeq(r[1]) {
			got = append(got, r[0]+"."+sub)
		}
	}
	for _, d := range []dialect.Name{dialect.Claude, dialect.CBC, dialect.Unknown} {
		var want []string
		for _, typ := range dialect.Types(d) {
			want = append(want, strings.TrimPrefix(typ, event.TypePrefix+string(d)+"."))
		}
		same(t, "frames of "+string(d), got, want)
	}
}

// A row of the table of Codex is the first part of a type, and what can follow it.
func TestDocsCodex(t *testing.T) {
	var got, want []string
	for _, r := range table(t, subjectsDoc, "codex") {
		if len(r) < 2 || r[1] == "" {
			got = append(got, r[0])
			continue
		}
		for rest := range strings.FieldsSeq(r[1]) {
			got = append(got, r[0]+"."+rest)
		}
	}
	for _, typ := range dialect.Types(dialect.Codex) {
		want = append(want, strings.TrimPrefix(typ, event.TypePrefix+"codex."))
	}
	same(t, "frames of codex", got, want)
}
