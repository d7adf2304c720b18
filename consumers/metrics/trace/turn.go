package trace

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/run"
)

// turnOut sends off a user turn with all that is of it.
func (b *Builder) turnOut(n int) {
	t := b.turns[n]
	delete(b.turns, n)
	if n == b.nextOut {
		b.nextOut++
	}
	v, ok := b.st.Turn(n)
	if !ok || t == nil {
		b.dropped++
		return
	}
	end := b.now
	if v.EndedAt != nil {
		end = *v.EndedAt
	}
	for _, id := range v.Tasks {
		if k, ok := b.st.Task(id); ok {
			b.taskOut(k, v, b.ended)
		}
	}
	b.agentsOver(n, b.ended)
	b.toolsOver(n, end)
	b.chatOver(turnPath(n))
	b.asked.del(turnPath(n))

	name := string(b.st.Dialect())
	var a attrs
	a.str("gen_ai.operation.name", "invoke_agent")
	a.str("gen_ai.provider.name", b.provider())
	a.str("gen_ai.agent.name", name)
	a.str("gen_ai.conversation.id", t.session)
	a.str("gen_ai.request.model", t.request)
	a.str("gen_ai.response.model", t.response)
	a.num("cbcast.turn.number", int64(n))
	a.str("cbcast.turn.origin", v.Origin)
	a.num("cbcast.turn.inputs", int64(len(v.Inputs)))
	a.int("cbcast.turn.wakeups", int64(v.Wakeups))
	usage(&a, v.Tokens)
	a.float("cbcast.turn.cost_usd", v.CostUSD)
	if v.Items != nil {
		a.int("cbcast.turn.items_unfinished", int64(v.Items.Unfinished))
	}
	s := Span{
		Path: turnPath(n), Name: "invoke_agent " + name, Kind: Internal, Links: t.links, DroppedLinks: t.linksDropped,
		Start: b.first, End: end, Events: t.list, DroppedEvents: t.dropped,
	}
	if v.StartedAt != nil {
		s.Start = *v.StartedAt
	}
	verdict := v.Verdict
	if v.State == "open" && b.ended { // the run was lost
		verdict = &run.Judgement{Verdict: run.Lost}
	}
	b.judge(&s, &a, verdict)
	s.Attrs = a
	b.emit(s, runPath, false)
}

// usage tells the tokens of a turn. All input counts as input, what came from the
// cache too, as the conventions have it.
func usage(a *attrs, t run.Tokens) {
	a.num("gen_ai.usage.input_tokens", t.Input+t.CacheRead+t.CacheCreate)
	a.num("gen_ai.usage.output_tokens", t.Output)
	a.int("gen_ai.usage.cache_read.input_tokens", t.CacheRead)
	a.int("gen_ai.usage.cache_creation.input_tokens", t.CacheCreate)
}

// judge writes a verdict and its evidence. An interrupt is no error: somebody wanted it.
func (b *Builder) judge(s *Span, a *attrs, j *run.Judgement) {
	if j == nil {
		return
	}
	a.str("cbcast.verdict", string(j.Verdict))
	var list []string
	for _, e := range j.Evidence {
		list = append(list, b.evidence(e))
	}
	a.list("cbcast.verdict.evidence", list)
	switch j.Verdict {
	case run.Success:
		s.Status = OK
	case run.Interrupted:
	default:
		a.str("error.type", string(j.Verdict))
		s.Status, s.Message = Error, string(j.Verdict)
		if len(list) > 0 {
			s.Message += ": " + list[0]
		}
	}
}

// evidenceOfOurs are the kinds of evidence whose text is not the child's.
var evidenceOfOurs = []string{"exit_code", "signal", "limit", "presence", "exit", "task", "task_open", "task_killed"}

func (b *Builder) evidence(e run.Evidence) string {
	t := e.What
	if e.Seq > 0 {
		t += "@" + strconv.FormatUint(e.Seq, 10)
	}
	if e.Text != "" && (b.o.Content || slices.Contains(evidenceOfOurs, e.What)) {
		t += " " + e.Text
	}
	return t
}

// finish sends off everything that is left, the run itself last.
func (b *Builder) finish() {
	b.newTurnsAtEnd()
	for n := b.nextOut; n <= b.lastTurn; n++ {
		if b.turns[n] != nil {
			b.turnOut(n)
		}
	}
	v := b.st.View()
	for _, t := range v.Tasks {
		b.taskOut(t, run.TurnView{}, true)
	}
	b.agentsOver(-1, true)
	b.toolsOver(-1, b.now)
	for path := range b.chats.all {
		b.chatOver(path)
	}
	b.asksOver()
	b.runOut(&v)
}

// newTurnsAtEnd notes the turns that the end itself showed: messages that nothing
// answered.
func (b *Builder) newTurnsAtEnd() {
	if n, ok := b.st.LastTurn(); ok {
		for b.lastTurn < n {
			b.lastTurn++
			b.turns[b.lastTurn] = &turn{session: b.st.Main(), request: b.st.Model()}
		}
	}
}

// runOut sends off the run, and the CI job around it where nobody else does.
func (b *Builder) runOut(v *run.View) {
	var a attrs
	a.str("gen_ai.provider.name", b.provider())
	a.str("gen_ai.agent.name", v.Dialect)
	a.str("gen_ai.agent.version", v.Versions["child"])
	a.str("gen_ai.conversation.id", v.Session)
	a.str("gen_ai.request.model", v.Model)
	a.str("host.name", v.Host)
	a.str("cbcast.version", v.Versions["cbcast"])
	b.ci(&a)
	a.num("cbcast.run.turns", int64(b.lastTurn))
	a.num("cbcast.run.input_tokens", v.Usage.Tokens.Input+v.Usage.Tokens.CacheRead+v.Usage.Tokens.CacheCreate)
	a.num("cbcast.run.output_tokens", v.Usage.Tokens.Output)
	a.float("cbcast.run.cost_usd", v.Usage.CostUSD)
	a.yes("cbcast.run.usage_includes_earlier", v.Usage.IncludesEarlier)
	a.num("cbcast.run.tool_calls", int64(v.Counts.ToolCalls))
	a.num("cbcast.run.events", int64(v.LastSeq)) //nolint:gosec // a run has fewer
	a.int("cbcast.run.late_frames", int64(v.Counts.Late))
	a.int("cbcast.run.agents_failed", int64(v.Counts.AgentsFailed))
	a.int("cbcast.run.gap_bytes", v.Counts.GapBytes)
	b.exit(&a, v.Exit)
	if v.Verdict != nil && v.Verdict.Verdict == run.Lost {
		a.is("cbcast.run.provisional", true)
	}
	b.countDropped(&a, v)
	s := Span{Path: runPath, Name: strings.TrimSpace("run " + v.Dialect), Kind: Internal, Start: b.first, End: b.now, Events: b.root.list, DroppedEvents: b.root.dropped}
	b.judge(&s, &a, v.Verdict)
	s.Attrs = a
	if !b.o.Sample(b.ctx) {
		return
	}
	switch {
	case !b.ctx.Parent.IsZero():
		s.Parent, s.Remote = b.ctx.Parent, true
	case len(b.started.CI) > 0:
		s.Parent = SpanOf(b.run, jobPath)
		b.jobOut(s.Start, s.End)
	}
	b.send(s)
}

// countDropped says what the trace does not have.
func (b *Builder) countDropped(a *attrs, v *run.View) {
	n := b.dropped
	if d := v.Dropped; d != nil {
		n += d.Tasks + d.Asks
	}
	a.int("cbcast.spans.dropped", int64(n))
}

func (b *Builder) exit(a *attrs, x *run.ExitView) {
	if x == nil {
		return
	}
	if x.Code != nil {
		a.num("process.exit.code", int64(*x.Code))
	}
	a.str("cbcast.exit.signal", x.Signal)
	a.str("cbcast.exit.reason", x.Reason)
	a.str("cbcast.exit.ended_by", x.Ended)
	a.is("cbcast.run.complete", x.Complete)
	for _, sig := range x.Signals {
		var e attrs
		e.str("cbcast.signal", sig.Signal)
		e.str("cbcast.signal.from", sig.From)
		at := b.now
		if sig.At != nil {
			at = *sig.At
		}
		b.root.add("cbcast.signal", at, e)
	}
}

// ci tells where the run comes from.
func (b *Builder) ci(a *attrs) {
	l := b.started.CI
	a.str("cicd.pipeline.name", l["ciworkflow"])
	a.str("cicd.pipeline.run.id", l["cirun"])
	a.str("cicd.pipeline.task.name", l["cijob"])
	a.str("vcs.repository.name", l["cirepo"])
	a.str("vcs.ref.head.name", l["ciref"])
	a.str("vcs.ref.head.revision", l["cisha"])
	a.str("cbcast.ci.provider", l["ciprovider"])
	a.str("cbcast.ci.attempt", l["ciattempt"])
	a.str("cbcast.ci.event", l["cievent"])
	a.str("cbcast.ci.actor", l["ciactor"])
	if l["ciprovider"] == "gitlab" {
		a.str("cicd.pipeline.task.run.url.full", l["ciurl"])
	} else {
		a.str("cicd.pipeline.run.url.full", l["ciurl"])
	}
}

// jobOut makes the span of the CI job, where the CI opened none around it. All that
// is known of it is that it was there while the run was.
func (b *Builder) jobOut(start, end time.Time) {
	l := b.started.CI
	var a attrs
	b.ci(&a)
	if l["cirun"] != "" {
		id := []string{l["cirun"], l["cijob"], l["ciattempt"]}
		a.str("cicd.pipeline.task.run.id", strings.Trim(strings.Join(id, "/"), "/"))
	}
	a.is("cbcast.synthesised", true)
	name := l["cijob"]
	if name == "" {
		name = "job"
	}
	b.send(Span{Path: jobPath, Name: name, Kind: Internal, Start: start, End: end, Attrs: a})
}
