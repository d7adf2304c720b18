package dialect

import "strings"

// Output is what a child writes on stdout.
type Output string

// The outputs. Auto is "not said": lines that are frames are taken as such.
const (
	OutputAuto   Output = ""
	OutputText   Output = "text"
	OutputJSON   Output = "json"
	OutputStream Output = "stream-json"
)

// OutputOf reads --output-format from a child's arguments. Both CLIs take an
// unknown word as text or refuse it, so it is Auto here.
func OutputOf(argv []string) Output {
	var out Output
	for i, a := range argv {
		v, ok := strings.CutPrefix(a, "--output-format=")
		if a == "--output-format" && i+1 < len(argv) {
			v, ok = argv[i+1], true
		}
		if a == "--" {
			break
		}
		if !ok {
			continue
		}
		switch o := Output(v); o {
		case OutputText, OutputJSON, OutputStream:
			out = o
		default:
			out = OutputAuto
		}
	}
	return out
}

// FinalResult finds the result in the whole output of a one-shot run with
// --output-format json: Claude Code writes one result object, CodeBuddy an array
// of session items with the result last. ok is false where the text is neither
// (CodeBuddy writes plain text on API errors and on --max-turns).
func FinalResult(doc []byte) (result Frame, ok bool) {
	i := skipSpace(doc, 0)
	if i < len(doc) && doc[i] == '[' {
		end := scanValue(doc, i, 0, new(nesting))
		if end < 0 || skipSpace(doc, end) != len(doc) {
			return Frame{}, false
		}
		var last Value
		for item := range Value(doc[i:end]).Items {
			if item.IsObject() && item.Get("type").Text() == typeResult {
				last = item
			}
		}
		doc = last
	}
	f, ok := Parse(doc)
	if !ok || f.Type != typeResult {
		return Frame{}, false
	}
	return f, true
}
