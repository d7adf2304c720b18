package run

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// How long after an interrupt the end of a task counts as its effect. Claude Code
// needs milliseconds, up to 2.5 s where a child resists; CodeBuddy tells the end
// of a task that an idle interrupt killed up to 30 s later.
const (
	effectClaude = 10 * time.Second
	effectCBC    = 60 * time.Second
)

// interrupt is one interrupt or stop_task on stdin.
type interrupt struct {
	InterruptView
	id string // exact text of the request id
	at time.Time

	codexTurn string // that it names
}

// applyIn folds one recorded line of the child's stdin.
func (s *State) applyIn(e *event.Event) {
	if e.ContentType != event.JSON {
		return
	}
	f, ok := dialect.Parse(e.Data)
	if !ok {
		return
	}
	if m, rpc := f.RPC(); rpc && dialect.FromType(e.Type) == dialect.Codex {
		s.codexIn(e, &m)
		return
	}
	switch f.Type {
	case "user":
		s.inputSeen(e.Seq, boundID(f.Get("uuid").Text()))
	case "control_request":
		s.hostRequest(e, &f)
	case "control_response":
		s.askAnswered(e, &f)
	}
}

func (s *State) hostRequest(e *event.Event, f *dialect.Frame) {
	s.requests.set(string(f.ControlID()), "")
	s.settingAsked(f)
	if f.Subtype != "interrupt" && f.Subtype != "stop_task" {
		return
	}
	by := "host"
	if e.Ext["origin"] == "cbcast" {
		by = "cbcast"
	}
	in := &interrupt{id: boundID(string(f.ControlID())), at: s.now}
	in.InterruptView = InterruptView{
		ID: clip(idText(f.ControlID()), maxText), What: f.Subtype, By: by, AskedSeq: e.Seq,
		Task: boundID(f.Get("request").Get("task_id").Text()),
	}
	s.keepInterrupt(in)
	if f.Subtype == "interrupt" {
		for _, r := range s.rounds {
			if r.intr == 0 && (r.turn != nil || len(s.pending) > 0) {
				r.intr = e.Seq
			}
		}
	}
}

func (s *State) keepInterrupt(in *interrupt) {
	s.counts.Interrupts++
	if len(s.interrupts) >= maxInterrupts {
		s.interrupts = append(s.interrupts[:0:0], s.interrupts[1:]...)
	}
	s.interrupts = append(s.interrupts, in)
}

// interruptSince returns the latest interrupt asked at or after seq.
func (s *State) interruptSince(seq uint64) *interrupt {
	for _, in := range slices.Backward(s.interrupts) {
		if in.What == "interrupt" && in.AskedSeq >= seq {
			return in
		}
	}
	return nil
}

// stopOf finds the first interrupt or stop_task that can have ended a task.
func (s *State) stopOf(t *task, seq uint64) *interrupt {
	window := effectClaude
	if s.dialect == dialect.CBC {
		window = effectCBC
	}
	for _, in := range s.interrupts {
		switch {
		case in.Error != "" || in.AskedSeq < t.startedSeq || s.now.Sub(in.at) > window:
		case (in.What == "stop_task" || s.dialect == dialect.Codex) && in.Task != t.id:
		case in.What == "interrupt" && survives(t) && !s.working():
		default:
			s.took(in.AskedSeq, seq, "task")
			return in
		}
	}
	return nil
}

// fresh returns the seq of the first interrupt asked after seq that has no effect
// yet, otherwise that of the first one asked after it.
func (s *State) fresh(seq uint64) uint64 {
	var first uint64
	for _, in := range s.interrupts {
		if in.What != "interrupt" || in.AskedSeq < seq || in.Error != "" {
			continue
		}
		if in.EndedSeq == 0 {
			return in.AskedSeq
		}
		if first == 0 {
			first = in.AskedSeq
		}
	}
	return first
}

// took notes the first effect of the interrupt asked at seq asked.
func (s *State) took(asked, seq uint64, effect string) {
	for _, in := range s.interrupts {
		if in.AskedSeq == asked && in.EndedSeq == 0 {
			in.EndedSeq, in.Effect = seq, effect
		}
	}
}

// ack reads a control_response of the child.
func (s *State) ack(e *event.Event, f *dialect.Frame) {
	resp := f.Get("response")
	s.settingAcked(f, resp)
	s.pendingAsks(e, f)
	id := boundID(string(f.ControlID()))
	var found *interrupt
	for _, in := range s.interrupts {
		if id == "" || in.id != id {
			continue
		}
		if found = in; in.AckedSeq == 0 {
			break // the same id may be asked twice and is answered twice
		}
	}
	switch {
	case found == nil:
		if len(s.requests.m) > 0 && !s.requests.has(id) {
			s.counts.AcksUnknown++
		}
	case found.AckedSeq != 0:
		s.counts.AcksRepeated++
	default:
		found.AckedSeq = e.Seq
		if f.Subtype == "error" {
			found.Error = clip(resp.Get("error").Text(), maxText)
		}
	}
}

// commandFact reads one step of a command's life.
func (s *State) commandFact(e *event.Event) {
	var d event.CommandFact
	if json.Unmarshal(e.Data, &d) != nil || d.Command == "" {
		return
	}
	s.askCommand(e, &d)
	c := s.command(d.Command, d.Name)
	if c == nil {
		return
	}
	fact := FactView{Fact: string(d.Fact), Reason: clip(d.Reason, maxText), Seq: e.Seq, At: at(e.Time)}
	for _, have := range c.Facts {
		if have.Fact == fact.Fact && have.Reason == fact.Reason {
			return
		}
	}
	if len(c.Facts) < maxEvidence*2 {
		c.Facts = append(c.Facts, fact)
	}
	if !event.Fact(c.State).Final() || c.State == "" {
		c.State = fact.Fact
	}
}

func (s *State) command(id, name string) *CommandView {
	id = boundID(id)
	for _, c := range s.commands {
		if c.ID == id {
			return c
		}
	}
	if len(s.commands) >= maxCommands {
		s.commands = append(s.commands[:0:0], s.commands[1:]...)
	}
	c := &CommandView{ID: id, Name: clip(name, maxText)}
	s.commands = append(s.commands, c)
	return c
}
