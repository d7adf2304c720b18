package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/event"
)

func newRedactor(t testing.TB, c redact.Config) *redact.Redactor {
	t.Helper()
	if c.Key == nil {
		c.Key = []byte("key")
	}
	r, err := redact.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// frame masks and checks what holds for every frame.
func frame(t testing.TB, r *redact.Redactor, s event.Stream, in string) string {
	t.Helper()
	before := strings.Clone(in)
	res := r.Frame(s, []byte(in), false)
	checkResult(t, []byte(before), res)
	return string(res.Data)
}

func checkResult(t testing.TB, in []byte, res redact.Result) {
	t.Helper()
	if !redact.Matches(in, res.Data, res.Spans) {
		t.Fatalf("bytes outside the spans differ\n raw %q\n got %q\n %v", in, res.Data, res.Spans)
	}
	if json.Valid(in) && !json.Valid(res.Data) {
		t.Fatalf("JSON is broken\n raw %s\n got %s", in, res.Data)
	}
	if res.Changed() != (res.RawLen != 0) || res.Changed() != (res.RawHash != "") || res.Changed() && res.RawLen != len(in) {
		t.Fatalf("raw length %d and hash %q of %d bytes, changed %v", res.RawLen, res.RawHash, len(in), res.Changed())
	}
	if !res.Changed() && !bytes.Equal(in, res.Data) {
		t.Fatalf("changed without a span: %q, %q", in, res.Data)
	}
}

const jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln"

func TestRules(t *testing.T) {
	tests := []struct {
		name     string
		stream   event.Stream
		in, want string
	}{
		{
			"account", event.Out,
			`{"type":"control_response","response":{"subtype":"success","request_id":"init","response":{"account":{"token":"abc","email":"u@example.test"},"commands":[]}}}`,
			`{"type":"control_response","response":{"subtype":"success","request_id":"init","response":{"account":"[redacted:account]","commands":[]}}}`,
		},
		{
			"account, type last, key escaped, twice", event.Out,
			`{"response":{"response":{"acc\u006funt":{"token":"abc"},"account": [1] }}, "type":"control_response"}`,
			`{"response":{"response":{"acc\u006funt":"[redacted:account]","account": "[redacted:account]" }}, "type":"control_response"}`,
		},
		{
			"account, other case is another key", event.Out,
			`{"type":"control_response","response":{"response":{"Account":{"a":1}}}}`,
			`{"type":"control_response","response":{"response":{"Account":{"a":1}}}}`,
		},
		{
			"account elsewhere", event.Out,
			`{"type":"assistant","message":{"account":{"a":1},"t":"control_response"}}`,
			`{"type":"assistant","message":{"account":{"a":1},"t":"control_response"}}`,
		},
		{
			"account, cut", event.Out,
			`{"type":"control_response","response":{"response":{"account":{"token":"ab`,
			`{"type":"control_response","response":{"response":{"account":"[redacted:account]"`,
		},
		{
			"mcp_status", event.Out,
			`{"type":"control_response","response":{"response":{"mcpServers":[{"name":"m","config":{"type":"stdio","command":"/bin/false","args":["--token=s3cr3t-arg"]}},{"config":{"type":"http","url":"http://u:p@127.0.0.1:9/x?k=s3cr3t-url","headers":{"Authorization":"Bearer s3cr3t-hdr"}},"scope":"dynamic"}]}}}`,
			`{"type":"control_response","response":{"response":{"mcpServers":[{"name":"m","config":{"type":"stdio","command":"/bin/false","args":"[redacted:mcp]"}},{"config":{"type":"http","url":"http://[redacted:mcp]@127.0.0.1:9/x?[redacted:mcp]","headers":"[redacted:mcp]"},"scope":"dynamic"}]}}}`,
		},
		{
			"get_settings", event.Out,
			`{"type":"control_response","response":{"response":{"effective":{"env":{"S":"s3cr3t-setting"}},"sources":[{"settings":{"env":{"S":"s3cr3t-setting"}}}],"applied":{"model":"m"}}}}`,
			`{"type":"control_response","response":{"response":{"effective":{"env":"[redacted:settings]"},"sources":[{"settings":{"env":"[redacted:settings]"}}],"applied":{"model":"m"}}}}`,
		},
		{
			"codex, account", event.Out,
			`{"id":1,"result":{"account":{"type":"chatgpt","email":"u@example.test"},"requiresOpenaiAuth":true}}`,
			`{"id":1,"result":{"account":"[redacted:account]","requiresOpenaiAuth":true}}`,
		},
		{
			"codex, config", event.Out,
			`{"id":"x","result":{"config":{"model":"m","mcp_servers":{"m":{"command":"/bin/false","args":["--token=s3cr3t-arg"],"env":{"T":"s3cr3t-env"}}},"model_providers":{"p":{"http_headers":{"X":"s3cr3t-hdr"}}}}}}`,
			`{"id":"x","result":{"config":{"model":"m","mcp_servers":{"m":{"command":"/bin/false","args":"[redacted:mcp]","env":"[redacted:mcp]"}},"model_providers":{"p":{"http_headers":"[redacted:settings]"}}}}}`,
		},
		{
			"codex, a thread's settings", event.In,
			`{"id":2,"method":"thread/start","params":{"cwd":"/w","config":{"mcp_servers":{"m":{"env":{"T":"s3cr3t-env"}}}}}}`,
			`{"id":2,"method":"thread/start","params":{"cwd":"/w","config":{"mcp_servers":{"m":{"env":"[redacted:mcp]"}}}}}`,
		},
		{
			"codex, a note and a request keep their input", event.Out,
			`{"method":"item/started","params":{"item":{"type":"mcpToolCall","arguments":{"env":{"A":"b"}}}},"emittedAtMs":1}`,
			`{"method":"item/started","params":{"item":{"type":"mcpToolCall","arguments":{"env":{"A":"b"}}}},"emittedAtMs":1}`,
		},
		{
			"nothing to hide", event.Out,
			`{"type":"control_response","response":{"response":{"effective":{},"env":{},"args":[],"account":null}}}`,
			`{"type":"control_response","response":{"response":{"effective":{},"env":{},"args":[],"account":null}}}`,
		},
		{
			"host's settings", event.In,
			`{"type":"control_request","request":{"subtype":"initialize","systemPrompt":"be kind","agents":{}}}`,
			`{"type":"control_request","request":{"subtype":"initialize","systemPrompt":"[redacted:prompt]","agents":{}}}`,
		},
		{
			"an ask keeps its input", event.Out,
			`{"type":"control_request","request":{"subtype":"can_use_tool","input":{"args":["x"],"env":{"A":"b"}}}}`,
			`{"type":"control_request","request":{"subtype":"can_use_tool","input":{"args":["x"],"env":{"A":"b"}}}}`,
		},
		{"bearer", event.Err, `> Authorization: Bearer abc123DEF/x+y=`, `> Authorization: Bearer [redacted:bearer]`},
		{"bearer in JSON", event.Out, `{"h":"bearer abc123DEF\/x"}`, `{"h":"bearer [redacted:bearer]"}`},
		{"basic in JSON in JSON", event.Out, `{"c":"{\"Authorization\":\"Basic dTpwYXNz\"}"}`, `{"c":"{\"Authorization\":\"Basic [redacted:bearer]\"}"}`},
		{"api key header", event.Err, `x-api-key: 0123456789`, `x-api-key: [redacted:bearer]`},
		{"prose", event.Out, `{"t":"a bearer of bad news; authorization is required. Bearer token"}`, `{"t":"a bearer of bad news; authorization is required. Bearer token"}`},
		{"anthropic", event.Out, `{"t":"k=sk-ant-dummy-not-a-key\n"}`, `{"t":"k=[redacted:api_key]\n"}`},
		{"after an escape", event.Out, `{"t":"k\nsk-ant-dummy-not-a-key"}`, `{"t":"k\n[redacted:api_key]"}`},
		{"openai", event.Out, `sk-proj-abcdEFGH1234_5678`, `[redacted:api_key]`},
		{"words", event.Out, `task-runner-with-a-long-name-12345 sk-short sk-learn-is-a-library`, `task-runner-with-a-long-name-12345 sk-short sk-learn-is-a-library`},
		{"github", event.Out, `ghp_` + strings.Repeat("a1", 18) + ` github_pat_` + strings.Repeat("B_2", 10), `[redacted:api_key] [redacted:api_key]`},
		{"gitlab, slack, aws", event.Out, `glpat-abcdefghij0123456789,xoxb-123456789012-abc,AKIAIOSFODNN7EXAMPLE`, `[redacted:api_key],[redacted:api_key],[redacted:api_key]`},
		{"jwt", event.Out, `TOKEN=` + jwt + `"`, `TOKEN=[redacted:jwt]"`},
		{"no jwt", event.Out, `eyJhbGciOiJub25lIn0 eyJ.a.b keyJumper.a.b`, `eyJhbGciOiJub25lIn0 eyJ.a.b keyJumper.a.b`},
		{"slack hook", event.Out, `https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXX ok`, `https://hooks.slack.com/[redacted:slack_hook] ok`},
		{"pem", event.Out, `{"f":"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb"}`, `{"f":"a\n[redacted:private_key]\nb"}`},
		{"pem, cut", event.Out, `{"f":"-----BEGIN PRIVATE KEY-----\nMIIE"}`, `{"f":"[redacted:private_key]"}`},
		{"pattern", event.Out, `{"t":"ticket ACME-1234"}`, `{"t":"ticket [redacted:pattern]"}`},
		{"env", event.Err, `hunter2hunter2 pw`, `[redacted:env] pw`},
		{
			"parse error", event.Err, `Error parsing streaming input line: {"type":"user","message":{"role":"user","con: SyntaxError: JSON Parse error: Unterminated string`,
			`Error parsing streaming input line: [redacted:echo]`,
		},
		{
			"parse error in JSON", event.Out, `{"type":"error","error":"Error parsing streaming input line: this \"is\": SyntaxError"}`,
			`{"type":"error","error":"Error parsing streaming input line: [redacted:echo]"}`,
		},
		{
			"init", event.Out, `{"type":"system","subtype":"init","apiKeySource":"www.codebuddy.ai","mcp_servers":[{"name":"a","args":["b"]}]}`,
			`{"type":"system","subtype":"init","apiKeySource":"www.codebuddy.ai","mcp_servers":[{"name":"a","args":["b"]}]}`,
		},
		{"empty", event.Out, ``, ``},
		{"not UTF-8", event.Out, "\xff\x00sk-ant-dummy-not-a-key\xfe", "\xff\x00[redacted:api_key]\xfe"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRedactor(t, redact.Config{Patterns: []string{`ACME-\d+`}, Env: []string{"DB_PASSWORD=hunter2hunter2", "HOME=/home/user/x"}})
			if diff := cmp.Diff(tt.want, frame(t, r, tt.stream, tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTokenRemembered is the case of an account token that comes back in a tool
// result and on stderr.
func TestTokenRemembered(t *testing.T) {
	r := newRedactor(t, redact.Config{})
	for _, token := range []string{"plain-token-value", `we"ird\tok/en<é😀>`} {
		esc, _ := json.Marshal(token)
		frame(t, r, event.Out, fmt.Sprintf(`{"type":"control_response","response":{"response":{"account":{"token":%s,"nick":"nickname-x"},"models":[{"id":%s}]}}}`, esc, esc))
		inner, _ := json.Marshal(map[string]string{"a": token})
		outer, _ := json.Marshal(map[string]string{"b": string(inner)})
		for _, in := range []string{
			"TOKEN=" + token, string(inner), string(outer), `{"content":"TOKEN=` + string(esc[1:]) + `}`,
			`{"a":"x\n` + strings.Trim(string(esc), `"`) + `nickname-x"}`,
		} {
			got := frame(t, r, event.Err, in)
			if strings.Contains(got, token) || strings.Contains(got, strings.Trim(string(esc), `"`)) || !strings.Contains(got, "[redacted:token]") {
				t.Errorf("got %s", got)
			}
			if strings.Contains(in, "nickname-x") != strings.Contains(got, "nickname-x") {
				t.Errorf("masked too much: %s", got)
			}
		}
	}
	if r.Counts()["account"] != 2 || r.Counts()["token"] < 10 {
		t.Errorf("counts: %v", r.Counts())
	}
}

func TestHeaderTaughtInSettings(t *testing.T) {
	r := newRedactor(t, redact.Config{})
	frame(t, r, event.Out, `{"type":"control_response","response":{"response":{"mcpServers":[{"config":{"headers":{"Authorization":"Bearer s3cr3t-hdr"},"env":{"API_TOKEN":"another-one","PATH":"/usr/bin:/bin"}}}]}}}`)
	got := frame(t, r, event.Out, `{"t":"s3cr3t-hdr another-one /usr/bin:/bin"}`)
	if want := `{"t":"[redacted:token] [redacted:token] /usr/bin:/bin"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEscapeBeforeValue(t *testing.T) {
	r := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=n0123456789", "B_TOKEN=00e9abcdef", `C_TOKEN=abcdefgh\`}})
	for _, in := range []string{`{"a":"x\n0123456789"}`, `{"a":"x\\n0123456789"}`, `{"a":"\u00e9abcdef"}`, `{"a":"abcdefgh\""}`, `{"a":"abcdefgh\\"}`, `{"a":"abcdefgh\u00e9"}`, `{"a":"\\\u00e9abcdef"}`} {
		if got := frame(t, r, event.Out, in); !strings.Contains(got, "[redacted:env]") {
			t.Errorf("%s: got %s", in, got)
		}
	}
}

// TestValueAcrossStrings: a value with quotes in it, found across the borders
// of JSON strings, costs the whole frame.
func TestValueAcrossStrings(t *testing.T) {
	r := newRedactor(t, redact.Config{Env: []string{`A_TOKEN=one":"two`}})
	if got, want := frame(t, r, event.Out, `{"one":"two"}`), `"[redacted:frame]"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPieces(t *testing.T) {
	secret := strings.Repeat("s3cret", 2000) // longer than what is held back anyway, cut at 8 KiB
	line := strings.Repeat("x", 10000) + "short-secret" + strings.Repeat("y", 9000) + secret[:8192] + strings.Repeat("z", 7000) + " " + jwt
	want := strings.Repeat("x", 10000) + "[redacted:env]" + strings.Repeat("y", 9000) + "[redacted:env]" + strings.Repeat("z", 7000) + " [redacted:jwt]"
	for _, size := range []int{41, 200, 5000, 9000, 20000} {
		r := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=short-secret", "B_TOKEN=" + secret}})
		var got []byte
		for rest := line; rest != ""; {
			n := min(size, len(rest))
			var res redact.Result
			if n == len(rest) && size%200 == 0 {
				res = r.Frame(event.Out, []byte(rest[:n]), true)
				got = append(got, res.Data...)
				res, _ = r.Flush(event.Out)
			} else {
				res = r.Frame(event.Out, []byte(rest[:n]), n < len(rest))
			}
			rest = rest[n:]
			got = append(got, res.Data...)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Fatalf("pieces of %d: %s", size, diff)
		}
		if got := frame(t, r, event.Out, "after"); got != "after" {
			t.Errorf("got %q", got)
		}
	}
}

func TestControlFrameInPieces(t *testing.T) {
	r := newRedactor(t, redact.Config{})
	a := r.Frame(event.Out, []byte(`{"type":"control_response","response":{"response":{"acc`), true)
	b := r.Frame(event.Out, []byte(`ount":{"token":"a"}}}}`), false)
	if got, want := string(a.Data)+string(b.Data), `"[redacted:frame]""[redacted:frame]"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStdinEcho(t *testing.T) {
	line := `{"type":"user","message":{"role":"user","content":[{"type":"text","text":"tell me all about\nthe \"hidden\" treasure map"}]},"session_id":"0197c0de-0000-7000-8000-000000000001"}`
	for _, capture := range []bool{false, true} {
		r := newRedactor(t, redact.Config{CaptureStdin: capture})
		r.Stdin([]byte(line))
		for _, tt := range []struct{ in, want string }{
			{"bad line: " + line + " (ignored)", "bad line: [redacted:echo] (ignored)"},
			{line[:50], "[redacted:echo]"},
			{`prompt was: the "hidden" treasure map!`, "prompt was: [redacted:echo]!"},
			{"tell me all about", "[redacted:echo]"},
			{"session 0197c0de-0000-7000-8000-000000000001", "session 0197c0de-0000-7000-8000-000000000001"},
		} {
			want := tt.want
			if capture {
				want = tt.in
			}
			if got := frame(t, r, event.Err, tt.in); got != want {
				t.Errorf("capture %v: got %q, want %q", capture, got, want)
			}
		}
	}
}

func TestManySpans(t *testing.T) {
	r := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=short-secret"}})
	in := `{"a":["` + strings.Repeat(`short-secret","`, 200) + `"]}`
	res := r.Frame(event.Out, []byte(in), false)
	checkResult(t, []byte(in), res)
	if len(res.Spans) > 64 || bytes.Contains(res.Data, []byte("short-secret")) {
		t.Errorf("%d spans, %s", len(res.Spans), res.Data)
	}
}

func TestKnownBound(t *testing.T) {
	r := newRedactor(t, redact.Config{})
	for i := range 600 {
		r.Remember(fmt.Sprintf("remembered-%04d", i), "token")
	}
	if got := frame(t, r, event.Out, "remembered-0000 remembered-0511 remembered-0599"); got != "[redacted:token] [redacted:token] remembered-0599" {
		t.Errorf("got %s", got)
	}
	if got := r.Counts()["forgotten"]; got != 88 {
		t.Errorf("forgotten: got %d, want 88", got)
	}
}

func TestMaskArgv(t *testing.T) {
	r := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=short-secret"}})
	h := func(s string) string { return fmt.Sprintf("%d:%s", len(s), r.Hash([]byte(s))) }
	tests := []struct {
		in, want []string
	}{
		{[]string{"cbc", "-p", "fix the bug", "--output-format", "stream-json"}, []string{"cbc", "-p", h("fix the bug"), "--output-format", "stream-json"}},
		{[]string{"claude", "--settings", `{"env":{}}`, "--mcp-config", "a.json", "b.json", "--verbose"}, []string{"claude", "--settings", h(`{"env":{}}`), "--mcp-config", h("a.json"), h("b.json"), "--verbose"}},
		{[]string{"claude", "--append-system-prompt=be kind", "--model=opus"}, []string{"claude", "--append-system-prompt=" + h("be kind"), "--model=opus"}},
		{[]string{"claude", "--system-prompt", "-starts with a hyphen", "--max-turns", "3"}, []string{"claude", "--system-prompt", h("-starts with a hyphen"), "--max-turns", "3"}},
		{[]string{"claude", "--api-key", "x", "--max-thinking-tokens", "100"}, []string{"claude", "--api-key", h("x"), "--max-thinking-tokens", "100"}},
		{[]string{"claude", "--unknown", "value", "--unknown=value"}, []string{"claude", "--unknown", h("value"), "--unknown=" + h("value")}},
		{[]string{"claude", "--allowedTools", "Bash(git log:*)", "Read,Write", "do it all now.", "--", "-x"}, []string{"claude", "--allowedTools", "Bash(git log:*)", "Read,Write", h("do it all now."), "--", h("-x")}},
		{[]string{"claude", "--model", "short-secret", "--resume", "two words"}, []string{"claude", "--model", h("short-secret"), "--resume", h("two words")}},
		{[]string{"codex", "app-server", "exec"}, []string{"codex", "app-server", h("exec")}},
		{[]string{"codex", "-c", "key=value", "app-server", "exec"}, []string{"codex", "-c", h("key=value"), "app-server", h("exec")}},
		{[]string{"claude", "- a list"}, []string{"claude", h("- a list")}},
		{[]string{"claude"}, []string{"claude"}},
		{nil, nil},
	}
	for _, tt := range tests {
		got, n := r.MaskArgv(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(diff)
		}
		masked := 0
		for i := range tt.in {
			if tt.in[i] != got[i] {
				masked++
			}
		}
		if n != masked {
			t.Errorf("%v: says %d masked, %d are", tt.in, n, masked)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []redact.Config{{Patterns: []string{"("}}, {EnvNames: []string{"["}}} {
		if _, err := redact.New(c); err == nil {
			t.Errorf("%v is accepted", c)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		raw, pub string
		spans    []event.Span
		want     bool
	}{
		{"abc", "abc", nil, true},
		{"abc", "abd", nil, false},
		{"abc", "axc", []event.Span{{Off: 1, Len: 1, RawLen: 1}}, true},
		{"abc", "axd", []event.Span{{Off: 1, Len: 1, RawLen: 1}}, false},
		{"abc", "axc", []event.Span{{Off: 1, Len: 9, RawLen: 1}}, false},
		{"abc", "axc", []event.Span{{Off: 2, Len: 1, RawLen: 1}, {Off: 0, Len: 1, RawLen: 1}}, false},
		{"abc", "x", []event.Span{{Off: 0, Len: 1, RawLen: 9}}, false},
		{"abc", "x", []event.Span{{Off: -1, Len: 1, RawLen: 3}}, false},
	} {
		if got := redact.Matches([]byte(tt.raw), []byte(tt.pub), tt.spans); got != tt.want {
			t.Errorf("%q %q %v: got %v", tt.raw, tt.pub, tt.spans, got)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(`{"type":"control_response","response":{"response":{"account":{"token":"t0ken-value-1"},"mcpServers":[{"config":{"url":"http://a@b/?c"}}]}}}`, "value\n\"quoted\"", "é😀/<secret>", uint8(0), uint16(7))
	f.Add(`{"a":"x\n0123456789 Bearer 0123456789","b":"`+jwt+`"}`, "n0123456789", `\u00e9abcd`, uint8(1), uint16(1))
	f.Add("-----BEGIN PRIVATE KEY-----\nabc", "12345678", `","a":"b`, uint8(2), uint16(30))
	f.Fuzz(func(t *testing.T, in, a, b string, stream uint8, size uint16) {
		streams := []event.Stream{event.Out, event.Err, event.In}
		s := streams[int(stream)%len(streams)]
		r := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=" + a, "B_TOKEN=" + b}})
		got := frame(t, r, s, in)
		for _, v := range []string{a, b} {
			if len(v) >= 8 && len(v) <= 8192 && strings.TrimLeft(v, v[:1]) != "" && strings.Contains(unmasked(got), v) {
				t.Fatalf("%q is still in %q", v, got)
			}
		}
		// The same bytes in pieces: nothing lost, nothing left.
		if size == 0 {
			return
		}
		pieces := newRedactor(t, redact.Config{Env: []string{"A_TOKEN=" + a, "B_TOKEN=" + b}})
		var out []byte
		for rest := in; ; {
			n := min(int(size), len(rest))
			res := pieces.Frame(s, []byte(rest[:n]), n < len(rest))
			if !res.Changed() && res.RawLen != 0 {
				t.Fatal("raw length without a span")
			}
			out = append(out, res.Data...)
			if rest = rest[n:]; rest == "" {
				break
			}
		}
		for _, v := range []string{a, b} {
			if len(v) >= 8 && len(v) <= 8192 && strings.TrimLeft(v, v[:1]) != "" && strings.Contains(unmasked(string(out)), v) {
				t.Fatalf("%q is still in pieces %q", v, out)
			}
		}
	})
}

// unmasked is s with the masks taken out as a value could not contain them.
func unmasked(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "[redacted:", "\x00\x01"), "]", "\x01\x00")
}

func BenchmarkFrame(b *testing.B) {
	text := `{"type":"assistant","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-opus-5","content":[{"type":"text","text":"The workflow has three phases; I will start the first agent now and report what it finds before going on. "}],"stop_reason":null,"usage":{"input_tokens":20537,"output_tokens":1,"cache_read_input_tokens":0}},"parent_tool_use_id":null,"session_id":"8b078e6a-8c21-4cc7-9dcc-c7a8151b9a78","uuid":"b9751014-a81c-46fa-a20d-361f16cbd293","timestamp":"2026-11-30T04:36:38.036Z"}`
	var env []string
	for i := range 20 {
		env = append(env, fmt.Sprintf("V%d_TOKEN=value-%d-of-an-environment", i, i*7919))
	}
	for _, bb := range []struct {
		name string
		env  []string
		size int
	}{{"512", nil, 512}, {"512/20values", env, 512}, {"64KiB", env, 64 << 10}} {
		b.Run(bb.name, func(b *testing.B) {
			r := newRedactor(b, redact.Config{Env: bb.env})
			in := []byte(strings.Repeat(text, bb.size/len(text)+1)[:bb.size])
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if r.Frame(event.Out, in, false).Changed() {
					b.Fatal("masked")
				}
			}
		})
	}
}
