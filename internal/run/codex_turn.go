package run

import (
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// codexInput notes a message of the host: turn/start, which joins the turn that
// runs, or turn/steer. request is the exact text of its id; the answer names the
// turn.
func (s *State) codexInput(seq uint64, uuid, request string) {
	s.inputsSeen = true
	s.inputNoted(seq, uuid)
	s.requests.set(request, "")
	if len(s.pending) < maxPending {
		s.pending = append(s.pending, input{seq: seq, uuid: uuid, request: boundID(request), mid: s.working()})
	}
}

// inputAnswered binds a message to the turn that the answer to its request names,
// and reports whether there is one.
func (s *State) inputAnswered(e *event.Event, request string, m *dialect.RPC) bool {
	for i, in := range s.pending {
		if request == "" || in.request != request || in.turn != "" {
			continue
		}
		if id := boundID(m.Turn().Text()); id != "" {
			s.pending[i].turn = id
			s.joinTurn(id)
			return true
		}
		s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
		if in.mid {
			s.counts.InputsDropped++ // it was to join a turn, which goes on without it
			return true
		}
		t := s.newTurn(in.seq, "user")
		t.inputs = append(t.inputs, in.seq)
		t.ev.add(Incomplete, Evidence{e.Seq, byRejected, m.Error.Get("message").Text()})
		return true
	}
	return false
}

// joinTurn gives the running turn with this id, if there is one, the messages that
// are bound to it.
func (s *State) joinTurn(id string) {
	for _, r := range s.openRounds() {
		if t := s.cx().threads[r.session]; t != nil && t.turn != nil && t.turn.id == id {
			s.counts.InputsFolded += s.take(t.turn)
		}
	}
}

// take gives a turn the messages that are bound to it, and counts them.
func (s *State) take(t *codexTurn) (n int) {
	rest := s.pending[:0:0]
	for _, in := range s.pending {
		if in.turn != t.id {
			rest = append(rest, in)
			continue
		}
		if n++; t.work != nil && len(t.work.inputs) < maxPending {
			t.work.inputs = append(t.work.inputs, in.seq)
			t.work.origin = "user"
		}
	}
	s.pending = rest
	return n
}

// turnStarted begins a turn of a thread.
func (s *State) turnStarted(e *event.Event, m *dialect.RPC) {
	t := s.threadOf(m)
	id := boundID(m.Turn().Text())
	if t == nil || t.turn != nil && t.turn.id == id {
		return
	}
	if s.main == "" {
		s.hostThread(t, e.Seq)
	}
	if t.turn != nil {
		s.turnOver(e, t, "") // its end was not seen
	}
	t.turn = &codexTurn{id: id, thread: t.id, first: e.Seq, open: map[string]openItem{}}
	t.last, t.err, t.endedMS = t.turn, "", 0
	t.turns++
	if t.startedMS == 0 {
		t.startedMS = m.Emitted.Int()
	}
	if !t.host {
		t.turn.work = t.parent
		t.works()
		return
	}
	work := s.newTurn(e.Seq, "child")
	t.turn.work, work.codex = work, t.turn
	s.rounds[t.id] = &round{session: t.id, first: e.Seq, turn: work}
	s.bindOldest(id)
	s.take(t.turn)
}

// bindOldest binds the oldest message to a turn that begins, where the requests on
// record have no ids. What is bound was bound by an answer that came before.
func (s *State) bindOldest(turn string) {
	for i, in := range s.pending {
		if in.turn == turn {
			return
		}
		if in.request == "" && in.turn == "" {
			s.pending[i].turn = turn
			return
		}
	}
}

// turnCompleted ends a turn of a thread.
func (s *State) turnCompleted(e *event.Event, m *dialect.RPC) {
	t := s.threadOf(m)
	id := boundID(m.Turn().Text())
	if t == nil || t.last != nil && t.last.id == id && t.turn == nil {
		return
	}
	if t.turn == nil || t.turn.id != id {
		s.turnStarted(e, m) // its beginning was not seen
	}
	turn := m.Params.Get("turn")
	t.endedMS = m.Emitted.Int()
	t.err = clip(turn.Get("error").Get("message").Text(), maxText)
	for item := range turn.Get("items").Items {
		if item.Get("type").Text() == "agentMessage" {
			t.said = clip(item.Get("text").Text(), maxResultText+1)
		}
	}
	s.turnOver(e, t, turn.Get("status").Text())
}

// turnOver closes what a turn leaves behind. status is "" where its end was not
// seen.
func (s *State) turnOver(e *event.Event, t *thread, status string) {
	ct := t.turn
	t.turn = nil
	s.leaveItems(ct, status)
	s.asksOfTurn(ct, status, e.Seq)
	if !t.host {
		s.agentRests(e, t, status)
		return
	}
	delete(s.rounds, t.id)
	work := ct.work
	s.results++
	s.lastResult = e.Seq
	work.results++
	work.endedSeq, work.endedAt = e.Seq, s.now
	work.abortedLast = status == "interrupted"
	switch status {
	case "completed":
		work.ev.add(Success, Evidence{e.Seq, byResult, ""})
	case "interrupted":
		work.ev.add(Interrupted, Evidence{e.Seq, byAborted, ""})
		if in := s.interruptOf(ct, e.Seq, "turn"); in != nil {
			work.ev.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, ""})
		}
	case "failed":
		work.ev.add(Failed, Evidence{e.Seq, byError, t.err})
	default:
		work.ev.add(Incomplete, Evidence{ct.first, byOpenTurn, ""})
	}
	r := &ResultView{Seq: e.Seq, Subtype: clip(status, maxText), IsError: status == "failed"}
	r.Text, r.Truncated = clip(t.said, maxResultText), len(t.said) > maxResultText
	if t.err != "" {
		r.Errors = []string{t.err}
	}
	s.result, t.said = r, ""
}

// leaveItems closes the items of a turn that have not ended: a command that
// outlives a completed turn works on in the background, of anything else no end
// will be told.
func (s *State) leaveItems(ct *codexTurn, status string) {
	for _, id := range ct.order {
		it := ct.open[id]
		if it.typ == "commandExecution" && status == "completed" {
			s.background(ct, id, it)
			continue
		}
		ct.items.Unfinished++
	}
	ct.open, ct.order = nil, nil
}

// background makes a task of a command that outlives its turn. Its id is the item's.
func (s *State) background(ct *codexTurn, id string, it openItem) {
	if s.tasks[id] != nil {
		return
	}
	k := &task{
		id: id, typ: "command", desc: it.text, status: "running", startedSeq: it.seq, startedAt: s.now,
		thread: ct.thread, process: it.process,
	}
	s.adopt(k, ct.work)
	s.keepTask(k)
}

// adopt puts a task under a user turn.
func (s *State) adopt(k *task, work *turn) {
	if work == nil {
		return
	}
	k.turn = work.n
	if len(work.tasks) < maxTasks {
		work.tasks = append(work.tasks, k.id)
	}
}

// interruptOf finds the interrupt that named a turn, and notes its effect.
func (s *State) interruptOf(ct *codexTurn, seq uint64, effect string) *interrupt {
	for _, in := range s.interrupts {
		if in.codexTurn == ct.id && ct.id != "" && in.EndedSeq == 0 && in.Error == "" {
			in.EndedSeq, in.Effect = seq, effect
			return in
		}
	}
	return nil
}

// codexIn folds a recorded line of the host.
func (s *State) codexIn(e *event.Event, m *dialect.RPC) {
	switch {
	case m.Kind == dialect.RPCResponse:
		s.codexAnswered(e, m)
		return
	case m.Kind != dialect.RPCRequest:
		return
	case m.Method == dialect.MethodTurnStart || m.Method == dialect.MethodTurnSteer:
		s.codexInput(e.Seq, boundID(m.Params.Get("clientUserMessageId").Text()), string(m.ID))
		return
	}
	s.requests.set(string(m.ID), "")
	in := &interrupt{id: boundID(string(m.ID)), at: s.now}
	in.InterruptView = InterruptView{ID: clip(idText(m.ID), maxText), What: "interrupt", By: "host", AskedSeq: e.Seq}
	switch m.Method {
	case dialect.MethodTurnInterrupt:
		in.codexTurn = boundID(m.Turn().Text())
		if t := s.cx().threads[boundID(m.Thread().Text())]; t != nil && t.task != nil {
			in.Task = t.id
		}
	case dialect.MethodTerminate:
		in.What, in.Task = "stop_task", s.commandOf(m)
	case dialect.MethodInitialize:
		for v := range m.Params.Get("capabilities").Get("optOutNotificationMethods").Items {
			s.cx().noEnds = s.cx().noEnds || v.Text() == dialect.MethodTurnCompleted
		}
		return
	default:
		return
	}
	if e.Ext["origin"] == "cbcast" {
		in.By = "cbcast"
	}
	s.keepInterrupt(in)
}

// commandOf is the background command that a terminate names by its process.
func (s *State) commandOf(m *dialect.RPC) string {
	thread, process := boundID(m.Thread().Text()), m.Params.Get("processId").Text()
	for _, k := range s.taskList() {
		if k.typ == "command" && k.thread == thread && k.process == process && !k.ended {
			return k.id
		}
	}
	return ""
}

// RunningTurn is the turn of Codex that runs on a sub-agent's thread, or, for "",
// on the main thread, else on the host's that works longest. It is "" where none
// does. An interrupt names both.
func (s *State) RunningTurn(task string) (thread, turn string) {
	if s.codex == nil {
		return "", ""
	}
	ids := []string{boundID(task)}
	if task == "" {
		ids[0] = s.main
		for _, r := range s.openRounds() {
			ids = append(ids, r.session)
		}
	}
	for _, id := range ids {
		if t := s.codex.threads[id]; t != nil && t.turn != nil {
			return t.id, t.turn.id
		}
	}
	return "", ""
}

// TaskProcess is where a background command of Codex runs: its thread and the id
// of its process, "" for any other task.
func (s *State) TaskProcess(id string) (thread, process string) {
	if k := s.tasks[boundID(id)]; k != nil && k.typ == "command" && !k.ended {
		return k.thread, k.process
	}
	return "", ""
}
