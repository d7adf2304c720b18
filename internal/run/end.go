package run

import (
	"fmt"
	"slices"
)

// judgeExit adds what the end of the child says.
func (s *State) judgeExit() {
	x := s.exit
	s.exit = nil
	open := s.open() // as before the exit
	s.exit = x
	var cut []Evidence // the signals that were passed on while something was open
	for _, sig := range x.Signals {
		if sig.From == "cbcast" || !ends(sig.Signal) || x.Ended != "" {
			continue
		}
		how := sig.Signal + " from " + sig.From
		// Of a child that died of it before it began a turn nobody knows what it did.
		if ev := (Evidence{x.Seq, bySignal, how}); open.Any() || len(s.turns) == 0 && x.diedOf(sig.Signal) {
			s.ending.add(Interrupted, ev)
			cut = append(cut, ev)
		}
		s.stoppedBy(sig, how)
	}
	s.openAtExit(x.Seq, cut)
	how := x.Signal
	if how == "" && x.Code != nil {
		how = fmt.Sprintf("code %d", *x.Code)
	}
	switch {
	case x.Signal != "" && !x.passedOn(x.Signal):
		s.ending.add(Failed, Evidence{x.Seq, bySignal, how})
	case x.Signal == "" && x.Code != nil && *x.Code != 0 && !s.explained(*x.Code):
		s.ending.add(Failed, Evidence{x.Seq, byCode, how})
	case x.Ended == endedTimeout || x.Ended == endedIdle:
		s.ending.add(Incomplete, Evidence{x.Seq, byLimit, x.Ended})
	case x.Reason == reasonEdgeDied:
		s.ending.add(Incomplete, Evidence{x.Seq, byExit, x.Reason})
	}
	if s.tail > 0 && s.frames > 0 {
		s.ending.add(Incomplete, Evidence{s.tail, byCut, ""})
	}
}

// stoppedBy finds the tasks that a signal ended before the child itself: it was
// passed on while they were open.
func (s *State) stoppedBy(sig SignalView, how string) {
	for _, t := range s.taskList() {
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

// What of ours ended a child before it was done: its time was over, or nothing
// came from it for too long.
const (
	endedTimeout = "timeout"
	endedIdle    = "max_idle"
)

// reasonEdgeDied is the reason of an exit that a flush wrote for a dead edge.
const reasonEdgeDied = "edge_died"

// diedOf reports whether the signal ended the child: it died of it, or says so in
// its code.
func (x *ExitView) diedOf(name string) bool {
	if x.Signal != "" {
		return x.Signal == name
	}
	n := signalNumber(name)
	return n > 0 && x.Code != nil && *x.Code == 128+n
}

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

// openAtExit turns everything that is still open into evidence and closes it. cut
// holds the signals that ended the child meanwhile.
func (s *State) openAtExit(seq uint64, cut []Evidence) {
	s.codexAtExit()
	for _, r := range s.openRounds() {
		s.left(r.turn, Evidence{r.first, byOpenTurn, ""}, cut)
	}
	for _, in := range s.pending {
		if in.mid && s.lastResult > in.seq {
			s.counts.InputsFolded++
			s.fold(in.seq)
			continue
		}
		t := s.newTurn(in.seq, "user")
		t.inputs = append(t.inputs, in.seq)
		s.left(t, Evidence{in.seq, byUnanswered, ""}, cut)
	}
	s.pending = nil
	for _, t := range s.taskList() {
		if !t.ended {
			s.taskAtExit(t, seq, cut)
		}
	}
	s.asksAtExit(seq, s.exit != nil && (s.exit.Reason == reasonEdgeDied || s.exit.Reason == "spool_damaged"))
	clear(s.rounds)
}

// left notes that something of a turn (nil: no longer kept) was open at the end.
func (s *State) left(t *turn, ev Evidence, cut []Evidence) {
	s.ending.add(Incomplete, ev)
	if t == nil {
		return
	}
	t.ev.add(Incomplete, ev)
	for _, c := range cut {
		t.ev.add(Interrupted, c)
	}
}

func (s *State) taskAtExit(t *task, seq uint64, cut []Evidence) {
	if s.neverReports(t) {
		t.end("not_reported", seq, s.now, true)
		return
	}
	in := s.stopOf(t, seq)
	t.end("unknown", seq, s.now, true)
	if in == nil || survives(t) {
		s.left(s.turn(t.turn), Evidence{seq, byOpenTask, t.id}, cut)
		return
	}
	// CodeBuddy tells no end of what an idle interrupt killed just before the exit.
	t.by = in.What
	ev := Evidence{in.AskedSeq, byInterrupt, t.id}
	s.ending.add(Interrupted, ev)
	if turn := s.turn(t.turn); turn != nil {
		turn.ev.add(Interrupted, ev)
	}
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
