package ingest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// maxPaths bounds the paths in a fact, in bytes.
const maxPaths = 4 << 10

// rewind puts files, with scope also the conversation, back to what they were
// before a user message; dry_run only asks what that would be.
type rewind struct {
	control
	history bool // it is the rewind that has a scope
}

func newRewind(history bool) func(plain) action {
	return func(p plain) action { return &rewind{control{p}, history} }
}

func (a *rewind) refuse() string {
	switch {
	case a.args.Checkpoint == "" || len(a.args.Checkpoint) > maxArgument:
		return "bad_arguments: " + a.cmd.Name + " needs a checkpoint, the id of a user message"
	case !a.history && a.args.Scope != "":
		return "bad_arguments: rewind_files has no scope; rewind has one"
	case a.args.Scope != "" && !slices.Contains(dialect.Scopes, a.args.Scope):
		return "bad_arguments: scope is one of " + strings.Join(dialect.Scopes, ", ")
	}
	return ""
}

func (a *rewind) prepare() error {
	return a.say(func(id string) ([]byte, error) {
		if a.history {
			return dialect.Rewind(a.dialect(), id, a.args.Checkpoint, a.args.Scope, a.args.DryRun)
		}
		return dialect.RewindFiles(a.dialect(), id, a.args.Checkpoint, a.args.DryRun)
	})
}

// acked reads the result. A success that says it cannot be done is none; one that
// rewound the conversation but not the files is, and says so.
func (a *rewind) acked(_ *request, resp dialect.Response) {
	r := dialect.ReadRewound(resp.Body)
	detail := map[string]string{"canRewind": strconv.FormatBool(r.Can), "checkpoint": a.args.Checkpoint}
	if a.args.DryRun {
		detail["dry_run"] = "true"
	}
	if !r.Can {
		a.c.finishLocked(a.pending, event.Refused, a.failed(nil, bound(r.Error, maxReason)), detail)
		return
	}
	if r.Counted {
		detail["filesChanged"] = strconv.Itoa(r.FilesN)
		detail["insertions"] = strconv.FormatInt(r.Insertions, 10)
		detail["deletions"] = strconv.FormatInt(r.Deletions, 10)
		if list := paths(r.Files); list != "" {
			detail["files"] = list
		}
	}
	if len(r.History) > 0 {
		detail["historyRewound"] = string(r.History)
	}
	if r.FileError != "" {
		detail["fileRewindError"] = bound(r.FileError, maxReason)
	}
	a.settled(detail)
}

// paths joins as many of the files as fit, one a line.
func paths(files []string) string {
	var b strings.Builder
	for _, f := range files {
		if b.Len()+len(f) >= maxPaths {
			break
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f)
	}
	return b.String()
}
