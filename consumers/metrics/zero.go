package metrics

import (
	"slices"

	"github.com/cbcast/cbcast/internal/run"
)

// A rate sees no rise from nothing: a series that begins with its first count has none.
// So what a run can still count begins at zero when the run does, and that of a model when
// the run names it. The rules of deploy/prometheus see the rest.

// zero makes a series that counts nothing yet. They fill half of a metric at most, so that
// none takes the place of a count.
func (b *book) zero(d *def, labels ...string) {
	limit := d.limit
	if limit == 0 {
		limit = maxSeries
	}
	if !b.mute && len(b.families[d].series) < limit/2 {
		b.at(d, labels...)
	}
}

// expect makes what the end of a run may count.
func (c *tally) expect(l *live) {
	for _, v := range run.Verdicts {
		c.zero(mFinished, l.who(string(v))...)
	}
	c.zero(mLost, l.Who)
	c.zero(mResumed, l.Who)
}

// expectModel makes what a run's model may count, when it is named.
func (c *tally) expectModel(l *live) {
	m := l.state.Model()
	if c.mute || m == "" || m == l.model {
		return
	}
	l.model = m
	name := c.sets.models.of(m)
	c.zero(mCost, name, l.Who, l.Dialect)
	for _, t := range tokenTypes {
		c.zero(mTokens, t, name, l.Who, l.Dialect)
	}
}

// beginAlerts makes the series of closed sets that alerts look at.
func (c *tally) beginAlerts() {
	for _, r := range append(slices.Clone(gapReasons), other) {
		c.at(mGaps, r)
		c.at(mGapBytes, r)
	}
	for _, name := range append(slices.Clone(cmdNames), other) {
		for _, out := range []string{"expired", "unknown"} {
			c.at(mCommands, name, out, byEdge)
			c.at(mCommands, name, out, byRelay)
		}
	}
}
