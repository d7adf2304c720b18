package ingest

import (
	"context"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// An action is what one command does with the child: a type of its own in
// cmd_<name>.go, made anew for each command. Its methods run under the
// recorder's lock: they read the fold as it stands at the line in hand, may call
// finishLocked, and never wait.
type action interface {
	// refuse says why the command cannot be carried out, "" when it can. It is
	// asked once, first of all.
	refuse() string
	// hold reports whether the child would lose the line now. It is asked before
	// the line is written and again after each recorded line, until DeliverBy.
	hold() bool
	// stale says why the line must not be written any more, "" while it may. It is
	// asked as often.
	stale() string
	// prepare makes the first request with [pending.request]. Instead it may give
	// the command its final fact, or an error with which it is refused.
	prepare() error
	// passed is told that a request stands among the recorded lines: what comes
	// behind it there can be its effect.
	passed(r *request)
	// detail goes with the fact that a request was written.
	detail(r *request) map[string]string
	// acked reads the child's answer to a request that it does not refuse.
	acked(r *request, resp dialect.Response)
	// failed is the reason of the final fact where it refuses, "" where that is
	// not the command's end.
	failed(r *request, text string) string
	// judge looks for the effect after each recorded line.
	judge()
	// ended may give the command its final fact when the child has left: without
	// one it is unknown what became of it.
	ended()
}

// A climber is an action that is carried out by itself, and not line by line: it
// needs no control channel.
type climber interface {
	climb(ctx context.Context)
}

// An unhurried action has no time for its effect where the command names none.
type unhurried interface{ unhurried() }

// A patient action may wait for its effect without a time.
type patient interface{ patient() bool }

// actions make the action of a command by its name.
var actions = map[string]func(plain) action{
	"answer":    func(p plain) action { return &answer{plain: p} },
	"interrupt": newInterrupt,
	"stop_task": func(p plain) action { return &stopTask{ending: ending{plain: p}} },
	"message":   newMessage,
	"steer":     func(p plain) action { return &steer{control{p}} },

	"set_permission_mode": newSetMode,
	"set_model":           newSetModel,
	"rewind_files":        newRewind(false),
	"rewind":              newRewind(true),
	"end_session":         func(p plain) action { return &endSession{control: control{p}} },
}

// plain is what most actions do.
type plain struct{ *pending }

func (plain) hold() bool                         { return false }
func (plain) stale() string                      { return "" }
func (plain) passed(*request)                    {}
func (plain) detail(*request) map[string]string  { return nil }
func (plain) acked(*request, dialect.Response)   {}
func (plain) failed(_ *request, s string) string { return "the child said: " + s }
func (plain) judge()                             {}
func (plain) ended()                             {}

// unknown stands for a command of a name that there is not.
type unknown struct{ plain }

func (a unknown) refuse() string { return "unknown_command: " + bound(a.cmd.Name, maxArgument) }
func (unknown) prepare() error   { return dialect.ErrUnsupported }

// state is the fold, dialect the child's, as the recorder knows them.
func (p *pending) state() *run.State     { return p.c.rec.state }
func (p *pending) dialect() dialect.Name { return p.c.rec.track.Dialect() }
