package run

import "strings"

// workflowLabel finds meta.name in a workflow's script: the wire names inline
// workflows of CodeBuddy only by a hash. It looks for the first name: '…' after
// "meta = {" and gives "" where the script is written in another way.
func workflowLabel(script string) string {
	if len(script) > 64<<10 {
		script = script[:64<<10] // meta stands at the top
	}
	rest := script
	for {
		var ok bool
		if _, rest, ok = strings.Cut(rest, "meta"); !ok {
			return ""
		}
		if after := trim(rest); strings.HasPrefix(after, "=") && strings.HasPrefix(trim(after[1:]), "{") {
			return nameIn(trim(after[1:]))
		}
	}
}

// nameIn returns the value of the first key "name" of an object literal.
func nameIn(object string) string {
	for {
		before, rest, ok := strings.Cut(object, "name")
		if !ok {
			return ""
		}
		object = rest
		if wordByte(before[len(before)-1]) { // there is a "{" at least
			continue
		}
		value := trim(strings.TrimPrefix(strings.TrimPrefix(rest, `"`), `'`)) // the end of a quoted key
		if !strings.HasPrefix(value, ":") {
			object = "," + rest
			continue
		}
		value = trim(value[1:])
		if value == "" || !strings.ContainsRune("'\"`", rune(value[0])) {
			return ""
		}
		end := strings.IndexByte(value[1:], value[0])
		if end < 0 {
			return ""
		}
		return clip(value[1:1+end], maxText)
	}
}

func trim(s string) string { return strings.TrimLeft(s, " \t\r\n") }

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'z'
}
