package sink_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// A notice is one line, whatever is in it, and nothing of what the agent said.
func TestLog(t *testing.T) {
	var out bytes.Buffer
	l, err := sink.NewLog("journal", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
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

// One that has no log is refused, and not found out with the first notice.
func TestLogWithoutLog(t *testing.T) {
	if l, err := sink.NewLog("journal", nil); err == nil {
		t.Errorf("got %+v", l)
	}
}

// A reminder says how long the ask waits, not how long the run took.
func TestLogReminder(t *testing.T) {
	var out bytes.Buffer
	l, err := sink.NewLog("journal", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	asked := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	began := asked.Add(-time.Hour)
	n := &sink.Notice{ID: "r/7", Kind: sink.Reminder, Run: "r", Since: asked, At: asked.Add(10 * time.Minute), View: &run.View{Run: "r", StartedAt: &began}}
	l.Send(t.Context(), n)
	if got := out.String(); !strings.Contains(got, `"waits for"=10m`) || strings.Contains(got, "duration=") {
		t.Errorf("got %s", got)
	}
}
