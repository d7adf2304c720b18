package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// maxText is how much of a text one line of output shows, in runes.
const maxText = 160

// summary says in one line what an event is, for a person. Everything in it
// that comes from outside is made printable.
func summary(e *event.Event) string {
	if e.Stream == event.Edge {
		return factSummary(e)
	}
	f, ok := dialect.Parse(e.Data)
	if !ok {
		return fmt.Sprintf("%s | %s", e.Stream, short(string(e.Data)))
	}
	head := strings.TrimPrefix(e.Type, event.TypePrefix)
	if _, rest, ok := strings.Cut(head, "."); ok {
		head = rest
	}
	if s := frameSummary(f); s != "" {
		head += "  " + s
	}
	if e.Stream == event.In {
		head = "→ " + head
	}
	return head
}

func factSummary(e *event.Event) string {
	switch e.Type {
	case event.TypeStarted:
		var s event.Started
		_ = json.Unmarshal(e.Data, &s)
		if s.Pid == 0 {
			return fmt.Sprintf("started  %s  (%s)", printable(s.Source), printable(s.Host))
		}
		return fmt.Sprintf("started  %s  (%s, pid %d)", short(strings.Join(s.Argv, " ")), printable(s.Host), s.Pid)
	case event.TypeSession:
		var s event.Session
		_ = json.Unmarshal(e.Data, &s)
		return "session  " + short(s.Session)
	case event.TypeGap:
		var g event.Gap
		_ = json.Unmarshal(e.Data, &g)
		return fmt.Sprintf("gap  %d lines, %d bytes missing: %s", g.Frames, g.Bytes, printable(g.Reason))
	case event.TypeExited:
		var x event.Exited
		_ = json.Unmarshal(e.Data, &x)
		return "exited  " + exitText(x)
	case event.TypeInput:
		var in event.Input
		_ = json.Unmarshal(e.Data, &in)
		return fmt.Sprintf("→ %s message, %d bytes (not captured)", in.Type, in.Bytes)
	case event.TypeCommand, event.TypeCommandFact:
		var f event.CommandFact
		_ = json.Unmarshal(e.Data, &f)
		return fmt.Sprintf("command %s  %s %s%s", short(f.Command), printable(f.Name), f.Fact, reason(f.Reason))
	case event.TypeAudit:
		var au event.Audit
		_ = json.Unmarshal(e.Data, &au)
		name := short(au.Name)
		if au.Args != nil && au.Args.Answer != nil {
			name += " " + short(au.Args.Ask) + " " + short(au.Args.Decision)
		}
		if au.For != "" {
			au.Actor += " for " + au.For
		}
		if au.Refused != "" {
			return fmt.Sprintf("%s  by %s from %s did not count: %s", name, short(au.Actor), short(au.From), short(au.Refused))
		}
		return fmt.Sprintf("%s  by %s from %s%s  (command %s)", name, short(au.Actor), short(au.From), reason(au.Reason), short(au.Command))
	case event.TypeCapabilities:
		var can event.Capabilities
		_ = json.Unmarshal(e.Data, &can)
		return strings.Join(compact([]string{"capabilities  level " + short(can.Level), short(strings.Join(can.Commands, " "))}), "  ")
	case event.TypeAsk:
		var c event.AskClosed
		_ = json.Unmarshal(e.Data, &c)
		return "ask " + strings.Join(compact([]string{short(c.Ask), "closed: " + short(c.Reason), short(c.Decision), short(c.Outcome)}), "  ")
	case event.TypeDecision:
		var d event.AutoDecided
		_ = json.Unmarshal(e.Data, &d)
		cause := strings.Join(compact([]string{short(d.Cause), short(d.Rule)}), " ")
		return fmt.Sprintf("ask %s  %s by the policy's %s%s", short(d.Ask), short(d.Decision), cause, reason(d.Error))
	case event.TypeLost:
		return "lost  no word from the edge; the verdict is provisional"
	case event.TypeResumed:
		return "resumed  the edge or its spool spoke again"
	}
	return strings.TrimPrefix(e.Type, event.TypePrefix) + "  " + short(string(e.Data))
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return ": " + short(s)
}

func exitText(x event.Exited) string {
	var s string
	switch {
	case x.Signal != "":
		s = printable(x.Signal)
	case x.Code != nil:
		s = fmt.Sprintf("code %d", *x.Code)
	default:
		s = printable(x.Reason)
	}
	if x.Reason != "edge_died" { // nobody counted
		s += fmt.Sprintf(", %d lines", x.Frames.Out)
	}
	if !x.Complete {
		s += ", incomplete"
	}
	return s
}

// frameSummary picks what a person wants to read of a frame.
func frameSummary(f dialect.Frame) string {
	if m, ok := f.RPC(); ok {
		return codexSummary(&m)
	}
	switch f.Type {
	case "assistant", "user":
		return blocks(f.Get("message").Get("content"))
	case "result":
		s := short(f.Get("result").Text())
		if f.Get("is_error").True() {
			s = "error  " + s
		}
		return s
	case "control_request":
		r := f.Get("request")
		return short(r.Get("tool_name").Text() + " " + r.Get("reason").Text())
	case "stream_event":
		return short(f.Get("event").Get("delta").Get("text").Text())
	case "error":
		return short(f.Get("error").Text())
	}
	if f.Subtype == "" {
		return ""
	}
	parts := []string{
		f.Get("task_id").Text(), f.Get("workflow_name").Text(), f.Get("description").Text(),
		f.Get("patch").Get("status").Text(), f.Get("status").Text(), f.Get("summary").Text(),
	}
	return short(strings.Join(compact(parts), "  "))
}

func compact(parts []string) []string {
	var out []string
	for _, p := range parts {
		if p != "" && (len(out) == 0 || out[len(out)-1] != p) {
			out = append(out, p)
		}
	}
	return out
}

// blocks shows the content of a message: text, tool calls, tool results.
func blocks(v dialect.Value) string {
	if v.IsString() {
		return short(v.Text())
	}
	var out []string
	for b := range v.Items {
		switch b.Get("type").Text() {
		case "text":
			out = append(out, b.Get("text").Text())
		case "tool_use":
			out = append(out, "⚒ "+b.Get("name").Text()+" "+string(b.Get("input")))
		case "tool_result":
			mark := "✓ "
			if b.Get("is_error").True() {
				mark = "✗ "
			}
			c := b.Get("content")
			if c.IsString() {
				out = append(out, mark+c.Text())
			} else {
				out = append(out, mark+blocks(c))
			}
		default:
			out = append(out, "["+b.Get("type").Text()+"]")
		}
	}
	return short(strings.Join(out, "  "))
}

// short is the beginning of a text on one line, printable.
func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\ufffd")), " ")
	if r := []rune(s); len(r) > maxText {
		s = string(r[:maxText]) + "…"
	}
	return printable(s)
}
