package run

import "maps"

// A Tally is what a reader counts that looks at the state before and after an
// event. Nothing in it goes down.
type Tally struct {
	Turns      int // user turns that began
	Messages   int
	ToolCalls  int
	Denied     int
	Retries    int
	Repeats    int // frames whose uuid was seen before
	Late       int // frames of tasks that have ended
	AsksClosed int
}

// Tally returns the totals so far.
func (s *State) Tally() Tally {
	return Tally{
		Turns: s.turnCount, Messages: s.counts.Messages, ToolCalls: s.counts.ToolCalls, Denied: s.counts.Denied,
		Retries: s.counts.Retries, Repeats: s.counts.Repeats, Late: s.counts.Late, AsksClosed: s.asksClosed,
	}
}

// EachAsk calls yield for the asks that are kept, the oldest first. closing is the
// number of its end among all ends of asks of the run, 0 while there is none. The
// view belongs to the state: it must not be changed or kept.
func (s *State) EachAsk(yield func(v *AskView, closing int) bool) {
	for _, a := range s.asks {
		if !yield(&a.AskView, a.closing) {
			return
		}
	}
}

// Usage is what the run used so far.
func (s *State) Usage() UsageView {
	return UsageView{CostUSD: s.use.cost, Tokens: s.use.tokens, Models: maps.Clone(s.use.models)}
}
