package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
)

func TestParseAcceptsOnlyOneObject(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	for _, tc := range []struct {
		line string
		want bool
	}{
		{`{}`, true},
		{` {"type":"x"} ` + "\r", true},
		{"\t{\"a\":[1,-0,0.10,1E5,1e400,9223372036854775807]}", true},
		{`{"a":"` + "\xff\xfe \xc0" + `"}`, true},          // no UTF-8
		{`{"a":"\ud83d","b":"\udc00 \ud83d\ude00"}`, true}, // lone surrogates
		{"{\"a\":\"x\u2028y\u2029z\u0085\"}", true},        // no line ends
		{`{"a":"W\u0000s\u0000l\u0000"}`, true},            // escaped NUL
		{deep(dialect.MaxDepth), true},
		{deep(dialect.MaxDepth + 1), false},
		{strings.Repeat("[", 1<<20), false},
		{`{"a":` + strings.Repeat("[", 1<<20), false},
		{"", false},
		{" ", false},
		{"{", false},
		{"}", false},
		{"null", false},
		{`"x"`, false},
		{"42", false},
		{`[{"type":"x"}]`, false},
		{`{"a":1}{"b":2}`, false},
		{`{"a":1} x`, false},
		{"\ufeff{}", false},
		{"{\"a\":\"\x00\"}", false},
		{"{}\x00", false},
		{"{\"a\":\"\x1f\"}", false},
		{`{"a":01}`, false},
		{`{"a":1.}`, false},
		{`{"a":.5}`, false},
		{`{"a":+1}`, false},
		{`{"a":1e}`, false},
		{`{"a":-}`, false},
		{`{"a":tru}`, false},
		{`{"a":nul}`, false},
		{`{"a":NaN}`, false},
		{`{"a":1,}`, false},
		{`{,"a":1}`, false},
		{`{"a" 1}`, false},
		{`{"a":[1,]}`, false},
		{`{"a":[1}`, false},
		{`{"a":{"b":1]}`, false},
		{`{'a':1}`, false},
		{`{a:1}`, false},
		{`{"a":"\x"}`, false},
		{`{"a":"\u12g4"}`, false},
		{`{"a":"\u123"}`, false},
		{`{"a":"`, false},
		{`{"a":"\`, false},
	} {
		if _, got := dialect.Parse([]byte(tc.line)); got != tc.want {
			t.Errorf("Parse(%.60q) = %t, want %t", tc.line, got, tc.want)
		}
	}
}

func TestParseFindsKeysExactly(t *testing.T) {
	f, ok := dialect.Parse([]byte(` {"Type":"no","TYPE":"no","\u0074ype":"result","sub":{"type":"no"},"subtype":"success","uuid":"\"\u00e9\\n\n"} `))
	if !ok {
		t.Fatal("no frame")
	}
	got := []string{f.Type, f.Subtype, f.Get("uuid").Text(), f.Get("Type").Text(), string(f.Get("missing")), f.Get("sub").Get("type").Text()}
	want := []string{"result", "success", "\"é\\n\n", "no", "", "no"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if f.Dup {
		t.Error("keys that differ in case are no duplicates")
	}
}

func TestParseFlagsRepeatedKeys(t *testing.T) {
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, `"k%d":1,`, i)
	}
	for _, tc := range []struct {
		line string
		want bool
	}{
		{`{"type":"assistant","type":"result"}`, true},
		{`{"type":"a","\u0074ype":"b"}`, true},
		{`{"":1,"":2}`, true},
		{`{"a":{"b":1,"b":2}}`, false}, // only the top level is flagged here
		{`{` + many.String() + `"k39":2}`, true},
		{`{` + many.String() + `"k3":2}`, true},
		{`{` + many.String() + `"last":2}`, false},
	} {
		f, ok := dialect.Parse([]byte(tc.line))
		if !ok || f.Dup != tc.want {
			t.Errorf("%.50s: frame %t, dup %t, want %t", tc.line, ok, f.Dup, tc.want)
		}
	}
	// Two different values are none, two equal ones are one.
	f, _ := dialect.Parse([]byte(`{"type":"assistant","type":"result","uuid":"u","uuid":"u","x":1,"x":2,"y":1,"y":1}`))
	if got := []string{f.Type, f.Get("uuid").Text(), string(f.Get("x")), string(f.Get("y"))}; !slices.Equal(got, []string{"", "u", "", "1"}) {
		t.Errorf("%q", got)
	}
}

func TestAmbiguousControl(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		want       bool
	}{
		{"plain", `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"a":1,"A":2}}}`, false},
		{"request id twice", `{"type":"control_request","request_id":"q1","request_id":"q2","request":{"subtype":"can_use_tool"}}`, true},
		{"tool name twice", `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Read","tool_name":"Bash"}}`, true},
		{"tool name in another case", `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Read","Tool_Name":"Bash"}}`, true},
		{"envelope in another case", `{"type":"control_request","Request_ID":"p","request_id":"q","request":{"subtype":"can_use_tool"}}`, true},
		{"inside the input", `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","input":{"x":[{"command":"ls","command":"rm"}]}}}`, true},
		{"escaped", `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","input":{"command":"ls","\u0063ommand":"rm"}}}`, true},
	} {
		f, ok := dialect.Parse([]byte(tc.line))
		if !ok {
			t.Fatalf("%s: no frame", tc.name)
		}
		if got := f.AmbiguousControl(); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestValueKeepsTheText(t *testing.T) {
	f, _ := dialect.Parse([]byte(`{"n":[9223372036854775807,0.10,1E5,-0,1e400,12345678901234567890, "x" ,{ "k" : 1 },[],null,true]}`))
	var got []string
	for v := range f.Get("n").Items {
		got = append(got, string(v))
	}
	want := []string{"9223372036854775807", "0.10", "1E5", "-0", "1e400", "12345678901234567890", `"x"`, `{ "k" : 1 }`, "[]", "null", "true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	v := f.Get("n")
	if v.Int() != 0 || v.Text() != "" || v.True() || v.Null() {
		t.Error("a value of another kind is not zero")
	}
	if got := dialect.Value("9223372036854775807").Int(); got != 9223372036854775807 {
		t.Error(got)
	}
	if got := dialect.Value("1e400").Float(); got != 0 {
		t.Error(got)
	}
}

func TestTextIsAlwaysUTF8(t *testing.T) {
	for in, want := range map[string]string{
		`"a\ud83d"`:            "a\ufffd",
		`"\udc00x"`:            "\ufffdx",
		`"\ud83d\ude00"`:       "😀",
		`"\ud83d\u0041"`:       "\ufffdA",
		"\"\xff\xfe\"":         "\ufffd\ufffd",
		`"\u0000\b\f\n\r\t\/"`: "\x00\b\f\n\r\t/",
	} {
		if got := dialect.Value(in).Text(); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// A frame is exactly what encoding/json takes for a valid object, whatever the
// bytes; its parts are the same values.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"type":"system","subtype":"init","session_id":"a","n":[1,2.5e-3,true,null,"\u00e9"]}`, `{}`, `{"a":{"b":[{}]}}`, "{\"a\":\"\xff\"}",
		`[]`, `{"a":1}{"b":2}`, "\ufeff{}", `{"a":"\ud83d"}`, `{"a":01}`, ` { "a" : [ ] , "b" : { } } `, `{"type":"a","type":"b"}`, `{"a":"\`,
		`{"message":{"id":"m","content":[{"type":"text","text":"a \"b\" \\\\"},{"type":"x","type":"y"},{"\u0074ype":"z"},[],1]}}`,
		` {"message":{"content":[ {"type" : 1 } , {"t":[{}]}] , "content":[]},"message":{"content":[{"type":"a"}]}}`,
		`{"message":{"content":[{},{},{},{},{}]}}`, `{"message":{"\u0063ontent":[{}]}}`, `{"message":{"content":[{"type":"a","type":"a"},]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		fr, ok := dialect.Parse(line)
		trimmed := bytes.TrimLeft(line, " \t\r\n")
		if want := json.Valid(line) && len(trimmed) > 0 && trimmed[0] == '{'; ok != want {
			t.Fatalf("Parse(%q) = %t, want %t", line, ok, want)
		}
		if !ok {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got, torn := map[string]bool{}, map[string]bool{}
		first := map[string]dialect.Value{}
		for k, v := range fr.Raw.Fields {
			if !json.Valid(v) {
				t.Fatalf("%q: value %q of %q", line, v, k)
			}
			var key string
			if json.Unmarshal([]byte(`"`+string(k)+`"`), &key) != nil {
				t.Fatalf("key %q", k)
			}
			got[key] = true
			if old, ok := first[key]; ok && !bytes.Equal(old, v) {
				torn[key] = true
			}
			first[key] = v
			if utf8.Valid(k) && !bytes.Equal(fr.Get(key), fr.Raw.Get(key)) {
				t.Fatalf("%q: Get(%q) has two answers", line, key)
			}
		}
		if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" {
			t.Fatalf("%q: keys %s", line, d)
		}
		for key := range want {
			if strings.ContainsRune(key, '\ufffd') {
				continue // a key that is no UTF-8 is found by its bytes only
			}
			if torn[key] {
				if v := fr.Get(key); v != nil {
					t.Fatalf("%q: %q has two values and is %q", line, key, v)
				}
				continue
			}
			if v := fr.Get(key); !bytes.Equal(v, bytes.TrimSpace(want[key])) {
				t.Fatalf("%q: %q is %q, want %q", line, key, v, want[key])
			}
			var s string
			if fr.Get(key).IsString() && json.Unmarshal(want[key], &s) == nil && s != fr.Get(key).Text() {
				t.Fatalf("%q: text %q, want %q", line, fr.Get(key).Text(), s)
			}
		}
		var items, again []string
		for item, typ := range fr.Content {
			items = append(items, string(item), typ)
		}
		for item := range fr.Get("message").Get("content").Items {
			again = append(again, string(item), item.Get("type").Text())
		}
		if d := cmp.Diff(again, items); d != "" {
			t.Fatalf("%q: content %s", line, d)
		}
		fr.AmbiguousControl()
		fr.ControlID()
		fr.OwnResult()
	})
}

// Every byte is seen wherever it stands in a string.
func TestEveryByteEverywhere(t *testing.T) {
	for at := range 40 {
		for c := range 256 {
			text := strings.Repeat("\x80a", 25)
			line := []byte(`{"message":{"content":[{"text":"` + text[:at] + string([]byte{byte(c)}) + text[at:] + `"}]}}`)
			if _, got := dialect.Parse(line); got != json.Valid(line) {
				t.Fatalf("byte %#x at %d: frame %t", c, at, got)
			}
		}
	}
}

// What reads a valid frame again finds the end of each string.
func TestQuotesAndBackslashes(t *testing.T) {
	for n := range 8 {
		for _, end := range []string{"", "x"} {
			text := "a" + strings.Repeat(`\"`, n%3) + strings.Repeat(`\\`, n) + end
			f, ok := dialect.Parse([]byte(`{"a":{"k` + text + `":"` + text + `","b":["` + text + `",{"c":"` + text + `"}]},"z":1}`))
			if !ok {
				t.Fatalf("%q is no frame", text)
			}
			var got []string
			for item := range f.Get("a").Get("b").Items {
				got = append(got, string(item))
			}
			if d := cmp.Diff([]string{`"` + text + `"`, `{"c":"` + text + `"}`}, got); d != "" {
				t.Errorf("%q: %s", text, d)
			}
		}
	}
}

func TestSays(t *testing.T) {
	for in, want := range map[string]bool{
		`"Hello you"`: true, `" \n Hello you\t"`: true, `"\u0048ello you"`: true, `"Hello you!"`: false, `"Hello"`: false, `1`: false, ``: false,
	} {
		if got := dialect.Value(in).Says("Hello you"); got != want {
			t.Errorf("%s: %t", in, got)
		}
	}
}
