package sink_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// A notice is one line, whatever is in it, and nothing of what the agent said.
func TestLog(t *testing.T) {
	var out bytes.Buffer
	l := sink.NewLog("journal", slog.New(slog.NewTextHandler(&out, nil)))
	n := &sink.Notice{
		ID: "r/7", Kind: sink.Failed, Tenant: "acme", Run: "0191-r", Note: "two\nlines",
		View: &run.View{Run: "0191-r", Result: &run.ResultView{Text: "said by the agent"}},
	}
	if o := l.Send(t.Context(), n); o.Verdict != sink.Delivered {
		t.Fatalf("%+v", o)
	}
	got := out.String()
	for _, want := range []string{"msg=notice", "destination=journal", "kind=failed", "headline=Failed", "tenant=acme", "run=0191-r"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "said by") {
		t.Errorf("got %q", got)
	}
}
