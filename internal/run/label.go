package run

import "strings"

// workflowLabel finds meta.name in a workflow's script: the wire names inline
// workflows of CodeBuddy only by a hash. It looks for the first name: '…' after
// the word meta and gives "" where the script is written in another way.
func workflowLabel(script string) string {
	if len(script) > 64<<10 {
		script = script[:64<<10] // meta stands at the top
	}
	_, rest, ok := strings.Cut(script, "meta")
	for ok {
		var before string
		before, rest, ok = strings.Cut(rest, "name")
		if !ok {
			return ""
		}
		if before != "" && wordByte(before[len(before)-1]) {
			continue
		}
		value := strings.TrimLeft(rest, " \t\r\n")
		value = strings.TrimPrefix(strings.TrimPrefix(value, `"`), `'`) // a quoted key
		value = strings.TrimLeft(value, " \t\r\n")
		if !strings.HasPrefix(value, ":") {
			continue
		}
		value = strings.TrimLeft(value[1:], " \t\r\n")
		if value == "" || !strings.ContainsRune("'\"`", rune(value[0])) {
			return ""
		}
		end := strings.IndexByte(value[1:], value[0])
		if end < 0 {
			return ""
		}
		return clip(value[1:1+end], maxText)
	}
	return ""
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'z'
}
