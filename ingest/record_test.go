package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// rejoin puts a stream together again from a run's events, and checks that they
// are numbered without a hole.
func rejoin(t testing.TB, evs []*event.Event, s event.Stream) []byte {
	t.Helper()
	var b []byte
	var j event.Joiner
	add := func(e *event.Event) {
		if e == nil || e.Stream != s {
			return
		}
		if b = append(b, e.Data...); !e.Cut {
			b = append(b, '\n')
		}
	}
	for i, e := range evs {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d stands at place %d", e.Seq, i+1)
		}
		whole, _, broken := j.Add(e)
		add(broken)
		add(whole)
	}
	add(j.Flush())
	return b
}

// history is the run as a reader gets it later.
func (w *world) history(tb testing.TB, run string) (evs []*event.Event) {
	tb.Helper()
	for e, err := range w.bus.History(tb.Context(), bus.Ref{Tenant: "acme", Run: run}, 0) {
		if err != nil {
			tb.Fatal(err)
		}
		evs = append(evs, e)
	}
	return evs
}

func load[T any](t testing.TB, evs []*event.Event, typ string) (all []T) {
	t.Helper()
	for _, e := range evs {
		if e.Type != typ {
			continue
		}
		var v T
		if err := json.Unmarshal(e.Data, &v); err != nil {
			t.Fatalf("event %d: %v", e.Seq, err)
		}
		all = append(all, v)
	}
	return all
}

func one[T any](t testing.TB, evs []*event.Event, typ string) T {
	t.Helper()
	all := load[T](t, evs, typ)
	if len(all) != 1 {
		t.Fatalf("%d events of type %s, want one", len(all), typ)
	}
	return all[0]
}

// The bytes of each input come back from the events as they were, and each line
// is what it is. Numbers in names are those of the failures they come from.
func TestLines(t *testing.T) {
	const frame = `{"type":"assistant","message":{"role":"assistant","content":[]},"session_id":"s","uuid":"u"}`
	tests := []struct {
		name, in string
		kinds    string // of the lines: m msg, e end, r raw, a ask
	}{
		{"001 long line", frame + "\n" + `{"type":"user","x":"` + strings.Repeat("y", 1_200_000) + `"}` + "\n" + frame + "\n" + frame + "\n", "mmmm"},
		{"007 banner", "★ hello\n• a, b, c\n\n{\n" + frame + "\n" + frame + "\n", "rrrrmm"},
		{"010 other line ends", `{"type":"user","x":"` + "\u2028\u2029\u0085" + `\u000b\u000c"}` + "\n" + frame + "\n", "mm"},
		{"012 lone surrogates", `{"type":"user","x":"\ud83d"}` + "\n" + `{"type":"user","x":"\ude00"}` + "\n" + `{"type":"user","x":"\ud83d\ude00"}` + "\n", "mmm"},
		{"014 NUL", "{\x00\"\x00t\x00\n\x00" + frame + "\n", "rr"},
		{"016 BOM and CRLF", "\ufeff" + frame + "\r\n" + frame + "\r\n", "rm"},
		{"018 numbers", `{"type":"user","n":[9223372036854775807,0.10,1E5,-0,1e400,12345678901234567890]}` + "\n", "m"},
		{"020 html", `{ "type" : "user" , "b":"<&>", "a":"\u003c" } ` + "\n", "m"},
		{"022 duplicate keys", `{"type":"user","type":"result"}` + "\n", "m"},
		{"invalid UTF-8", "{\"type\":\"user\",\"x\":\"\xff\xfe\xc3\"}\n", "m"},
		{"glued", frame + frame + "\n" + frame + "\n", "rm"},
		{"array and scalars", "[1]\n42\nnull\n\"x\"\n" + frame + "\n", "rrrrm"},
		{"cut tail", frame + "\n" + `{"type":"resu`, "mr"},
		{"no last LF", frame + "\n" + frame, "mm"},
		{"empty lines", "\n\n\n", "rrr"},
		{"nothing", "", ""},
		{"one LF and a half", "\nx", "rr"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			o.Dialect, o.Source = dialect.Claude, "import"
			out, err := ingest.Import(t.Context(), o, strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			evs := theWorld.history(t, out.Run)
			if got := rejoin(t, evs, event.Out); !bytes.Equal(got, []byte(tt.in)) {
				t.Errorf("got %d bytes, want %d: %.200q", len(got), len(tt.in), got)
			}
			kinds := ""
			for _, e := range evs {
				if e.Stream == event.Out && e.Chunk.I <= 1 {
					kinds += string(e.Kind[0])
				}
			}
			if tt.name != "022 duplicate keys" { // which of the two it is nobody knows
				equal(t, "kinds", kinds, tt.kinds)
			}
			x := one[event.Exited](t, evs, event.TypeExited)
			equal(t, "bytes", x.Bytes.Out, int64(len(tt.in)))
			equal(t, "frames", x.Frames.Out, int64(len(tt.kinds)))
			equal(t, "complete", x.Complete, true)
			equal(t, "last", out.Last, uint64(len(evs)))
			equal(t, "shipped", out.Shipped, true)
		})
	}
}

// Where a line says two things at once, its event says so (case 022).
func TestAmbiguous(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Claude
	in := `{"type":"user","type":"result"}` + "\n" +
		`{"type":"control_request","request_id":"a","request_id":"b","request":{"subtype":"can_use_tool","tool_name":"Read"}}` + "\n"
	out, err := ingest.Import(t.Context(), o, strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range theWorld.history(t, out.Run) {
		if e.Ext["ambiguous"] == "true" {
			n++
		}
	}
	equal(t, "flagged", n, 2)
}

// A frame in three writes, cut inside a key, an escape and before its LF, is one
// frame (case 004); a line of 10 MiB arrives whole; the parent's bytes are the
// child's.
func TestRunBytes(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Claude
	r := wrap(t, o, streamArgs...)
	cut := claude.frame(`"type":"result","subtype":"success","is_error":false,"total_cost_usd":3.826409,"result":"caf\u00e9"`)
	i, j := strings.Index(cut, "cost"), strings.Index(cut, "e9")
	for _, part := range []string{cut[:i], cut[i:j], cut[j:], "\n"} {
		r.raw(part)
	}
	before, behind, _ := strings.Cut(claude.text("#"), "#")
	r.raw(before)
	r.order(order{Op: "repeat", Data: []byte("0123456789abcdef"), Code: 10 << 16})
	r.say(behind)
	big := before + strings.Repeat("0123456789abcdef", 10<<16) + behind
	r.order(order{Op: "err", Data: []byte("warn\nhalf")})
	r.raw("tail without LF")
	out := r.exit(3)
	equal(t, "code", out.Result.Code, 3)
	equal(t, "shipped", out.Shipped, true)
	evs := r.w.history(t, r.run)
	want := cut + "\n" + big + "\n" + "tail without LF"
	if got := rejoin(t, evs, event.Out); string(got) != want {
		t.Errorf("events have %d bytes, want %d", len(got), len(want))
	}
	if got := r.stdout(); got != want {
		t.Errorf("the parent got %d bytes, want %d", len(got), len(want))
	}
	equal(t, "stderr", string(rejoin(t, evs, event.Err)), "warn\nhalf")
	for _, e := range evs {
		if len(e.Data) > 256<<10 {
			t.Errorf("event %d has %d bytes", e.Seq, len(e.Data))
		}
	}
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "frames", x.Frames, event.StreamCounts{Out: 3, Err: 2})
	equal(t, "oversize", x.Oversize, int64(1))
	equal(t, "exit code", *x.Code, 3)
	equal(t, "first", evs[0].Type, event.TypeStarted)
	equal(t, "last", evs[len(evs)-1].Type, event.TypeExited)
	st := one[event.Started](t, evs, event.TypeStarted)
	equal(t, "dialect", st.Dialect, "claude")
	if cost := out.State.View().Usage.CostUSD; cost != 3.826409 {
		t.Errorf("cost %v", cost)
	}
}

// Secrets are masked on the events, named there, and untouched on stdout.
func TestRedaction(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.CBC
	const secret = "mine-0123456789abcdef"
	o.Env = []string{"CODEBUDDY_API_KEY=" + secret}
	r := wrap(t, o, append(streamArgs, "--append-system-prompt", "be secret about "+secret)...)
	r.write(initialize)
	r.read()
	answer := `{"type":"control_response","response":{"subtype":"success","request_id":"req_1","response":{"account":{"token":"tok-0123456789","user":"me"}}}}`
	r.say(answer, cbc.init(), cbc.text("the token is tok-0123456789 and the key "+secret))
	r.exit(0)
	evs := r.w.history(t, r.run)
	spans := map[string]int{}
	for _, e := range evs {
		if bytes.Contains(e.Data, []byte("tok-0123456789")) || bytes.Contains(e.Data, []byte(secret)) {
			t.Errorf("event %d (%s) shows a secret", e.Seq, e.Type)
		}
		for _, s := range e.Redacted {
			spans[s.Rule]++
		}
		if (len(e.Redacted) > 0) != (e.RawHash != "") {
			t.Errorf("event %d: %d spans, hash %q", e.Seq, len(e.Redacted), e.RawHash)
		}
	}
	if spans["account"] == 0 || spans["token"] == 0 || spans["env"] == 0 {
		t.Errorf("spans by rule: %v", spans)
	}
	if got := r.stdout(); !strings.HasPrefix(got, answer) || !strings.Contains(got, secret) {
		t.Errorf("stdout was changed: %q", got)
	}
}

// Control messages on stdin are recorded, prompts only when that is asked for.
func TestStdin(t *testing.T) {
	const allow = `{"type":"control_response","response":{"subtype":"success","request_id":"ask-1","response":{"behavior":"allow"}}}` + "\n"
	for _, capture := range []string{"control", "all"} {
		t.Run(capture, func(t *testing.T) {
			o := options(t)
			o.Dialect, o.CaptureStdin = dialect.Claude, capture
			r := wrap(t, o, streamArgs...)
			in := initialize + user + allow + "noise\n"
			r.write(in)
			for range 4 {
				r.read()
			}
			r.say(claude.init())
			r.stdin.Close()
			r.exit(0)
			evs := r.w.history(t, r.run)
			inputs := load[event.Input](t, evs, event.TypeInput)
			if capture == "all" {
				equal(t, "stdin", string(rejoin(t, evs, event.In)), in)
				equal(t, "inputs", len(inputs), 0)
				return
			}
			equal(t, "stdin", string(rejoin(t, evs, event.In)), initialize+allow)
			equal(t, "inputs", len(inputs), 1)
			got := inputs[0]
			equal(t, "hash", len(got.Hash) > 0, true)
			got.Hash = ""
			equal(t, "input", got, event.Input{Bytes: len(user) - 1, Type: "user", UUID: "c-1"})
			x := one[event.Exited](t, evs, event.TypeExited)
			equal(t, "frames in", x.Frames.In, int64(4))
			equal(t, "stdin EOF", x.StdinEOF, true)
		})
	}
}

// The main session is named when it is known, and again when it changes.
func TestSessionFacts(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Claude
	in := strings.Join([]string{
		`{"type":"system","subtype":"hook_started","uuid":"a"}`,
		claude.init(), claude.text("x"), claude.result(),
		`{"type":"conversation_reset","new_conversation_id":"s-2","session_id":"s-main","uuid":"b"}`,
		`{"type":"system","subtype":"init","claude_code_version":"2.1.220","session_id":"s-2","uuid":"c"}`,
		`{"type":"assistant","message":{"content":[]},"session_id":"s-2","uuid":"d"}`,
	}, "\n") + "\n"
	out, err := ingest.Import(t.Context(), o, strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	evs := theWorld.history(t, out.Run)
	equal(t, "facts", load[event.Session](t, evs, event.TypeSession), []event.Session{
		{Session: "s-main"}, {Session: "s-2", Previous: "s-main"},
	})
	equal(t, "before it is known", evs[1].Session, "")
}

// A spool without room counts what it leaves out, goes on where room comes back,
// and says so; the child's stdout is whole.
func TestGap(t *testing.T) {
	hold := make(chan struct{})
	o := options(t)
	o.Dialect, o.SpoolRunMax, o.Dial = dialect.Claude, 1<<20, after(hold, o.Dial)
	r := wrap(t, o, streamArgs...)
	var want strings.Builder
	line := func(n int) string {
		l := fmt.Sprintf(`{"type":"assistant","n":%d,"message":{"content":[{"type":"text","text":"%s"}]},"session_id":"s-main","uuid":"g-%d"}`,
			n, strings.Repeat("z", 4000), n)
		want.WriteString(l + "\n")
		return l
	}
	hello := claude.init()
	want.WriteString(hello + "\n")
	r.say(hello)
	for i := range 600 {
		r.say(line(i))
	}
	r.order(order{Op: "err", Data: []byte("full\n")})
	poll(t, "loss", func() bool { // the parent has it all, and the spool no more
		return len(r.stdout()) == want.Len()
	})
	close(hold)
	r.await("what fitted", func(e *event.Event) bool { return strings.Contains(string(e.Data), `"n":100,`) })
	n := 1000
	poll(t, "room", func() bool { // the bus takes the old events, new ones fit
		n++
		l := line(n)
		r.say(l)
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return slices.ContainsFunc(r.w.events[r.run], func(e *event.Event) bool { return e.Type == event.TypeGap })
	})
	last := line(9999)
	r.say(last)
	out := r.exit(0)
	evs := r.w.history(t, r.run)
	got := rejoin(t, evs, event.Out)
	var lost, frames int64
	for _, g := range load[event.Gap](t, evs, event.TypeGap) {
		equal(t, "reason", g.Reason, "spool_full")
		lost, frames = lost+g.Bytes, frames+g.Frames
	}
	lines := int64(bytes.Count(rejoin(t, evs, event.Out), []byte("\n")) + bytes.Count(rejoin(t, evs, event.Err), []byte("\n")))
	equal(t, "bytes kept and lost", int64(len(got)+len(rejoin(t, evs, event.Err)))+lost, int64(want.Len()+len("full\n")))
	equal(t, "lines kept and lost", lines+frames, int64(strings.Count(want.String(), "\n")+1))
	if !bytes.Contains(got, []byte(last)) {
		t.Error("the last line is missing although there was room")
	}
	if r.stdout() != want.String() {
		t.Error("the parent's bytes are not the child's")
	}
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "complete", x.Complete, false)
	if x.Gap == nil || x.Gap.Bytes != lost || x.Gap.Frames != frames {
		t.Errorf("exit sums %+v, want %d bytes in %d frames", x.Gap, lost, frames)
	}
	equal(t, "outcome", out.Lost.Bytes, lost)
}

// A run whose spool has no room at all still has its start and its end, and ends.
func TestNoRoom(t *testing.T) {
	o := options(t)
	o.Dialect, o.SpoolRunMax, o.HoldStdin, o.Dial = dialect.Claude, 256<<10, true, nil
	r := wrap(t, o, streamArgs...)
	r.write(user)
	r.read()
	r.stdin.Close()
	r.say(claude.init())
	for i := range 300 {
		r.say(claude.text(fmt.Sprint(i, strings.Repeat("z", 2000))))
	}
	r.say(claude.result()) // not kept, and yet it frees the held EOF
	if line, err := r.read(); err == nil {
		t.Fatalf("got %q, want EOF", line)
	}
	out := r.exit(0)
	evs := kept(t, o.SpoolRoot, out.Run)
	equal(t, "first", evs[0].Type, event.TypeStarted)
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "complete", x.Complete, false)
	gaps := load[event.Gap](t, evs, event.TypeGap)
	equal(t, "gaps", len(gaps), 1)
	equal(t, "lines", int64(bytes.Count(rejoin(t, evs, event.Out), []byte("\n")))+gaps[0].Frames, x.Frames.Out)
}

// kept reads the events of a spool that nobody has open.
func kept(t testing.TB, root, run string) (evs []*event.Event) {
	t.Helper()
	s, err := spool.Open(root, run, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := uint64(1); n <= s.Last(); n++ {
		meta, data, _, err := s.Record(n)
		e := &event.Event{Seq: n, Data: data}
		if err == nil {
			err = event.DecodeMeta(meta, e)
		}
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, e)
	}
	return evs
}

// What the queue before the recorder could not take is a gap. Then nobody knows
// what is open, and a held EOF is passed on.
func TestDropped(t *testing.T) {
	o := options(t)
	o.Dialect, o.Argv = dialect.Claude, append([]string{"claude"}, streamArgs...)
	w := ingest.NewWatched(t, o, &leaver{exited: make(chan struct{})})
	w.Say(claude.text("a turn is open"))
	equal(t, "idle", w.Idle(), false)
	w.Drop("half a li", 1000, 3)
	equal(t, "idle", w.Idle(), true)
	w.Say(claude.text("goes on"))
	w.Close()
	evs := kept(t, o.SpoolRoot, w.Run())
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "complete", x.Complete, false)
	// The line that the hole cut is gone to its end.
	equal(t, "gap", one[event.Gap](t, evs, event.TypeGap), event.Gap{Frames: 4, Bytes: 1000 + int64(len("rest\n")), Reason: "tap_full", FromStream: "out"})
	equal(t, "sum", *x.Gap, one[event.Gap](t, evs, event.TypeGap))
	if !bytes.Contains(rejoin(t, evs, event.Out), []byte("half a li")) {
		t.Error("the beginning of the cut line is missing")
	}
}

// A line past the bound of a frame is raw in all its pieces, also where one looks
// like a frame, and its bytes are whole.
func TestEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("a line of 64 MiB")
	}
	o := options(t)
	o.Dial, o.Dialect = nil, dialect.Claude
	const piece = 64 << 20
	in := append(bytes.Repeat([]byte("x"), piece), `{"type":"result","subtype":"success","session_id":"s"}`+"\n"...)
	out, err := ingest.Import(t.Context(), o, bytes.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	evs := kept(t, o.SpoolRoot, out.Run)
	if got := rejoin(t, evs, event.Out); !bytes.Equal(got, in) {
		t.Errorf("got %d bytes, want %d", len(got), len(in))
	}
	for _, e := range evs {
		if e.Stream == event.Out && e.Kind != event.Raw {
			t.Errorf("event %d is %s", e.Seq, e.Kind)
		}
	}
	equal(t, "turns", out.State.TurnsEnded(), 0)
	if m, _ := filepath.Glob(filepath.Join(o.SpoolRoot, "*")); len(m) != 1 {
		t.Errorf("spools: %v", m)
	}
}

// An edge that cannot keep anything still runs the agent.
func TestBare(t *testing.T) {
	o := options(t)
	o.SpoolRoot = "/dev/null/spool"
	o.Argv = []string{exe(t)}
	o.Env = []string{roleEnv + "=true"}
	out, err := ingest.Run(context.Background(), o)
	if err != nil || out.Result.Code != 0 {
		t.Errorf("code %d, %v", out.Result.Code, err)
	}
	o.Argv = []string{"/nonexistent"}
	if _, err := ingest.Run(context.Background(), o); err == nil {
		t.Error("a command that does not exist was run")
	}
}

func TestValidate(t *testing.T) {
	good := ingest.Config{Tenant: "acme", CaptureStdin: "control", PresenceTTL: 30e9, SpoolRunMax: 1 << 30}
	for name, f := range map[string]func(*ingest.Config){
		"tenant":   func(c *ingest.Config) { c.Tenant = ".." + "/" },
		"capture":  func(c *ingest.Config) { c.CaptureStdin = "some" },
		"spool":    func(c *ingest.Config) { c.SpoolRunMax = 0 },
		"presence": func(c *ingest.Config) { c.PresenceTTL = 1 },
		"pattern":  func(c *ingest.Config) { c.RedactPatterns = []string{"("} },
	} {
		c := good
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if f(&c); c.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTenantForm(t *testing.T) {
	for tenant, want := range map[string]bool{
		"a": true, "Z9": true, "a.b/c_d-e": true, "": false, "-a": false, "/a": false, "a b": false, "a*": false, "ä": false, "a\n": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		c := ingest.Config{Tenant: tenant, CaptureStdin: "control", PresenceTTL: 30e9, SpoolRunMax: 1 << 30}
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%q: %v", tenant, err)
		}
	}
}

func TestCILabels(t *testing.T) {
	tests := []struct {
		name      string
		env, want map[string]string
	}{
		{"none", map[string]string{"CI": "true", "GITHUB_SHA": "x"}, nil},
		{
			"github",
			map[string]string{
				"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "7", "GITHUB_SERVER_URL": "https://h", "GITHUB_TOKEN": "secret",
			},
			map[string]string{"ciprovider": "github", "cirepo": "a/b", "cirun": "7", "ciurl": "https://h/a/b/actions/runs/7"},
		},
		{"gitlab", map[string]string{"GITLAB_CI": "true", "CI_JOB_TOKEN": "s", "CI_JOB_NAME": "j"}, map[string]string{"ciprovider": "gitlab", "cijob": "j"}},
		{"long", map[string]string{"JENKINS_URL": "x", "BUILD_URL": strings.Repeat("u", 300)}, map[string]string{"ciprovider": "jenkins", "ciurl": strings.Repeat("u", 256)}},
	}
	for _, tt := range tests {
		equal(t, tt.name, ingest.CILabels(tt.env), tt.want)
	}
}

func TestTraceParent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for in, want := range map[string]string{
		good: good, "01" + good[2:] + "-more": "01" + good[2:] + "-more", good[:54]: "", good + "-more": "", strings.ToUpper(good): "",
		"ff" + good[2:]: "", "00-" + strings.Repeat("0", 32) + good[35:]: "", good[:36] + strings.Repeat("0", 16) + "-01": "",
		"01" + good[2:] + "-\n": "", "": "",
	} {
		equal(t, in, ingest.TraceParent(map[string]string{"TRACEPARENT": in}), want)
	}
	equal(t, "buildkite", ingest.TraceParent(map[string]string{"TRACEPARENT": "x", "BUILDKITE_TRACING_TRACEPARENT": good}), good)

	o := options(t)
	o.TraceParent = good
	r := wrap(t, o, streamArgs...)
	r.exit(0)
	evs := r.w.history(t, r.run)
	equal(t, "started", evs[0].TraceParent, good)
	equal(t, "others", evs[len(evs)-1].TraceParent, "")
}

// An id that holds a secret is masked where it is an attribute, too, on this and
// on every later event; one that is too long is cut and told apart by a hash.
func TestHostileIDs(t *testing.T) {
	const key = "sk-ant-api03-QQQQQQQQQQQQQQQQQQQQQQQQQQQQ"
	r := session(t, claude)
	r.say(`{"type":"system","subtype":"init","session_id":"` + key + `","claude_code_version":"2.1.220"}`)
	r.say(`{"type":"assistant","session_id":"` + key + `","message":{"content":[]}}`)
	long := strings.Repeat("x", 60_000)
	r.say(`{"type":"system","subtype":"task_started","task_id":"` + long + `","session_id":"` + key + `"}`)
	r.exit(0)
	evs := theWorld.history(t, r.run)
	rejoin(t, evs, event.Out)
	tasks := 0
	for _, e := range evs {
		if e.Type == event.TypeGap {
			t.Errorf("a gap: %s", e.Data)
		}
		if strings.Contains(string(e.AppendJSON(nil)), key) {
			t.Errorf("event %d (%s) shows the key", e.Seq, e.Type)
		}
		if e.Task != "" {
			tasks++
			if len(e.Task) > 1024 || e.Task == long[:len(e.Task)] {
				t.Errorf("task of %d bytes", len(e.Task))
			}
		}
	}
	if tasks == 0 {
		t.Error("no event has the task")
	}
}
