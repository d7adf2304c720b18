package metrics

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// look folds one event into its run and counts what it changes.
func (c *tally) look(l *live, e *event.Event) {
	if n := e.Seq - l.Last; l.Last > 0 && n > 1 {
		c.add(mMissing, int64(n-1))
	}
	l.Last, l.Part = e.Seq, e.Part.I
	if l.Trace == "" {
		l.Trace = run.TraceContextOf(l.Run, "").Trace.String() // until its start names another
	}
	if d := dialectOf(e.Type); d != "" && d != l.Dialect {
		l.Dialect, l.frames, l.bytes, l.model = d, nil, nil, ""
		c.expect(l)
	}
	c.frame(l, e)
	whole, _, broken := l.join.Add(e)
	for _, w := range []*event.Event{broken, whole} {
		if w == nil || w.Stream != event.Edge {
			continue
		}
		c.edgeFact(l, w)
	}
	st := l.state
	if light(e) {
		before := st.Tally()
		st.Apply(e)
		c.rose(l, before, st.Tally())
		l.State = state(st.Phase())
		return
	}
	c.change(l, e, whole, broken)
}

// light reports whether an event can end no task and bring no usage, and no ask by
// itself: the bulk of a run.
func light(e *event.Event) bool {
	switch {
	case e.Stream == event.Err:
		return true
	case e.Stream != event.Out:
		return false
	}
	rest, ok := strings.CutPrefix(e.Type, event.TypePrefix)
	if !ok {
		return false
	}
	_, typ, _ := strings.Cut(rest, ".")
	switch typ {
	case "stream_event", "tool_progress", "stderr":
		return true
	}
	return false
}

// change folds an event that may change anything, and counts the differences.
func (c *tally) change(l *live, e, whole, broken *event.Event) {
	st := l.state
	before := st.Tally()
	c.before = c.before[:0]
	for t := range st.TaskStates {
		c.before = append(c.before, t)
	}
	codex := l.Dialect == string(dialect.Codex) && strings.HasSuffix(e.Type, "tokenUsage.updated")
	exited := e.Type == event.TypeExited && e.Complete()
	var had run.UsageView
	if codex || exited {
		had = st.Usage()
	}
	st.Apply(e)
	c.expectModel(l)
	after := st.Tally()
	c.rose(l, before, after)
	c.tasks(l, e)
	c.asks(l, before.AsksClosed, exited)
	for _, w := range []*event.Event{broken, whole} {
		if w != nil && w.Stream == event.Out && strings.Contains(w.Type, ".result") {
			if f, ok := dialect.Parse(w.Data); ok && f.Type == "result" {
				c.result(l, w, &f, after.Repeats > before.Repeats)
			}
		}
	}
	if codex || exited {
		c.told(l, had, st.Usage())
	}
	l.State = state(st.Phase())
	if exited {
		l.Waits = nil
	}
}

// rose counts what the fold's totals have more.
func (c *tally) rose(l *live, before, after run.Tally) {
	if before == after {
		return
	}
	d := l.Dialect
	c.add(mTurns, int64(after.Turns-before.Turns), d)
	c.add(mMessages, int64(after.Messages-before.Messages), d)
	c.add(mTools, int64(after.ToolCalls-before.ToolCalls), d)
	c.add(mDenied, int64(after.Denied-before.Denied), d)
	c.add(mRetries, int64(after.Retries-before.Retries), d)
	c.add(mLate, int64(after.Late-before.Late), d)
}

// frame counts what needs no fold. l is nil for a fact of a relay.
func (c *tally) frame(l *live, e *event.Event) {
	if e.Chunk.I <= 1 && e.Part.I <= 1 {
		c.frameType(l, e)
		for _, s := range e.Redacted {
			c.inc(mRedactions, c.sets.rules.of(s.Rule))
		}
		if l != nil && e.Stream == event.Out && strings.HasSuffix(e.Type, ".raw") {
			c.inc(mInvalid, l.Dialect)
		}
	}
	if l == nil || c.mute {
		return
	}
	if l.bytes == nil {
		l.bytes = c.at(mBytes, l.Dialect)
	}
	l.bytes.n += int64(len(e.Data))
}

func (c *tally) frameType(l *live, e *event.Event) {
	if c.mute {
		return
	}
	if l != nil && l.frames != nil && l.typ == e.Type {
		l.frames.n++
		return
	}
	d, typ, _ := strings.Cut(strings.TrimPrefix(e.Type, event.TypePrefix), ".")
	switch d {
	case "claude", "cbc", "codex", unknown, "edge", "relay":
	default:
		d = other
	}
	s := c.at(mFrames, d, c.sets.types.of(typ))
	s.n++
	if l != nil {
		l.frames, l.typ = s, strings.Clone(e.Type)
	}
}

// edgeFact reads a fact that the edge states itself.
func (c *tally) edgeFact(l *live, e *event.Event) {
	switch e.Type {
	case event.TypeStarted:
		c.started(l, e)
	case event.TypeGap:
		var d event.Gap
		if json.Unmarshal(e.Data, &d) == nil {
			c.inc(mGaps, among(gapReasons, d.Reason))
			c.add(mGapBytes, max(0, d.Bytes), among(gapReasons, d.Reason))
		}
	case event.TypeStalled:
		var d event.Stalled
		if json.Unmarshal(e.Data, &d) == nil {
			c.inc(mStalled, among(stalls, d.What))
		}
	case event.TypeCommand:
		c.command(l, e)
	}
}

func (c *tally) started(l *live, e *event.Event) {
	var d event.Started
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	l.Dialect, l.frames, l.bytes = unknown, nil, nil
	if n := dialect.Name(d.Dialect); n == dialect.Claude || n == dialect.CBC || n == dialect.Codex {
		l.Dialect = d.Dialect
	}
	l.CI = none
	if p := d.CI["ciprovider"]; p != "" {
		l.CI = among(providers, p)
	}
	l.Repo, l.Flow = allowed(c.sets.repos, d.CI["cirepo"]), allowed(c.sets.workflows, d.CI["ciworkflow"])
	l.Trace = run.TraceContextOf(l.Run, e.TraceParent).Trace.String()
	if d.Resume != nil {
		l.Again, l.Resume = true, run.BoundID(d.Resume.Session)
	}
	for _, a := range d.Argv {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--resume", "-r", "--continue", "-c":
			l.Again = true
		}
	}
	c.inc(mStarted, l.who()...)
	c.expect(l)
}

// command reads a fact of a command that the edge wrote.
func (c *tally) command(l *live, e *event.Event) {
	var d event.CommandFact
	if json.Unmarshal(e.Data, &d) != nil || d.Command == "" {
		return
	}
	id := run.BoundID(d.Command)
	k := l.Cmds[id]
	if k == nil {
		if len(l.Cmds) >= maxCmds {
			l.dropCmd()
		}
		if l.Cmds == nil {
			l.Cmds = map[string]*cmd{}
		}
		k = &cmd{Name: among(cmdNames, d.Name)}
		l.Cmds[strings.Clone(id)] = k
	}
	if d.Fact == event.Written && k.Written.IsZero() {
		k.Written = e.Time
	}
	if !d.Fact.Final() || k.Final {
		return
	}
	k.Final = true
	c.inc(mCommands, k.Name, among(outcomes, string(d.Fact)), byEdge)
	if (k.Name == "interrupt" || k.Name == "stop_task") && d.Fact == event.Settled && !k.Written.IsZero() {
		rung := d.Detail["rung"]
		if rung == "" {
			rung = k.Name
		}
		c.measure(mSettle, e.Time.Sub(k.Written), l.exemplar(e.Time), among(rungs, rung))
	}
}

// dropCmd forgets a command, one that is over if there is one.
func (l *live) dropCmd() {
	drop := ""
	for id, k := range l.Cmds {
		if d := l.Cmds[drop]; d == nil || k.Final && !d.Final || k.Final == d.Final && (k.Written.Before(d.Written) || k.Written.Equal(d.Written) && id < drop) {
			drop = id
		}
	}
	delete(l.Cmds, drop)
}

// relayFact reads a fact of a command that a relay wrote for an edge that is gone. The
// edge may have written another one that is shipped later: each is counted by its writer.
func (c *tally) relayFact(e *event.Event) {
	var d event.CommandFact
	if json.Unmarshal(e.Data, &d) == nil && d.Fact.Final() {
		c.inc(mCommands, among(cmdNames, d.Name), among(outcomes, string(d.Fact)), byRelay)
	}
}

// tasks counts the tasks that an event ended.
func (c *tally) tasks(l *live, e *event.Event) {
	st, i := l.state, 0
	over := st.Ended()
	for t := range st.TaskStates {
		// Both lists are in one order; the new one may lack old tasks, and has new ones
		// at its end.
		was := false
		for ; i < len(c.before); i++ {
			if c.before[i].ID == t.ID {
				was = c.before[i].Settled
				i++
				break
			}
			if _, kept := st.TaskState(c.before[i].ID); kept {
				break
			}
		}
		if was || !t.Settled && !(over && t.Ended) {
			continue
		}
		v, _ := st.Task(t.ID)
		typ, status := c.taskType(v.Type), among(statuses, v.Status)
		c.inc(mTasks, l.Dialect, typ, status, sourceOf(e.Type, v.Synthesised, t.Settled))
		if v.StartedAt != nil && v.EndedAt != nil {
			c.measure(mTaskTime, v.EndedAt.Sub(*v.StartedAt), l.exemplar(*v.EndedAt), typ, status)
		}
	}
}

func (c *tally) taskType(t string) string {
	if c.mute {
		return unknown
	}
	return c.sets.tasks.of(t)
}

// sourceOf says what told the end of a task: a frame by its type, the list of background
// tasks, or that the run ended with it open.
func sourceOf(typ string, synthesised, settled bool) string {
	switch {
	case !settled:
		return "list"
	case typ == event.TypeExited && synthesised:
		return "exit"
	case strings.HasSuffix(typ, ".task_updated"):
		return "task_updated"
	case strings.HasSuffix(typ, ".task_notification"):
		return "task_notification"
	}
	return "frame"
}

// asks counts the asks that ended, and notes which are open. closed is how many had
// ended before.
func (c *tally) asks(l *live, closed int, exited bool) {
	l.Waits = l.Waits[:0]
	for a, n := range l.state.EachAsk {
		kind := among(askKinds, a.Kind)
		switch {
		case a.State == run.AskOpen && a.OpenedAt != nil:
			l.Waits = append(l.Waits, wait{kind, *a.OpenedAt})
		case n > closed, exited && n == 0:
			c.waited(l, a, kind)
		}
	}
}

func (c *tally) waited(l *live, a *run.AskView, kind string) {
	if a.OpenedAt == nil {
		return
	}
	outcome, end := unknown, time.Time{}
	if a.Closed != nil {
		outcome = a.Closed.Reason
		if a.Closed.At != nil {
			end = *a.Closed.At
		}
	}
	if a.Decided != nil && a.Decided.At != nil {
		end = *a.Decided.At
	}
	if end.IsZero() {
		end = *a.OpenedAt
	}
	c.measure(mWaitTime, end.Sub(*a.OpenedAt), l.exemplar(end), kind, among(askOutcomes, outcome))
}

// state is the word for a run's state that is in the set.
func state(phase string) string { return among(states, phase) }
