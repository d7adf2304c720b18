package dialect_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
)

// The lines of commands, as the children were seen to take them.
func TestCommandLines(t *testing.T) {
	line := func(b []byte, err error) string {
		t.Helper()
		if err != nil {
			return "error: " + err.Error()
		}
		if i := slices.IndexFunc(b[:len(b)-1], func(c byte) bool { return c < ' ' || c > '~' }); i >= 0 || b[len(b)-1] != '\n' {
			t.Errorf("%q is not printable ASCII and one LF", b)
		}
		if !json.Valid(b) {
			t.Errorf("%q is no JSON", b)
		}
		return string(b[:len(b)-1])
	}
	const req = `{"type":"control_request","request_id":"r","request":{`
	none := "error: " + dialect.ErrUnsupported.Error()
	blocks := []byte("[ {\"type\": \"text\",\n\"text\": \"a\u2028é\\n\x7f\"}, {\"type\":\"image\",\"source\":{\"type\":\"base64\",\"n\":1.50}} ]")
	for _, tt := range []struct{ name, got, want string }{
		{
			"message", line(dialect.Message(dialect.Claude, "u-1", "s", []byte(`"say \u00e9 \"x\""`))),
			`{"type":"user","message":{"role":"user","content":"say \u00e9 \"x\""},"parent_tool_use_id":null,"session_id":"s","uuid":"u-1"}`,
		},
		{
			"blocks", line(dialect.Message(dialect.CBC, "u-1", "", blocks)),
			`{"type":"user","message":{"role":"user","content":[ {"type": "text", "text": "a\u2028\u00e9\n\u007f"}, ` +
				`{"type":"image","source":{"type":"base64","n":1.50}} ]},"parent_tool_use_id":null,"session_id":"","uuid":"u-1"}`,
		},
		{"steer", line(dialect.Steer(dialect.CBC, "r", "s", []byte(`"😀"`))), req + `"subtype":"steer","session_id":"s","content_blocks":[{"type":"text","text":"\ud83d\ude00"}]}}`},
		{"steer blocks", line(dialect.Steer(dialect.CBC, "r", "", []byte(`[{"type":"text","text":"x"}]`))), req + `"subtype":"steer","content_blocks":[{"type":"text","text":"x"}]}}`},
		{"steer claude", line(dialect.Steer(dialect.Claude, "r", "s", []byte(`"x"`))), none},
		{"mode cbc", line(dialect.SetPermissionMode(dialect.CBC, "r", "s", "plan")), req + `"subtype":"set_permission_mode","session_id":"s","mode":"plan"}}`},
		{"mode claude", line(dialect.SetPermissionMode(dialect.Claude, "r", "s", "plan")), req + `"subtype":"set_permission_mode","mode":"plan"}}`},
		{"model", line(dialect.SetModel(dialect.Claude, "r", "", "claude-sonnet-5")), req + `"subtype":"set_model","model":"claude-sonnet-5"}}`},
		{"rewind_files", line(dialect.RewindFiles(dialect.Claude, "r", "m", true)), req + `"subtype":"rewind_files","user_message_id":"m","dry_run":true}}`},
		{"rewind", line(dialect.Rewind(dialect.CBC, "r", "m", "Code", false)), req + `"subtype":"rewind","user_message_id":"m","dry_run":false,"scope":"Code"}}`},
		{"rewind both", line(dialect.Rewind(dialect.CBC, "r", "m", "", true)), req + `"subtype":"rewind","user_message_id":"m","dry_run":true}}`},
		{"rewind claude", line(dialect.Rewind(dialect.Claude, "r", "m", "", true)), none},
		{"end_session", line(dialect.EndSession(dialect.Claude, "r")), req + `"subtype":"end_session"}}`},
		{"end_session cbc", line(dialect.EndSession(dialect.CBC, "r")), none},
		{"message unknown", line(dialect.Message(dialect.Unknown, "u", "", []byte(`"x"`))), none},
	} {
		if tt.got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, tt.got, tt.want)
		}
	}
}

// Content that is written in ASCII means what it meant.
func TestContentKept(t *testing.T) {
	for _, in := range []string{
		`"a\"b\\"`, `[{"a" : [1, 2.50, 1e400], "\u00e9" : null}]`, `"\\u0041"`, "\"\u2028\U0001F600\"", `"x\\"`, "[\n12345678901234567890\t]", "\"\xff\"",
	} {
		line, err := dialect.Message(dialect.Claude, "u", "", []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		f, _ := dialect.Parse(line[:len(line)-1])
		var a, b any
		dec := func(s string, v *any) {
			d := json.NewDecoder(strings.NewReader(s))
			d.UseNumber()
			if err := d.Decode(v); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		dec(in, &a)
		dec(string(f.Get("message").Get("content")), &b)
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("%q became %q:\n%s", in, line, d)
		}
	}
}

// Whatever passes the check becomes one line of ASCII that is a user message, and
// nothing but one.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{`"a"`, `[{"type":"text","text":"\u2028"}]`, `"a","x":1`, `"\\"`, "\"\xff\"", `[{"type":"image","source":{"a":"}}\n"}}]`} {
		f.Add(s, "u")
	}
	f.Fuzz(func(t *testing.T, content, uuid string) {
		if dialect.CheckContent([]byte(content)) != nil {
			return
		}
		for _, mk := range []func() ([]byte, error){
			func() ([]byte, error) { return dialect.Message(dialect.Claude, uuid, "", []byte(content)) },
			func() ([]byte, error) { return dialect.Steer(dialect.CBC, uuid, "", []byte(content)) },
		} {
			line, err := mk()
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(line[:len(line)-1], func(c byte) bool { return c < ' ' || c > '~' }); i >= 0 || line[len(line)-1] != '\n' {
				t.Fatalf("%q is not one line of ASCII", line)
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if typ := string(m["type"]); typ != `"user"` && typ != `"control_request"` || len(m) > 5 {
				t.Fatalf("%q is another message", line)
			}
		}
	})
}

func TestCheckContent(t *testing.T) {
	for in, want := range map[string]string{
		`"hello"`: "", `[{"type":"text","text":"a"}]`: "", ` [{"type":"image","source":{}}] `: "",
		``: "content is no JSON", `"a`: "content is no JSON", `"a","x":1`: "content is no JSON", `"a"} {`: "content is no JSON",
		`""`: "content is empty", `[]`: "content is empty",
		`5`: "content must be a text or a list of content blocks", `null`: "content must be a text or a list of content blocks",
		`[{"type":"tool_result","tool_use_id":"x"}]`:     "content block 0: type must be one of [text image document]",
		`[{"type":"text","text":"a"},"x"]`:               "content block 1: type must be one of [text image document]",
		`[{"type":"text"}]`:                              "content block 0 has no text",
		`[{"type":"image"}]`:                             "content block 0 has no source",
		`[{"type":"text","text":"a","text":"b"}]`:        "content: a key stands twice",
		`[{"type":"image","source":{"a":1,"\u0061":2}}]`: "content: a key stands twice",
	} {
		got := ""
		if err := dialect.CheckContent([]byte(in)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	for _, tt := range []struct {
		d       dialect.Name
		version string
		want    string
	}{
		{dialect.Claude, "2.1.220", "interrupt stop_task message set_permission_mode set_model rewind_files end_session"},
		{dialect.CBC, "", "interrupt message steer set_permission_mode set_model rewind_files rewind"},
		{dialect.CBC, "2.163.0", "interrupt message steer set_permission_mode set_model rewind_files rewind"},
		{dialect.CBC, "2.117.3", "interrupt message set_permission_mode set_model"},
		{dialect.CBC, "1.200.0", "interrupt message set_permission_mode set_model"},
		{dialect.CBC, "unreadable", "interrupt message steer set_permission_mode set_model rewind_files rewind"},
		{dialect.Unknown, "", "interrupt"},
	} {
		if got := strings.Join(dialect.Capabilities(tt.d, tt.version), " "); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.d, tt.version, got, tt.want)
		}
	}
	for text, want := range map[string]string{
		"Unknown control request subtype: rewind": "rewind", "Unsupported control request subtype: steer": "steer", "Session not found: current": "",
	} {
		if got, ok := dialect.UnknownRequest(text); got != want || ok != (want != "") {
			t.Errorf("UnknownRequest(%q) = %q, %v", text, got, ok)
		}
	}
}

// Answers as CodeBuddy 2.163 and Claude Code 2.1.220 gave them (captures rewind,
// f0-rewind-files), and a partial success as the vendor describes it.
func TestReadRewound(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want dialect.Rewound
	}{
		{
			`{"canRewind":true,"filesChanged":["/srv/ci/proj/rewind/a.txt"],"insertions":0,"deletions":1,"historyRewound":false}`,
			dialect.Rewound{Can: true, Counted: true, Files: []string{"/srv/ci/proj/rewind/a.txt"}, FilesN: 1, Deletions: 1, History: dialect.Value("false")},
		},
		{
			`{"canRewind":false,"error":"No checkpoint associated with user message x"}`,
			dialect.Rewound{Error: "No checkpoint associated with user message x"},
		},
		{`{"canRewind":true,"skippedLinks":0}`, dialect.Rewound{Can: true}},
		{
			`{"canRewind":true,"filesChanged":[],"historyRewound":true,"fileRewindError":"EBUSY"}`,
			dialect.Rewound{Can: true, Counted: true, History: dialect.Value("true"), FileError: "EBUSY"},
		},
		{`{}`, dialect.Rewound{Error: "it cannot be rewound"}},
	} {
		if d := cmp.Diff(tt.want, dialect.ReadRewound(dialect.Value(tt.in))); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, d)
		}
	}
}
