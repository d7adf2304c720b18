package slackdouble

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// What Slack documents of block kit, and the total that it does not.
const (
	maxText    = 40_000
	maxTotal   = 13_000
	maxBlocks  = 50
	maxInModal = 100
)

func units(s string) int { return len(utf16.Encode([]rune(s))) }

// checkMessage returns Slack's word for what is wrong with a message, "" for nothing,
// and what exactly.
func checkMessage(text string, blocks []json.RawMessage) (code, why string) {
	switch {
	case text == "" && len(blocks) == 0:
		return "no_text", ""
	case units(text) > maxText:
		return "msg_too_long", ""
	case len(blocks) > maxBlocks:
		return "invalid_blocks", fmt.Sprintf("%d blocks", len(blocks))
	}
	if why := checkBlocks(blocks, false); why != "" {
		return "invalid_blocks", why
	}
	total := 0
	for _, b := range blocks {
		var v any
		_ = json.Unmarshal(b, &v) // checked above
		walk(v, func(key, text string) {
			if key == "text" {
				total += units(text)
			}
		})
	}
	if total > maxTotal {
		return "msg_blocks_too_long", fmt.Sprintf("%d units", total)
	}
	return "", ""
}

type object = map[string]any

// checkBlocks says what is wrong with blocks.
func checkBlocks(blocks []json.RawMessage, modal bool) string {
	ids := map[string]bool{}
	for i, raw := range blocks {
		var b object
		if json.Unmarshal(raw, &b) != nil {
			return fmt.Sprintf("block %d is no object", i)
		}
		if id, _ := b["block_id"].(string); id != "" {
			if units(id) > 255 || ids[id] {
				return fmt.Sprintf("block_id %q", id)
			}
			ids[id] = true
		}
		if why := checkBlock(b, modal); why != "" {
			return fmt.Sprintf("block %d: %s", i, why)
		}
	}
	return ""
}

func checkBlock(b object, modal bool) string {
	switch b["type"] {
	case "divider":
		return ""
	case "header":
		return checkText(b["text"], "plain_text", 150)
	case "section":
		return checkSection(b)
	case "context":
		list, _ := b["elements"].([]any)
		if len(list) == 0 || len(list) > 10 {
			return fmt.Sprintf("%d elements", len(list))
		}
		for _, e := range list {
			if why := checkText(e, "", 3000); why != "" {
				return why
			}
		}
		return ""
	case "actions":
		list, _ := b["elements"].([]any)
		if len(list) == 0 || len(list) > 25 {
			return fmt.Sprintf("%d elements", len(list))
		}
		ids := map[any]bool{}
		for _, e := range list {
			o, _ := e.(object)
			if ids[o["action_id"]] {
				return "an action_id stands there twice"
			}
			ids[o["action_id"]] = true
			if why := checkElement(o); why != "" {
				return why
			}
		}
		return ""
	case "input":
		if !modal {
			return "an input in a message"
		}
		if why := checkText(b["label"], "plain_text", 2000); why != "" {
			return why
		}
		o, _ := b["element"].(object)
		return checkElement(o)
	}
	return fmt.Sprintf("type %v", b["type"])
}

func checkSection(b object) string {
	fields, _ := b["fields"].([]any)
	if b["text"] == nil && len(fields) == 0 {
		return "neither text nor fields"
	}
	if b["text"] != nil {
		if why := checkText(b["text"], "", 3000); why != "" {
			return why
		}
	}
	if len(fields) > 10 {
		return fmt.Sprintf("%d fields", len(fields))
	}
	for _, f := range fields {
		if why := checkText(f, "", 2000); why != "" {
			return why
		}
	}
	return ""
}

// checkText checks a text object.
func checkText(v any, want string, most int) string {
	o, ok := v.(object)
	if !ok {
		return "no text object"
	}
	typ, _ := o["type"].(string)
	text, _ := o["text"].(string)
	switch {
	case want != "" && typ != want, typ != "plain_text" && typ != "mrkdwn":
		return fmt.Sprintf("a text of type %q", typ)
	case strings.TrimSpace(text) == "":
		return "an empty text"
	case units(text) > most:
		return fmt.Sprintf("must be less than %d characters: %d", most+1, units(text))
	case typ == "mrkdwn" && o["emoji"] != nil:
		return "emoji with mrkdwn"
	}
	return ""
}

// checkElement checks what can be clicked or filled in.
func checkElement(o object) string {
	id, _ := o["action_id"].(string)
	if id == "" || units(id) > 255 {
		return "action_id"
	}
	value, _ := o["value"].(string)
	options, _ := o["options"].([]any)
	most := 0
	switch o["type"] {
	case "button":
		if units(value) > 2000 {
			return "a value too long"
		}
		if c, ok := o["confirm"].(object); ok {
			for key, most := range map[string]int{"title": 100, "text": 300, "confirm": 30, "deny": 30} {
				if why := checkText(c[key], "", most); why != "" {
					return "confirm: " + why
				}
			}
		}
		return checkText(o["text"], "plain_text", 75)
	case "plain_text_input":
		if n, ok := o["max_length"].(float64); ok && (n < 1 || n > 3000) {
			return "max_length"
		}
		return ""
	case "radio_buttons", "checkboxes":
		most = 10
	case "static_select", "multi_static_select":
		most = 100
	default:
		return fmt.Sprintf("element %v", o["type"])
	}
	if len(options) == 0 || len(options) > most {
		return fmt.Sprintf("%d options", len(options))
	}
	for _, e := range options {
		o, _ := e.(object)
		v, _ := o["value"].(string)
		if why := checkText(o["text"], "", 75); why != "" {
			return "option: " + why
		}
		if o["description"] != nil {
			if why := checkText(o["description"], "", 75); why != "" {
				return "option: " + why
			}
		}
		if units(v) > 150 || v == "" {
			return "option: value"
		}
	}
	return ""
}

// checkView checks a modal.
func checkView(raw json.RawMessage) (v object, blocks []json.RawMessage, why string) {
	var doc struct {
		Blocks []json.RawMessage `json:"blocks"`
	}
	if json.Unmarshal(raw, &v) != nil || json.Unmarshal(raw, &doc) != nil || v["type"] != "modal" {
		return nil, nil, "no modal"
	}
	for key, must := range map[string]bool{"title": true, "submit": false, "close": false} {
		if v[key] != nil || must {
			if why := checkText(v[key], "plain_text", 24); why != "" {
				return nil, nil, key + ": " + why
			}
		}
	}
	meta, _ := v["private_metadata"].(string)
	id, _ := v["callback_id"].(string)
	input := false
	for _, b := range doc.Blocks {
		input = input || strings.Contains(string(b), `"type":"input"`)
	}
	switch {
	case len(doc.Blocks) == 0 || len(doc.Blocks) > maxInModal:
		return nil, nil, fmt.Sprintf("%d blocks", len(doc.Blocks))
	case units(meta) > 3000, units(id) > 255:
		return nil, nil, "private_metadata or callback_id too long"
	case input && v["submit"] == nil:
		return nil, nil, "an input and no submit"
	}
	return v, doc.Blocks, checkBlocks(doc.Blocks, true)
}
