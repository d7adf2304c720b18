package ingest

// stopTask ends one task and nothing else.
type stopTask struct{ ending }

func (a *stopTask) refuse() string {
	switch known, ended := a.state().TaskEnded(a.args.Task); {
	case a.args.Task == "":
		return "bad_arguments: stop_task needs a task"
	case ended:
		return "already_ended"
	case !known:
		return "unknown_task"
	}
	return ""
}

func (a *stopTask) prepare() error {
	a.tasks = []string{a.args.Task}
	id := newRequestID()
	line, err := a.stopLine(id, a.args.Task)
	if err != nil {
		return err
	}
	a.request(&request{id: id, line: line, replies: true})
	return nil
}

func (a *stopTask) judge() { a.settle(a.ends()) }
