package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// The whole input of an ask is read from its event, and only where the event is that ask's.
func TestActorInput(t *testing.T) {
	line := func(tool, call, input string) []byte {
		return fmt.Appendf(nil, `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":%q}}`, tool, input, call)
	}
	long := `{"command":"` + strings.Repeat("x", 20<<10) + `"}`
	for name, tc := range map[string]struct {
		data []byte
		seq  uint64
		want string // or what the error says
		bad  bool
	}{
		"a command":         {line("Bash", "toolu_1", long), 7, long, false},
		"a tool in another": {line("DeferExecuteTool", "toolu_1", `{"toolName":"Bash","params":`+long+`}`), 7, long, false},
		"of another call":   {line("Bash", "toolu_2", long), 7, "has another form", true},
		"of another kind":   {[]byte(`{"type":"assistant"}`), 7, "has another form", true},
		"no JSON":           {[]byte(`{"type`), 7, "several parts", true},
		"it is gone":        {line("Bash", "toolu_1", long), 9, "the relay has it no more", true},
	} {
		t.Run(name, func(t *testing.T) {
			ev := &event.Event{Tenant: "acme", Run: "r1", Seq: tc.seq, Type: "dev.cbcast.claude.control_request", Kind: event.Ask, Stream: event.Out, ContentType: event.JSON, Time: time.Now().UTC(), Data: tc.data}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path != "/v1/runs/r1/stream" || q.Header.Get("Last-Event-ID") != "6" || q.Header.Get("Authorization") != "Bearer tok" {
					t.Errorf("asked for %s behind %s", q.URL, q.Header.Get("Last-Event-ID"))
				}
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "id: %d\nevent: ask\ndata: %s\n\n", tc.seq, ev.AppendJSON(nil))
			}))
			t.Cleanup(srv.Close)
			a := &app{}
			a.cfg.Notify.RelayURL, a.cfg.Notify.RelayToken = srv.URL, "tok"
			got, err := (&relayActor{a}).Input(t.Context(), "r1", &run.AskView{ID: "a1", ToolUseID: "toolu_1", OpenedSeq: 7})
			switch {
			case tc.bad && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %s", err, tc.want)
			case !tc.bad && (err != nil || string(got) != tc.want || !json.Valid(got)):
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}
