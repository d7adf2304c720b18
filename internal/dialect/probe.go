package dialect

import (
	"reflect"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// The levels of [event.Capabilities].
const (
	LevelA = "A" // events, control, questions and approvals
	LevelB = "B" // events and control; nobody can answer questions, or none are asked for approval
	LevelC = "C" // events one way: a question ends the run, its answer continues the session
	LevelD = "D" // text only
)

// Level is the level of what is in place.
func Level(c event.Capabilities) string {
	switch {
	case c.StructuredEvents && c.BidirectionalControl && c.InteractiveQuestions && c.HumanApproval:
		return LevelA
	case c.StructuredEvents && c.BidirectionalControl:
		return LevelB
	case c.StructuredEvents:
		return LevelC
	}
	return LevelD
}

// A Probe finds out what a child can do: first from its arguments, then from the
// lines that pass. It takes nothing for granted; what was not seen is false. It
// is not safe for concurrent use.
type Probe struct {
	dialect Name
	version string
	argv    []string
	stdin   bool // something can be written to the child

	structured bool
	control    bool   // the child was told to read control messages, or its host writes them
	prompt     bool   // Claude Code asks on stdio
	questions  bool   // the tool is there, or was switched on
	approvals  bool   // codex: approvals go to a person
	mode       string // permission mode, "" is not known
	resume     bool
	sandbox    bool
	asking     []byte // cbc: exact id of the initialize that switches questions on

	wanted map[string]bool // types of output by whether they are wanted; a closed list
}

// NewProbe starts from the arguments of a child of dialect d. stdin says that its
// stdin is a pipe that can be written to.
func NewProbe(d Name, argv []string, stdin bool) *Probe {
	p := &Probe{dialect: d, argv: argv, stdin: stdin, wanted: map[string]bool{}}
	p.read()
	return p
}

// read takes from the arguments what they say.
func (p *Probe) read() {
	arg := argReader(p.argv)
	switch p.dialect {
	case Claude, CBC:
		p.structured = OutputOf(p.argv) == OutputStream
		in, _ := arg.value("--input-format")
		p.control = in == string(OutputStream)
		p.mode, _ = arg.value("--permission-mode")
		if arg.has("--dangerously-skip-permissions") || p.dialect == CBC && arg.has("-y") {
			p.mode = modeBypass
		}
		p.resume = !arg.has("--no-session-persistence")
		if p.dialect == CBC {
			p.sandbox = arg.has("--sandbox")
		} else {
			tool, _ := arg.value("--permission-prompt-tool")
			p.prompt = tool == "stdio"
			p.questions = p.prompt
			settings, _ := arg.value("--settings")
			if f, ok := Parse([]byte(settings)); ok { // else it is a file's name
				p.sandbox = f.Get("sandbox").Get("enabled").True()
			}
		}
	case Codex:
		p.structured = arg.word("app-server")
		p.control, p.resume = p.structured, p.structured
		p.questions = arg.feature(featureQuestions)
	case Unknown:
	}
}

// Permission modes in which nobody is asked.
const (
	modeBypass  = "bypassPermissions"
	modeDontAsk = "dontAsk"
)

// featureQuestions lets Codex ask outside of Plan mode.
const featureQuestions = "default_mode_request_user_input"

// Capabilities is what is known by now.
func (p *Probe) Capabilities() event.Capabilities {
	control := p.control && p.stdin
	asks := control && p.mode != modeBypass && p.mode != modeDontAsk
	c := event.Capabilities{
		StructuredEvents:     p.structured,
		BidirectionalControl: control,
		InteractiveQuestions: control && p.questions,
		SessionResume:        p.resume,
		Interrupt:            control && Supports(p.dialect, p.version, "interrupt"),
		Sandbox:              p.sandbox,
	}
	switch p.dialect {
	case Claude:
		c.HumanApproval = asks && p.prompt
	case CBC:
		c.HumanApproval = asks
	case Codex:
		c.HumanApproval = control && p.approvals
	case Unknown:
	}
	if control {
		c.Commands = Capabilities(p.dialect, p.version)
	}
	c.Level = Level(c)
	return c
}

// Wants reports whether a line of this class can change what is known; only such
// lines need to be given to See.
func (p *Probe) Wants(stream event.Stream, c *Class) bool {
	switch {
	case !c.Frame:
		return false
	case stream == event.Out:
		want, ok := p.wanted[c.Type]
		if !ok {
			want = wantsOutput(nameOf(c.Type))
			p.wanted[c.Type] = want
		}
		return want || c.Kind == event.Ask
	case stream == event.In:
		name := nameOf(c.Type)
		return name == "control_request.initialize" || name == "request.turn.start" ||
			!p.control && strings.HasPrefix(name, "control_request.")
	}
	return false
}

// nameOf is a ce-type without its dialect.
func nameOf(ceType string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(ceType, event.TypePrefix), ".")
	return name
}

func wantsOutput(name string) bool {
	switch name {
	case "system.init", "system.status", "control_response.success", "control_response.error", "response.success",
		"control_request.can_use_tool":
		return true
	}
	return false
}

// See learns from a line of the child or of its host, and reports whether that
// changed what [Probe.Capabilities] says. d is the dialect as it is known by now.
func (p *Probe) See(stream event.Stream, line []byte, d Name) bool {
	f, ok := Parse(line)
	if !ok {
		return false
	}
	before := p.Capabilities()
	if d != p.dialect {
		seen := p.control
		p.dialect = d
		p.read()
		p.control = p.control || seen
	}
	if m, ok := f.RPC(); ok && d == Codex {
		p.seeCodex(stream, &m)
	} else if stream == event.In {
		p.seeHost(&f)
	} else {
		p.seeChild(&f)
	}
	return !reflect.DeepEqual(before, p.Capabilities())
}

// seeHost reads a control_request of the host. CodeBuddy has questions only where
// initialize asks for them, and the last one counts; its answer says that it was
// understood.
func (p *Probe) seeHost(f *Frame) {
	if f.Type != typeControlRequest {
		return
	}
	p.control = true
	if p.dialect != CBC || f.Subtype != "initialize" {
		return
	}
	p.asking = nil
	if f.field(keyRequest).Get("capabilities").Get("askUserQuestion").True() {
		p.asking = append([]byte{}, f.ControlID()...)
	} else {
		p.questions = false
	}
}

// seeChild reads a frame of Claude Code or CodeBuddy.
func (p *Probe) seeChild(f *Frame) {
	switch f.Type {
	case typeSystem:
		if m := f.Get("permissionMode"); m.IsString() {
			p.mode = m.Text()
		}
		if f.Subtype != subInit {
			return
		}
		p.structured = true
		if v := f.field(keyClaudeVersion).Text(); v != "" {
			p.version = v
		}
		// CodeBuddy lists the tool also where it cannot be used.
		if p.dialect == Claude {
			p.questions = hasTool(f.Get("tools"), "AskUserQuestion")
		}
	case typeControlResponse:
		r := f.field(keyResponse)
		if mode := r.Get("response").Get("mode"); f.Subtype == "success" && mode.IsString() {
			p.mode = mode.Text()
		}
		if len(p.asking) > 0 && string(f.ControlID()) == string(p.asking) {
			p.questions, p.asking = f.Subtype == "success", nil
		}
	case typeControlRequest:
		if f.Subtype != subCanUseTool {
			return
		}
		p.prompt = true // it asks: no proof is better
		if IsQuestionTool(f.field(keyRequest).Get("tool_name").Text()) {
			p.questions = true
		}
	}
}

// seeCodex reads a frame of codex app-server or of its host. The sandbox and who
// approves stand in the answer that starts or resumes a thread, and only there.
func (p *Probe) seeCodex(stream event.Stream, m *RPC) {
	switch {
	case stream == event.In && m.Kind == RPCRequest && m.Method == MethodTurnStart:
		if mode := m.Params.Get("collaborationMode").Get("mode"); mode.IsString() {
			p.questions = mode.Text() == "plan" || argReader(p.argv).feature(featureQuestions)
		}
	case stream == event.In:
		return
	case m.Kind == RPCResponse && m.Result.Get("thread").IsObject():
		p.structured, p.control = true, true
		p.resume = !m.Result.Get("thread").Get("ephemeral").True()
		if v := m.Result.Get("sandbox").Get("type"); v.IsString() {
			p.sandbox = v.Text() != "dangerFullAccess"
		}
		if v := m.Result.Get("approvalPolicy"); !v.Null() {
			who := m.Result.Get("approvalsReviewer")
			p.approvals = v.Text() != "never" && (who.Null() || who.Text() == "user")
		}
		if v := m.Result.Get("thread").Get("cliVersion").Text(); v != "" {
			p.version = v
		}
	case m.Kind == RPCRequest && m.Method == MethodUserInput:
		p.questions = true
	case m.Kind == RPCRequest && IsAskMethod(m.Method) && m.Method != MethodElicitation:
		p.approvals = true
	}
}

func hasTool(tools Value, name string) bool {
	for t := range tools.Items {
		if t.Text() == name {
			return true
		}
	}
	return false
}

// IsQuestionTool reports whether a call of this tool asks a person something,
// rather than for leave.
func IsQuestionTool(name string) bool { return name == "AskUserQuestion" || name == "ExitPlanMode" }

// argReader looks for flags in a child's arguments, up to "--".
type argReader []string

func (a argReader) value(flag string) (v string, ok bool) {
	for i, s := range a {
		if s == "--" {
			break
		}
		if rest, cut := strings.CutPrefix(s, flag+"="); cut {
			v, ok = rest, true
		} else if s == flag && i+1 < len(a) {
			v, ok = a[i+1], true
		}
	}
	return v, ok
}

func (a argReader) has(flag string) bool {
	for _, s := range a {
		if s == "--" {
			return false
		}
		if s == flag || strings.HasPrefix(s, flag+"=") {
			return true
		}
	}
	return false
}

// word reports whether a subcommand of that name is among the arguments.
func (a argReader) word(name string) bool { return len(a) > 1 && slices.Contains(a[1:], name) }

// feature reports whether a feature of Codex is switched on: --enable NAME, or
// -c features.NAME=true.
func (a argReader) feature(name string) bool {
	on := false
	for i, s := range a {
		next := ""
		if i+1 < len(a) {
			next = a[i+1]
		}
		switch {
		case s == "--enable" && next == name, s == "--enable="+name:
			on = true
		case s == "--disable" && next == name, s == "--disable="+name:
			on = false
		case s == "-c" || s == "--config":
			if v, ok := strings.CutPrefix(strings.ReplaceAll(next, " ", ""), "features."+name+"="); ok {
				on = v == "true"
			}
		}
	}
	return on
}
