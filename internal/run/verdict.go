package run

import (
	"fmt"
	"slices"
)

// Verdict is what really happened, from all evidence.
type Verdict string

// The verdicts, the worst first: the first that has evidence holds.
const (
	Lost        Verdict = "lost"
	Failed      Verdict = "failed"
	Interrupted Verdict = "interrupted"
	Denied      Verdict = "denied"
	Incomplete  Verdict = "incomplete"
	Success     Verdict = "success"
)

// Verdicts lists all verdicts in the order in which they are looked for.
var Verdicts = []Verdict{Lost, Failed, Interrupted, Denied, Incomplete, Success}

// Evidence is one event that a verdict rests on.
type Evidence struct {
	Seq  uint64 `json:"seq"`  // 0 for a fact outside the run's sequence
	What string `json:"what"` // see the constants of this package
	Text string `json:"text,omitempty"`
}

// Judgement is a verdict with its evidence.
type Judgement struct {
	Verdict  Verdict    `json:"verdict"`
	Evidence []Evidence `json:"evidence"`
}

// What evidence can be.
const (
	byResult     = "result"             // a result without error
	byError      = "error_result"       // a result with an error
	byAPI        = "api_error"          // an API failure inside a "success" result
	byExit       = "exit"               // the exit itself
	byCode       = "exit_code"          // an exit code that nothing explains
	bySignal     = "signal"             // a signal: unexplained, or passed on while something was open
	byAborted    = "aborted"            // a result that says it was aborted
	byInterrupt  = "interrupt"          // an interrupt that took effect
	byKilled     = "task_killed"        // a task that an interrupt or stop_task ended
	byAskCut     = "ask_interrupted"    // an ask that an interrupt closed
	byDenial     = "permission_denials" // listed in a result
	byDecline    = "declined"           // an answer on stdin
	byHook       = "hook_denied"        // a hook that said no
	byTask       = "task"               // a task that failed or was stopped
	byOpenTask   = "task_open"          // a task open at exit
	byOpenTurn   = "no_result"          // a turn without its result
	byRejected   = "rejected"           // a user message that the child could not read
	byUnanswered = "unanswered"         // a user message without a turn
	byOpenAsk    = "ask_open"           // an ask open at exit
	byCut        = "cut_tail"           // output that ends inside a line
	byPresence   = "presence"           // the edge's presence expired
)

// maxEvidence bounds the evidence kept for one verdict of one turn.
const maxEvidence = 8

// evidence collects what speaks for each verdict.
type evidence map[Verdict][]Evidence

func (ev *evidence) add(v Verdict, e Evidence) {
	if *ev == nil {
		*ev = evidence{}
	}
	if list := (*ev)[v]; len(list) < maxEvidence && !slices.Contains(list, e) {
		e.Text = clip(e.Text, maxText)
		(*ev)[v] = append(list, e)
	}
}

// judge returns the first verdict that has evidence, success without any.
func (ev evidence) judge() *Judgement {
	for _, v := range Verdicts {
		if list := ev[v]; len(list) > 0 {
			return &Judgement{v, list}
		}
	}
	return &Judgement{Success, []Evidence{}}
}

// Worse reports whether v is worse than w.
func (v Verdict) Worse(w Verdict) bool {
	return slices.Index(Verdicts, v) < slices.Index(Verdicts, w)
}

// Verdict is the run's: its last user turn's, made worse by how the run ended.
// nil while the run lives.
func (s *State) Verdict() *Judgement {
	switch {
	case s.exit != nil:
	case s.lost != nil && !s.lost.Resumed:
		return &Judgement{Lost, []Evidence{{What: byPresence, Text: s.lost.Reason}}}
	default:
		return nil
	}
	var last evidence
	if n := len(s.turns); n > 0 {
		last = s.turns[n-1].ev
	}
	both := evidence{}
	for v, list := range last {
		both[v] = append(both[v], list...)
	}
	for v, list := range s.ending {
		for _, e := range list {
			if !slices.Contains(both[v], e) {
				both[v] = append(both[v], e)
			}
		}
	}
	j := both.judge()
	if j.Verdict == Success && len(j.Evidence) == 0 {
		j.Evidence = []Evidence{{Seq: s.exit.Seq, What: byExit}}
	}
	return j
}

// judgeExit adds what the end of the child says.
func (s *State) judgeExit() {
	x := s.exit
	s.exit = nil
	open := s.open() // as before the exit
	s.exit = x
	s.openAtExit(x.Seq)
	how := x.Signal
	if how == "" && x.Code != nil {
		how = fmt.Sprintf("code %d", *x.Code)
	}
	switch {
	case x.Signal != "" && !x.passedOn(x.Signal):
		s.ending.add(Failed, Evidence{x.Seq, bySignal, how})
	case x.Signal == "" && x.Code != nil && *x.Code != 0 && !s.explained(*x.Code):
		s.ending.add(Failed, Evidence{x.Seq, byCode, how})
	case x.Reason == reasonEdgeDied:
		s.ending.add(Incomplete, Evidence{x.Seq, byExit, x.Reason})
	}
	for _, sig := range x.Signals {
		if sig.From == "cbcast" || !ends(sig.Signal) || x.Ended != "" {
			continue
		}
		how := sig.Signal + " from " + sig.From
		if open.Any() {
			s.ending.add(Interrupted, Evidence{x.Seq, bySignal, how})
		}
		s.stoppedBy(sig, how)
	}
	if s.tail > 0 && s.frames > 0 {
		s.ending.add(Incomplete, Evidence{s.tail, byCut, ""})
	}
}

// stoppedBy finds the tasks that a signal ended before the child itself: it was
// passed on while they were open.
func (s *State) stoppedBy(sig SignalView, how string) {
	for _, t := range s.tasks {
		if t.synth || t.by != "" || sig.At == nil || t.endedAt.Before(*sig.At) || !stopped(t.status) {
			continue
		}
		t.by = "signal"
		ev := Evidence{t.endedSeq, bySignal, how}
		s.ending.add(Interrupted, ev)
		if turn := s.turn(t.turn); turn != nil {
			turn.ev.add(Interrupted, ev)
		}
	}
}

// stopped reports whether a task with this status was ended from outside.
func stopped(status string) bool {
	return status == "killed" || status == "stopped" || status == "cancelled" || status == "canceled"
}

// reasonEdgeDied is the reason of an exit that a flush wrote for a dead edge.
const reasonEdgeDied = "edge_died"

func (x *ExitView) passedOn(name string) bool {
	return slices.ContainsFunc(x.Signals, func(v SignalView) bool { return v.Signal == name })
}

// ends reports whether a signal asks a program to end, by default.
func ends(name string) bool {
	return name != "SIGCONT" && name != "SIGWINCH" && name != "SIGTSTP" && name != "SIGSTOP"
}

// explained reports whether a signal that was passed on (128+n is its code), or
// the aborted last result (Claude Code ends with 1 after one), accounts for the
// exit code.
func (s *State) explained(code int) bool {
	for _, sig := range s.exit.Signals {
		if n := signalNumber(sig.Signal); n > 0 && code == 128+n {
			return true
		}
	}
	n := len(s.turns)
	return n > 0 && code == 1 && s.turns[n-1].abortedLast
}

// openAtExit turns everything that is still open into evidence and closes it.
func (s *State) openAtExit(seq uint64) {
	for _, r := range s.rounds {
		if r.turn == nil {
			continue
		}
		r.turn.ev.add(Incomplete, Evidence{r.first, byOpenTurn, ""})
		s.ending.add(Incomplete, Evidence{r.first, byOpenTurn, ""})
	}
	for _, in := range s.pending {
		if in.mid && s.lastResult > in.seq {
			s.counts.InputsFolded++
			s.fold(in.seq)
			continue
		}
		t := s.newTurn(in.seq, "user")
		t.inputs = append(t.inputs, in.seq)
		t.ev.add(Incomplete, Evidence{in.seq, byUnanswered, ""})
	}
	s.pending = nil
	for _, t := range s.taskList() {
		if t.ended {
			continue
		}
		if s.neverReports(t) {
			t.end("not_reported", seq, s.now, true)
			continue
		}
		if in := s.stopOf(t, seq); in != nil && !survives(t) {
			t.end("unknown", seq, s.now, true)
			t.by = in.What
			s.ending.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, t.id})
			if turn := s.turn(t.turn); turn != nil {
				turn.ev.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, t.id})
			}
			continue
		}
		t.end("unknown", seq, s.now, true)
		ev := Evidence{seq, byOpenTask, t.id}
		s.ending.add(Incomplete, ev)
		if turn := s.turn(t.turn); turn != nil {
			turn.ev.add(Incomplete, ev)
		}
	}
	for _, a := range s.asks {
		if a.open() {
			s.ending.add(Incomplete, Evidence{a.OpenedSeq, byOpenAsk, a.Tool})
		}
		s.closeAsk(a, "exit", seq)
	}
	clear(s.rounds)
}

// signalNumber gives the Linux numbers of the signals that are passed on.
func signalNumber(name string) int {
	switch name {
	case "SIGHUP":
		return 1
	case "SIGINT":
		return 2
	case "SIGQUIT":
		return 3
	case "SIGABRT":
		return 6
	case "SIGKILL":
		return 9
	case "SIGUSR1":
		return 10
	case "SIGSEGV":
		return 11
	case "SIGUSR2":
		return 12
	case "SIGPIPE":
		return 13
	case "SIGTERM":
		return 15
	}
	return 0
}
