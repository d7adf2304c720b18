package workflow_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/test/capture"
)

// children are whose lines a fuzzed run holds, by the first byte of its text.
var children = [][]string{
	{"claude", "-p", "--output-format", "stream-json"}, {"cbc", "--output-format", "stream-json"}, {"codex", "app-server"}, {"sh"},
}

// fuzzed makes the events of a run of lines: after the byte that says which child,
// each line is one of its stdout, of its stdin after "<", of its stderr after "!".
// Two of three deltas in a row share an event, as edges merge them.
func fuzzed(data []byte) []*event.Event {
	if len(data) == 0 {
		return nil
	}
	c := &capture.Capture{Argv: children[int(data[0])%len(children)]}
	for i, line := range bytes.Split(data[1:], []byte{'\n'}) {
		e := capture.Entry{At: time.Duration(i) * time.Millisecond, Dir: capture.Out, Data: line}
		switch {
		case bytes.HasPrefix(line, []byte("<")):
			e.Dir, e.Data = capture.In, line[1:]
		case bytes.HasPrefix(line, []byte("!")):
			e.Dir, e.Data = capture.Err, line[1:]
		}
		c.Timeline = append(c.Timeline, e)
	}
	c.Timeline = append(c.Timeline, capture.Entry{At: time.Hour, Dir: capture.Exit})
	evs := capture.Events(c, "t", "r")
	var merged []*event.Event
	for i, e := range evs {
		if n := len(merged); n > 0 && i%3 > 0 && strings.HasSuffix(e.Type, ".stream_event") && e.Type == merged[n-1].Type {
			last := merged[n-1]
			last.ContentType, last.Data = event.NDJSON, append(append(slices.Clone(last.Data), '\n'), e.Data...)
			continue
		}
		e.Seq = uint64(len(merged) + 1)
		merged = append(merged, e)
	}
	return merged
}

// Whatever a child writes, the streams of its run and of its tasks keep every
// promise, and its text stands inside JSON strings only.
func FuzzMapper(f *testing.F) {
	for _, name := range []string{
		"claude-2.1.220/80-workflow-ok", "claude-2.1.220/40-ask-user-question", "claude-2.1.220/82-workflow-interrupt-idle",
		"cbc-2.163.0/workflow-live-interrupt", "cbc-2.163.0/agent-fg", "codex-0.153.4/81-collab-v2", "codex-0.153.4/10-cmd-approval-accept",
	} {
		c, err := capture.Load(name)
		if err != nil {
			f.Fatal(err)
		}
		b := []byte{byte(slices.IndexFunc(children, func(argv []string) bool { return strings.HasPrefix(name, argv[0]) }))}
		for _, e := range c.Timeline {
			if len(e.Data) > 2<<10 { // a fuzzer gets nowhere with long lines
				continue
			}
			switch e.Dir {
			case capture.Out:
				b = append(append(b, e.Data...), '\n')
			case capture.In:
				b = append(append(append(b, '<'), e.Data...), '\n')
			case capture.Err, capture.InEOF, capture.Signal, capture.Exit:
			}
		}
		f.Add(b)
	}
	for _, s := range hostile {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		evs := fuzzed(data)
		for i, id := range streams(evs) {
			all, err := mapAll(t, id, evs)
			if err != nil && !errors.Is(err, workflow.ErrTooMany) {
				t.Fatal(err)
			}
			if err == nil && len(evs) > 0 && (len(all) == 0 || !all[len(all)-1].Event.Terminal()) {
				t.Fatalf("%s: no end in %d envelopes", id, len(all))
			}
			if i == 8 {
				break // enough of one input
			}
		}
	})
}

// hostile are runs that try to break out of a frame, or the account of nodes.
var hostile = []string{
	"\x00{\"type\":\"assistant\",\"session_id\":\"s\",\"message\":{\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"a\\n\\nevent: run.completed\\ndata: {}\\r\\u2028\\u0000\\ud800\"}]}}",
	"\x00{\"type\":\"system\",\"subtype\":\"task_started\",\"task_id\":\"a/b:c\\n@1\",\"task_type\":\"local_workflow\",\"workflow_name\":\"\\r\\nid: 9\",\"session_id\":\"s\"}\n" +
		"{\"type\":\"system\",\"subtype\":\"task_progress\",\"task_id\":\"a/b:c\\n@1\",\"workflow_progress\":[{\"type\":\"workflow_phase\",\"index\":-1,\"title\":\"x\"},{\"type\":\"workflow_phase\",\"index\":-1,\"title\":\"y\"},{\"type\":\"workflow_agent\",\"index\":\"a/b#2\",\"phaseIndex\":-1,\"state\":\"start\",\"attempt\":9e18},{\"type\":\"workflow_agent\",\"index\":{\"x\":[1]},\"state\":\"done\",\"startedAt\":-5,\"endedAt\":9223372036854775807},{\"type\":\"workflow_agent\",\"index\":\"a/b#2\",\"phaseIndex\":-1,\"state\":\"progress\",\"attempt\":2,\"tokens\":-4}],\"session_id\":\"s\"}\n" +
		"{\"type\":\"system\",\"subtype\":\"task_progress\",\"task_id\":\"a/b:c\\n@1\",\"workflow_progress\":[{\"type\":\"workflow_agent\",\"index\":\"a/b#2\",\"phaseIndex\":-1,\"state\":\"error\",\"attempt\":3},{\"type\":\"workflow_agent\",\"index\":\"a/b#2\",\"phaseIndex\":-1,\"state\":\"start\",\"startedAt\":1}],\"session_id\":\"s\"}\n" +
		"{\"type\":\"system\",\"subtype\":\"task_updated\",\"task_id\":\"a/b:c\\n@1\",\"patch\":{\"status\":\"killed\"},\"session_id\":\"s\"}\n" +
		"{\"type\":\"system\",\"subtype\":\"task_progress\",\"task_id\":\"a/b:c\\n@1\",\"workflow_progress\":[{\"type\":\"workflow_agent\",\"index\":7,\"state\":\"start\",\"startedAt\":1}],\"session_id\":\"s\"}\n" +
		"{\"type\":\"system\",\"subtype\":\"task_notification\",\"task_id\":\"a/b:c\\n@1\",\"status\":\"completed\",\"output_file\":\"..\\\\..\\r\\nx\",\"session_id\":\"s\"}",
	"\x01{\"type\":\"control_request\",\"request_id\":1,\"request\":{\"subtype\":\"elicitation\",\"message\":\"m\\n\",\"requested_schema\":{\"type\":\"object\",\"properties\":{\"\\n\":{\"type\":\"string\",\"$ref\":\"http://x\",\"enum\":[\"a\",{}],\"default\":[1]},\"n\":{\"type\":\"number\",\"minimum\":1e999}},\"required\":[\"n\"]}},\"session_id\":\"s\"}\n" +
		"<{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":1,\"response\":{\"action\":\"accept\"}}}",
	"\x02{\"method\":\"turn/started\",\"params\":{\"threadId\":\"t\",\"turn\":{\"id\":\"1\"}}}\n" +
		"{\"method\":\"turn/plan/updated\",\"params\":{\"threadId\":\"t\",\"turnId\":\"1\",\"plan\":[{\"step\":\"a\",\"status\":\"completed\"},{\"step\":\"b\",\"status\":\"pending\"}]}}\n" +
		"{\"method\":\"turn/plan/updated\",\"params\":{\"threadId\":\"t\",\"turnId\":\"1\",\"plan\":[{\"step\":\"a\",\"status\":\"inProgress\"}]}}\n" +
		"{\"method\":\"item/started\",\"params\":{\"threadId\":\"t\",\"turnId\":\"1\",\"item\":{\"type\":\"collabAgentToolCall\",\"id\":\"c\",\"tool\":\"spawnAgent\",\"receiverThreadIds\":[\"u\"]}}}\n" +
		"{\"method\":\"turn/started\",\"params\":{\"threadId\":\"u\",\"turn\":{\"id\":\"2\"}}}\n{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"u\",\"turn\":{\"id\":\"2\",\"status\":\"completed\"}}}\n" +
		"{\"method\":\"turn/started\",\"params\":{\"threadId\":\"u\",\"turn\":{\"id\":\"3\"}}}\n{\"method\":\"item/agentMessage/delta\",\"params\":{\"threadId\":\"u\",\"itemId\":\"i\",\"delta\":\"again\"}}",
}

// An id that is read is written as it was.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"r", "r:t", "r:=2F", "r:", ":t", "r:t:u", "=", "r:=2f", "r:=41", "0194:agent-1", "r:=E2=80=A6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := workflow.ParseID(s)
		if err != nil {
			if !errors.Is(err, workflow.ErrID) {
				t.Fatal(err)
			}
			return
		}
		if id.String() != s || id.Run == "" {
			t.Errorf("%q is read as %+v and written as %q", s, id, id.String())
		}
	})
}
