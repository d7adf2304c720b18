package relay_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	fold "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay"
)

// apiRoots are the documents of the HTTP API.
func apiRoots(g *generator) {
	for _, v := range []any{
		relay.RunList{},
		relay.RunDoc{},
		relay.AskList{},
		relay.CommandAccepted{},
		relay.CommandDoc{},
		relay.ErrorBody{},
		relay.Gap{},
		relay.ManyRun{},
		relay.ManyGone{},
		relay.ManyReady{},
		relay.ManyTurn{},
		event.Digest{},
		relay.SchemaList{},
		relay.SessionDoc{},
		relay.CodeDoc{},
		relay.WorkflowView{},
	} {
		g.root(v, false)
	}
	for _, v := range []any{
		relay.CommandRequest{},
		relay.OrderRequest{},
		relay.AnswerRequest{},
		relay.SessionRequest{},
		relay.ResumeRequest{},
		relay.CancelRequest{},
	} {
		g.root(v, true)
	}
	var forms []any
	for _, name := range relay.CommandNames() {
		forms = append(forms, argsOf(g, name))
	}
	g.schemas["CommandRequest"].set("oneOf", forms)
	workflowSchemas(g)
}

// workflowSchemas are those of the workflow event protocol, by their own names.
func workflowSchemas(g *generator) {
	files, err := filepath.Glob("../internal/workflow/schema/*.json")
	if err != nil || len(files) == 0 {
		g.t.Fatalf("%v %v", files, err)
	}
	other := regexp.MustCompile(`"\$ref": "([a-z_.]+)\.json(#/|")`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			g.t.Fatal(err)
		}
		data = other.ReplaceAllFunc(data, func(m []byte) []byte {
			part := other.FindSubmatch(m)
			return []byte(`"$ref": "#/components/schemas/Workflow.` + string(part[1]) + strings.TrimPrefix(string(part[2]), "#"))
		})
		s := ordered(g.t, data)
		s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return k == "$schema" || k == "$id" })
		g.schemas["Workflow."+strings.TrimSuffix(filepath.Base(file), ".json")] = s
	}
}

// argsNeeded are the arguments without which a command is none.
var argsNeeded = map[string]string{
	"stop_task": "task", "message": "content", "steer": "content", "set_permission_mode": "mode", "set_model": "model",
	"rewind": "checkpoint", "rewind_files": "checkpoint",
}

// argsOf is what the body of one command looks like.
func argsOf(g *generator, name string) *object {
	all := g.schemas["CommandArgs"].vals["properties"].(*object)
	props, required := obj(), []string{"name"}
	for _, key := range relay.ArgumentNames(name) {
		props.set(key, all.vals[key])
	}
	args := obj("type", "object")
	if need := argsNeeded[name]; need != "" {
		args.set("required", []string{need})
		required = append(required, "args")
	}
	args.set("properties", props).set("additionalProperties", false)
	return obj("title", name, "required", required, "properties", obj("name", obj("const", name), "args", args))
}

// busRoots are the data of facts and the values of the buckets.
func busRoots(g *generator) {
	for _, v := range []any{
		event.Started{},
		event.Session{},
		event.Exited{},
		event.Gap{},
		event.Input{},
		event.Stalled{},
		event.Conflict{},
		event.Incompatible{},
		event.Capabilities{},
		event.CommandFact{},
		event.AskClosed{},
		event.AutoDecided{},
		event.Audit{},
		event.CommandArgs{},
		relay.Lost{},
		bus.RunInfo{},
		bus.Holder{},
		event.Digest{},
	} {
		g.root(v, false)
	}
	for name, d := range frameTypes {
		g.schemas[name] = obj("type", "string", "enum", slices.Sorted(slices.Values(dialect.Types(d))))
	}
}

// frameTypes are the schemas of the types of each dialect's frames.
var frameTypes = map[string]dialect.Name{
	"ClaudeType": dialect.Claude, "CBCType": dialect.CBC, "CodexType": dialect.Codex, "UnknownType": dialect.Unknown,
}

// schemaNames are the schemas that are not called as their types.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[relay.RunDoc]():         "Run",
	reflect.TypeFor[relay.CommandDoc]():     "Command",
	reflect.TypeFor[relay.ErrorBody]():      "Error",
	reflect.TypeFor[relay.CommandRequest](): "InterruptRequest",
	reflect.TypeFor[relay.OrderRequest]():   "CommandRequest",
	reflect.TypeFor[relay.Fact]():           "Fact",
	reflect.TypeFor[fold.View]():            "RunState",
	reflect.TypeFor[fold.AskView]():         "Ask",
	reflect.TypeFor[event.Gap]():            "BytesGap",
	reflect.TypeFor[event.Session]():        "SessionNamed",
	reflect.TypeFor[relay.Gap]():            "Gap",
}

// typeWords are the types whose values are a closed set.
var typeWords = map[reflect.Type]func() []string{
	reflect.TypeFor[relay.Code](): relay.Codes,
	reflect.TypeFor[relay.Scope](): func() []string {
		return words(relay.Scopes)
	},
	reflect.TypeFor[fold.Verdict](): func() []string { return words(fold.Verdicts) },
	reflect.TypeFor[event.Fact](): func() []string {
		return words([]event.Fact{
			event.Accepted, event.Written, event.Acked, event.Settled, event.NoEffect, event.Refused, event.Expired, event.UnknownF,
		})
	},
}

func words[T ~string](list []T) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// requestMust are the fields that a request has.
var requestMust = map[string]bool{
	"CommandRequest.name": true, "AnswerRequest.decision": true, "ResumeRequest.resumeToken": true, "ResumeRequest.action": true,
}

type more func(*object) *object

// oneOf says that a text is one of a closed set.
func oneOf(list string) more {
	return func(s *object) *object { return s.set("enum", strings.Fields(list)) }
}

func with(pairs ...any) more {
	return func(s *object) *object {
		for i := 0; i < len(pairs); i += 2 {
			s.set(pairs[i].(string), pairs[i+1])
		}
		return s
	}
}

const (
	runStates   = "starting working waiting idle done lost"
	waitingFor  = "approval input resume"
	verdicts    = "lost failed interrupted denied incomplete success"
	dialects    = "claude cbc codex unknown"
	askKinds    = "permission plan question elicitation command file_change permissions"
	askReasons  = "answered answered_local policy expired withdrawn cleared run_ended"
	askOutcomes = "ran failed denied answered none unknown"
	decisions   = "allow deny answer vendor error"
	commandID   = `^[A-Za-z0-9._:-]{1,64}$`
)

var (
	seconds  = with("minimum", 0, "maximum", 86400)
	notEmpty = with("minLength", 1)
	content  = with("description", "A text, or a list of content blocks; in an answer of the relay a digest of it.",
		"anyOf", []any{obj("type", "string"), obj("type", "array"), obj("$ref", "#/components/schemas/Digest")})
)

// fieldWords are what the types of fields cannot say.
var fieldWords = map[string]more{
	"RunEntry.state": oneOf(runStates), "RunEntry.waiting_for": oneOf(waitingFor), "RunEntry.verdict": oneOf(verdicts),
	"RunInfo.state": oneOf(runStates), "RunInfo.waiting_for": oneOf(waitingFor), "RunInfo.verdict": oneOf(verdicts),
	"RunState.state": oneOf(runStates), "RunState.waiting_for": oneOf(waitingFor), "AskList.state": oneOf(runStates),
	"AskList.waiting_for": oneOf(waitingFor),
	"RunState.sandbox":    oneOf("read-only workspace-write danger-full-access"),
	"SessionView.role":    oneOf("main former concurrent agent"),
	"TurnView.state":      oneOf("open done"), "TurnView.origin": oneOf("user child"),
	"TaskView.by":        oneOf("interrupt stop_task signal"),
	"PhaseView.status":   oneOf("pending inProgress completed"),
	"AgentView.state":    oneOf("start progress done error stopped not_reported"),
	"InterruptView.what": oneOf("interrupt stop_task"), "InterruptView.by": oneOf("host cbcast"),
	"InterruptView.effect": oneOf("turn task ask"),
	"Ask.id":               with("pattern", `^a[0-9]+$`),
	"Ask.class":            oneOf("approval question"), "Ask.kind": oneOf(askKinds), "Ask.state": oneOf("open answered closed unknown"),
	"Ask.outcome":         oneOf(askOutcomes),
	"AskDecided.decision": oneOf(decisions), "AskDecided.by": oneOf("bus host policy"), "AskDecided.cause": oneOf("rule timeout"),
	"AskEnd.reason":      oneOf(askReasons),
	"ResumeAsk.kind":     oneOf("question plan permission"),
	"Gap.reason":         oneOf("not_kept beyond_head"),
	"Fact.by":            oneOf("bus edge relay"),
	"Command.state":      oneOf("accepted written acked settled no_effect refused expired unknown sent_not_acked"),
	"Capabilities.level": oneOf("A B C D"),

	"CommandAccepted.state": oneOf("accepted"), "CommandAccepted.decision": oneOf("allow deny answer vendor"),
	"CommandAccepted.facts": with("format", "uri-reference"),
	"CommandRequest.name":   func(s *object) *object { return s.set("enum", relay.CommandNames()) },
	"CommandRequest.id":     with("pattern", commandID), "InterruptRequest.id": with("pattern", commandID),
	"CommandRequest.args":             with("type", "object"),
	"InterruptRequest.turn":           oneOf("end keep"),
	"InterruptRequest.reason":         with("maxLength", 4096),
	"InterruptRequest.deliver_within": seconds, "InterruptRequest.effect_within": seconds,
	"CommandRequest.deliver_within": seconds, "CommandRequest.effect_within": seconds, "AnswerRequest.deliver_within": seconds,
	"AnswerRequest.decision": oneOf("allow deny answer vendor"),
	"AnswerRequest.message":  with("maxLength", 4096),
	"AnswerRequest.answers": with("minProperties", 1, "maxProperties", 64, "additionalProperties", obj("anyOf", []any{
		obj("type", "string", "pattern", `\S`), obj("type", "array", "minItems", 1, "items", obj("type", "string", "pattern", `\S`)),
		obj("type", []string{"number", "boolean"}),
	})),
	"AnswerRequest.updated_input": with("type", "object"),
	"AnswerRequest.vendor":        with("type", []string{"string", "object"}),

	"CommandArgs.turn": oneOf("end keep"), "CommandArgs.decision": oneOf("allow deny answer vendor"),
	"CommandArgs.content": content,

	"Started.dialect": oneOf(dialects), "Started.output": oneOf("text json"), "Started.source": oneOf("tap import demo"),
	"BytesGap.reason":  oneOf("spool_full disk tap_full damaged oversize"),
	"Exited.reason":    oneOf("eof import edge_died spool_damaged"),
	"Signal.from":      oneOf("parent command cbcast"),
	"Input.type":       oneOf("user other"),
	"Stalled.what":     oneOf("no_exit_after_end silent_turn open_ask stream_closed timeout max_idle"),
	"AskClosed.reason": oneOf(askReasons), "AskClosed.by": oneOf("bus host policy"), "AskClosed.outcome": oneOf(askOutcomes),
	"AutoDecided.decision": oneOf("allow deny"), "AutoDecided.cause": oneOf("rule timeout"),
	"WorkflowView.status":        oneOf("created queued running awaiting_input cancelling completed failed cancelled"),
	"WorkflowView.schemaVersion": with("const", "1.0"),
	"WorkflowNode.status":        oneOf("queued running completed failed"),
	"CancelRequest.id":           with("pattern", commandID),
	"Lost.synthesised":           with("const", true),
	"Lost.reason":                oneOf("presence_expired"),
	"SessionNamed.session":       notEmpty,
	"CommandFact.command":        notEmpty,
}
