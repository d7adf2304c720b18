package run

import (
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
	byReview     = "review_denied"      // an automatic review that said no (codex)
	byTask       = "task"               // a task that failed or was stopped
	byOpenTask   = "task_open"          // a task open at exit
	byOpenTurn   = "no_result"          // a turn without its result
	byRejected   = "rejected"           // a user message that the child could not read
	byUnanswered = "unanswered"         // a user message without a turn
	byOpenAsk    = "ask_open"           // an ask open at exit
	byLimit      = "limit"              // a time limit that ended the child
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
