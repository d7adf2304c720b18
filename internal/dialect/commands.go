package dialect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Scopes are what a rewind can go back to. CodeBuddy accepts any other word and
// does nothing, so none is sent.
var Scopes = []string{"CodeAndConversation", "Code", "Conversation"}

// blockTypes are the content blocks that a person sends. A tool_result or one
// that the child does not know would become part of the conversation all the same.
var blockTypes = []string{"text", "image", "document"}

// CheckContent says what is wrong with the content of a message or a steer: it
// is a text, or a list of blocks of text, images and documents, and is not empty.
func CheckContent(content []byte) error {
	v, ok := valueOf(content)
	switch {
	case !ok:
		return errors.New("content is no JSON")
	case ambiguous(Value(`[`+string(v)+`]`), false, true):
		return errors.New("content: a key stands twice")
	case v.IsString():
		if v.Text() == "" {
			return errors.New("content is empty")
		}
		return nil
	case !v.IsArray():
		return errors.New("content must be a text or a list of content blocks")
	}
	n := 0
	for block := range v.Items {
		t := block.Get("type").Text()
		switch {
		case !block.IsObject() || !slices.Contains(blockTypes, t):
			return fmt.Errorf("content block %d: type must be one of %v", n, blockTypes)
		case t == "text" && !block.Get("text").IsString():
			return fmt.Errorf("content block %d has no text", n)
		case t != "text" && !block.Get("source").IsObject():
			return fmt.Errorf("content block %d has no source", n)
		}
		n++
	}
	if n == 0 {
		return errors.New("content is empty")
	}
	return nil
}

// Message returns the line of a user message. uuid is the id by which Claude Code
// acknowledges it and takes it only once; CodeBuddy gives messages ids of its own.
// content must have passed [CheckContent].
func Message(d Name, uuid, session string, content []byte) ([]byte, error) {
	if !Supports(d, "", "message") {
		return nil, ErrUnsupported
	}
	b := append([]byte(nil), `{"type":"user","message":{"role":"user","content":`...)
	b = appendASCIIValue(b, content)
	b = append(b, `},"parent_tool_use_id":null`...)
	b = appendField(b, "session_id", session)
	b = appendField(b, "uuid", uuid)
	return append(b, "}\n"...), nil
}

// Steer returns the line that adds content to the turn that is being worked on.
func Steer(d Name, requestID, session string, content []byte) ([]byte, error) {
	if !Supports(d, "", "steer") {
		return nil, ErrUnsupported
	}
	b := appendSession(controlRequest(requestID, "steer"), session)
	b = append(b, `,"content_blocks":`...)
	if v, _ := valueOf(content); v.IsString() {
		b = append(b, `[{"type":"text","text":`...)
		b = append(appendASCIIValue(b, v), "}]"...)
	} else {
		b = appendASCIIValue(b, v)
	}
	return append(b, "}}\n"...), nil
}

// SetPermissionMode returns the line that changes the permission mode. CodeBuddy
// refuses a session that is not its current one, so that the mode of another
// conversation is not changed; Claude Code has one.
func SetPermissionMode(d Name, requestID, session, mode string) ([]byte, error) {
	return set(d, requestID, "set_permission_mode", session, "mode", mode)
}

// SetModel returns the line that changes the model.
func SetModel(d Name, requestID, session, model string) ([]byte, error) {
	return set(d, requestID, "set_model", session, "model", model)
}

func set(d Name, requestID, subtype, session, name, value string) ([]byte, error) {
	if !Supports(d, "", subtype) {
		return nil, ErrUnsupported
	}
	b := controlRequest(requestID, subtype)
	if d == CBC {
		b = appendSession(b, session)
	}
	return append(appendField(b, name, value), "}}\n"...), nil
}

// RewindFiles returns the line that puts files back to what they were before a
// user message, or with dryRun asks what that would change.
func RewindFiles(d Name, requestID, message string, dryRun bool) ([]byte, error) {
	if !Supports(d, "", "rewind_files") {
		return nil, ErrUnsupported
	}
	return append(rewind(requestID, "rewind_files", message, dryRun), "}}\n"...), nil
}

// Rewind returns the line that puts files and conversation, as scope says (one of
// [Scopes], "" for both), back to what they were before a user message.
func Rewind(d Name, requestID, message, scope string, dryRun bool) ([]byte, error) {
	if !Supports(d, "", "rewind") {
		return nil, ErrUnsupported
	}
	b := rewind(requestID, "rewind", message, dryRun)
	if scope != "" {
		b = appendField(b, "scope", scope)
	}
	return append(b, "}}\n"...), nil
}

func rewind(requestID, subtype, message string, dryRun bool) []byte {
	b := appendField(controlRequest(requestID, subtype), "user_message_id", message)
	if dryRun {
		return append(b, `,"dry_run":true`...)
	}
	return append(b, `,"dry_run":false`...)
}

// EndSession returns the line that asks the child to leave.
func EndSession(d Name, requestID string) ([]byte, error) {
	if !Supports(d, "", "end_session") {
		return nil, ErrUnsupported
	}
	return append(controlRequest(requestID, "end_session"), "}}\n"...), nil
}

func appendSession(b []byte, session string) []byte {
	if session == "" {
		return b
	}
	return appendField(b, "session_id", session)
}

// A Rewound is what a child says about a rewind.
type Rewound struct {
	Can     bool // it is done, or for a dry run: it could be
	Error   string
	Files   []string // paths as the child writes them, at most maxFiles
	FilesN  int      // how many there are
	Counted bool     // Files, Insertions and Deletions were given
	Insertions,
	Deletions int64
	History   Value  // whether the conversation was, nil where that is not said
	FileError string // the conversation was rewound, and the files were not
}

// maxFiles bounds the paths kept of one answer.
const maxFiles = 32

// ReadRewound reads the answer to a [Rewind] or [RewindFiles]. CodeBuddy puts
// failures into a success as canRewind false; Claude Code answers with an error.
func ReadRewound(body Value) Rewound {
	r := Rewound{
		Can: body.Get("canRewind").True(), Error: body.Get("error").Text(), Counted: body.Get("filesChanged").IsArray(),
		Insertions: body.Get("insertions").Int(), Deletions: body.Get("deletions").Int(),
		FileError: body.Get("fileRewindError").Text(),
	}
	if h := body.Get("historyRewound"); h.True() || string(h) == "false" {
		r.History = h
	}
	for f := range body.Get("filesChanged").Items {
		if r.FilesN++; len(r.Files) < maxFiles {
			r.Files = append(r.Files, f.Text())
		}
	}
	if !r.Can && r.Error == "" {
		r.Error = "it cannot be rewound"
	}
	return r
}

// valueOf reads text as one JSON value.
func valueOf(text []byte) (Value, bool) {
	f, ok := Parse(append(append([]byte(`{"v":`), text...), '}'))
	if !ok {
		return nil, false
	}
	v := f.Raw.Get("v")
	return v, bytes.Equal(v, bytes.TrimSpace(text))
}

// appendRune appends r as one escape, or two.
func appendRune(b []byte, r rune) []byte {
	if r < 0x10000 {
		return appendHex4(b, uint64(r))
	}
	r -= 0x10000
	return appendHex4(appendHex4(b, uint64(0xd800+(r>>10))), uint64(0xdc00+(r&0x3ff)))
}
