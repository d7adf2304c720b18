package metrics

import (
	"time"

	"github.com/cbcast/cbcast/internal/run"
)

// over counts the end of a run.
func (c *tally) over(l *live) {
	st := l.state
	verdict := string(run.Success)
	if j := st.Verdict(); j != nil {
		verdict = string(j.Verdict)
	}
	if l.Final {
		c.inc(mCorrected, l.Who, verdict)
	} else {
		c.inc(mFinished, l.who(verdict)...)
	}
	v := st.View()
	took := time.Duration(0)
	if v.Exit != nil && v.Exit.DurationMS > 0 && v.Exit.DurationMS < maxDuration.Milliseconds() {
		took = time.Duration(v.Exit.DurationMS) * time.Millisecond
	} else if v.StartedAt != nil && v.EndedAt != nil {
		took = v.EndedAt.Sub(*v.StartedAt)
	}
	ended := l.Touched
	if v.EndedAt != nil {
		ended = *v.EndedAt
	}
	c.measure(mDuration, took, l.exemplar(ended), l.Dialect, verdict)
	for _, t := range v.Turns {
		if t.Verdict != nil {
			c.inc(mTurnsDone, l.Dialect, string(t.Verdict.Verdict))
		}
		for _, a := range t.Agents {
			c.inc(mAgents, l.Dialect, among(agentStates, a.State))
		}
	}
	if v.Dropped != nil {
		for word, n := range v.Dropped.Verdicts {
			c.add(mTurnsDone, int64(n), l.Dialect, word)
		}
	}
	for _, t := range v.Tasks {
		for _, a := range t.Agents {
			c.inc(mAgents, l.Dialect, among(agentStates, a.State))
		}
	}
	c.remember(l)
}

// remember keeps what an ended run needs.
func (c *tally) remember(l *live) {
	e := ended{l.Tenant, l.Run, l.Last, l.Final}
	if l.Final {
		c.lost.put(e)
	} else {
		c.ended.put(e)
	}
	c.leave(l)
}
