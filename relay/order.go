package relay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Names of commands.
const (
	cmdInterrupt = "interrupt"
	cmdStopTask  = "stop_task"
	cmdAnswer    = "answer" // given by [Giver.Answer] only
	cmdMessage   = "message"
)

const (
	maxReason = 4096
	maxName   = 256 // of a model, a mode, a checkpoint, a scope
	maxUUID   = 64

	// messageDeliver and messageEffect are the times of a message that names none:
	// it may wait for a turn to end, and its own turn may be long.
	messageDeliver, messageEffect = time.Hour, 24 * time.Hour
)

// An Order is a command as somebody gives it.
type Order struct {
	ID   string // "" is a new one
	Name string
	Args event.CommandArgs
	// DeliverWithin and EffectWithin are 0 for what is usual.
	DeliverWithin, EffectWithin time.Duration
}

// A form is what the arguments of one command look like.
type form struct {
	keys  []string
	check func(*event.CommandArgs) error
}

var forms = map[string]form{
	cmdInterrupt: {[]string{"reason", "turn", "escalate"}, func(a *event.CommandArgs) error {
		if a.Turn != "" && a.Turn != "keep" && a.Turn != "end" {
			return errors.New("turn must be keep or end")
		}
		if a.Escalate && a.Turn == "keep" {
			return errors.New("escalate ends everything; turn cannot be kept")
		}
		return nil
	}},
	cmdStopTask:           {[]string{"task", "reason"}, func(a *event.CommandArgs) error { return word("task", a.Task, 1024) }},
	cmdMessage:            {[]string{"content", "uuid"}, checkMessage},
	"steer":               {[]string{"content"}, func(a *event.CommandArgs) error { return checkContent(a.Content) }},
	"set_permission_mode": {[]string{"mode"}, func(a *event.CommandArgs) error { return word("mode", a.Mode, maxName) }},
	"set_model":           {[]string{"model"}, func(a *event.CommandArgs) error { return word("model", a.Model, maxName) }},
	"rewind_files":        {[]string{"checkpoint", "dry_run"}, checkRewind},
	"rewind":              {[]string{"checkpoint", "scope", "dry_run"}, checkRewind},
	"end_session":         {nil, func(*event.CommandArgs) error { return nil }},
}

// CommandNames lists the commands that [Giver.Give] takes, sorted.
func CommandNames() []string {
	var names []string
	for n := range forms {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ArgumentNames lists the arguments of a command, nil for a name that is none.
func ArgumentNames(name string) []string { return forms[name].keys }

// ParseArgs reads the arguments of the command name from one JSON object. Names
// that the command does not have are refused.
func ParseArgs(name string, data []byte) (event.CommandArgs, error) {
	var a event.CommandArgs
	f, ok := forms[name]
	if !ok {
		return a, fmt.Errorf("there is no command %q; there are %s", cut(name), strings.Join(CommandNames(), ", "))
	}
	if len(data) > 0 {
		if err := decode(data, &a, f.keys); err != nil {
			return a, fmt.Errorf("args of %s: %w", name, err)
		}
	}
	return a, checkArgs(name, &a)
}

// checkArgs says what is wrong with the form of a command's arguments. Whether
// the agent can do what they say is for its edge to find.
func checkArgs(name string, a *event.CommandArgs) error {
	if len(a.Reason) > maxReason {
		return fmt.Errorf("reason is longer than %d bytes", maxReason)
	}
	if err := forms[name].check(a); err != nil {
		return fmt.Errorf("args of %s: %w", name, err)
	}
	return nil
}

// word checks an argument that must be there and is one line of text.
func word(name, v string, most int) error {
	switch {
	case v == "":
		return fmt.Errorf("%s is missing", name)
	case len(v) > most:
		return fmt.Errorf("%s is longer than %d bytes", name, most)
	case strings.ContainsFunc(v, unicode.IsControl):
		return fmt.Errorf("%s has a control character", name)
	}
	return nil
}

func checkRewind(a *event.CommandArgs) error {
	if a.Scope != "" {
		if err := word("scope", a.Scope, maxName); err != nil {
			return err
		}
	}
	return word("checkpoint", a.Checkpoint, maxName)
}

func checkMessage(a *event.CommandArgs) error {
	if a.UUID != "" {
		if err := word("uuid", a.UUID, maxUUID); err != nil {
			return err
		}
	}
	return checkContent(a.Content)
}

// checkContent wants a text that is not blank, or a list of content blocks.
func checkContent(c json.RawMessage) error {
	var text string
	if len(c) == 0 || json.Unmarshal(c, &text) == nil && strings.TrimSpace(text) == "" {
		return errors.New("content is empty")
	}
	return dialect.CheckContent(c)
}

// auditArgs is what an audit fact and the API show of a command's arguments:
// everything but the text of a message or a steer.
func auditArgs(id string, a event.CommandArgs) *event.CommandArgs {
	if len(a.Content) == 0 || a.Content[0] == '{' { // an object is a digest already
		return &a
	}
	content := canonical(a.Content)
	sum := sha256.Sum256(slices.Concat([]byte(id), []byte{0}, content))
	a.Content = mustJSON(event.Digest{Bytes: len(content), SHA256: hex.EncodeToString(sum[:])})
	return &a
}

// sameArgs reports whether two commands of one id say the same. The reason may
// differ: it changes nothing.
func sameArgs(id string, a, b event.CommandArgs) bool {
	a.Reason, b.Reason = "", ""
	return bytes.Equal(canonical(mustJSON(auditArgs(id, a))), canonical(mustJSON(auditArgs(id, b))))
}

// canonical is one form of equal JSON values: keys sorted, no space, numbers as
// they were written.
func canonical(data []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return data
	}
	return mustJSON(v)
}

// decode reads one JSON object into v. It takes the names in keys, exactly and
// each once, and no others: encoding/json would take "TASK" for "task" and drop
// what it does not know, and a misspelt "task" must not stop everything.
func decode(data []byte, v any, keys []string) error {
	names, err := objectKeys(data)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(keys, name) {
			return fmt.Errorf("there is no %q here; %s", cut(name), cmp.Or(strings.Join(keys, ", "), "nothing is taken"))
		}
	}
	return json.Unmarshal(data, v)
}

// objectKeys lists the names in one JSON object, with an error for one that
// stands there twice: readers differ in which of the two counts.
func objectKeys(data []byte) ([]string, error) {
	errForm := errors.New("it must be one JSON object in UTF-8")
	if !utf8.Valid(data) {
		return nil, errForm
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errForm
	}
	var names []string
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errForm
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("%q stands there twice", cut(name))
		}
		names = append(names, name)
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return nil, errForm
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, errForm
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errForm
	}
	return names, nil
}

// cut shortens what a client sent for a message about it.
func cut(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
