package dialect

import "github.com/cbcast/cbcast/internal/event"

// Tested lists the versions of a dialect's program whose recorded sessions are
// among the tests.
func Tested(d Name) []string {
	switch d {
	case Claude:
		return []string{"2.1.220"}
	case CBC:
		return []string{"2.163.0", "2.117.0"}
	case Codex:
		return []string{"0.153.4"}
	case Unknown:
	}
	return nil
}

// An Advice says what keeps a child from level A, and what to do about it.
type Advice struct {
	Lacks string // the capability, as it is named in JSON; "" where the arguments do not work at all
	Why   string
	Do    string
	Later bool // it shows when the child runs
}

// Advise compares what a child with these arguments can do with level A.
func Advise(d Name, argv []string, c event.Capabilities) []Advice {
	arg := argReader(argv)
	var list []Advice
	add := func(has bool, lacks, why, do string, later bool) {
		if !has {
			list = append(list, Advice{lacks, why, do, later})
		}
	}
	switch d {
	case Claude:
		adviseClaude(arg, c, add)
	case CBC:
		adviseCBC(arg, c, add)
	case Codex:
		add(c.StructuredEvents, "structuredEvents", "only app-server speaks a protocol that can be answered", "use codex app-server", false)
		if c.StructuredEvents {
			add(c.InteractiveQuestions, "interactiveQuestions", "outside of Plan mode the agent cannot ask",
				"start turns in Plan mode, or add --enable "+featureQuestions, false)
			add(c.HumanApproval, "humanApproval", "who approves stands in the answer to thread/start",
				"start threads with an approvalPolicy other than never", true)
			add(c.Sandbox, "sandbox", "it stands in the answer to thread/start", "start threads with a sandbox; send it again with each resume", true)
		}
	case Unknown:
		add(false, "structuredEvents", "nothing is known of this program", "give --dialect to cbcast run where it is one of claude, cbc and codex under another name", true)
	}
	return list
}

func adviseClaude(arg argReader, c event.Capabilities, add func(bool, string, string, string, bool)) {
	printing := arg.has("-p") || arg.has("--print")
	out, _ := arg.value("--output-format")
	add(out != string(OutputStream) || !printing || arg.has("--verbose"), "", "claude -p refuses stream-json without --verbose", "add --verbose", false)
	add(c.StructuredEvents, "structuredEvents", "its output is no stream of events", "add --output-format stream-json --verbose", false)
	add(c.BidirectionalControl, "bidirectionalControl", "it reads a prompt and no messages: it cannot be commanded or answered",
		"add --input-format stream-json and send the prompt as a message, or let cbcast run --prompt do both", false)
	add(arg.hasValue("--permission-prompt-tool", "stdio"), "interactiveQuestions", "nobody can be asked: the tool for questions is switched off, and what needs leave is denied",
		"add --permission-prompt-tool stdio", false)
	add(!bypasses(arg), "humanApproval", "its permission mode lets everything pass, or denies it, without a question",
		"leave out --dangerously-skip-permissions, or choose another --permission-mode", false)
}

func adviseCBC(arg argReader, c event.Capabilities, add func(bool, string, string, string, bool)) {
	add(!arg.has("--permission-prompt-tool"), "", "cbc knows no --permission-prompt-tool and ends at once", "leave it out", false)
	add(c.StructuredEvents, "structuredEvents", "its output is no stream of events", "add --output-format stream-json --verbose", false)
	add(c.BidirectionalControl, "bidirectionalControl", "it reads a prompt and no messages: it cannot be commanded or answered",
		"add --input-format stream-json and send the prompt as a message, or let cbcast run --prompt do both", false)
	add(c.InteractiveQuestions || !c.BidirectionalControl, "interactiveQuestions", "questions exist only where the host's initialize asks for them",
		"the host sends capabilities.askUserQuestion: true; cbcast run --prompt does", true)
	add(!bypasses(arg), "humanApproval", "its permission mode lets everything pass, or denies it, without a question",
		"leave out -y, or choose another --permission-mode", false)
}

func (a argReader) hasValue(flag, want string) bool {
	v, ok := a.value(flag)
	return ok && v == want
}

// bypasses reports whether the arguments name a mode in which nobody is asked.
func bypasses(arg argReader) bool {
	mode, _ := arg.value("--permission-mode")
	return mode == modeBypass || mode == modeDontAsk || arg.has("--dangerously-skip-permissions") || arg.has("-y")
}
