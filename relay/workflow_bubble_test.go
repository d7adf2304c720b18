package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/relay"
)

// Deltas are joined for 50 ms from the first one on; whatever else comes ends that at
// once. Merging can be turned off.
func TestWorkflowMergeWindow(t *testing.T) {
	for _, tt := range []struct {
		unmerged bool
		want     []string
	}{
		{want: []string{"50ms ab", "10ms c"}},
		{unmerged: true, want: []string{"0s a", "10ms b", "60ms c"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := silentRig(t)
			s := r.relayInBubble(relay.Config{Unmerged: tt.unmerged})
			e := r.talking("run-1")
			e.renew(ttl)
			e.emit(chunk("0"))
			e.shipped()
			c := s.stream(workflows+"run-1/stream", nil)
			for ev, ok := c.next(); ok && ev.name != string(workflow.NodeOutputDelta); ev, ok = c.next() {
			}
			got := make(chan string, 3)
			var from time.Time
			go func() {
				for range tt.want {
					ev, _ := c.next()
					got <- fmt.Sprint(time.Since(from).Round(time.Millisecond), " ", deltaText(t, []sseEvent{ev}))
				}
			}()
			time.Sleep(time.Second)
			from = time.Now()
			e.emit(chunk("a"))
			e.shipped()
			time.Sleep(10 * time.Millisecond)
			e.emit(chunk("b"))
			e.shipped()
			var lines []string
			if !tt.unmerged {
				lines = append(lines, <-got)
				from = time.Now()
				time.Sleep(10 * time.Millisecond)
			} else {
				time.Sleep(50 * time.Millisecond)
			}
			e.emit(chunk("c"), result(), exited())
			for len(lines) < len(tt.want) {
				lines = append(lines, <-got)
			}
			if d := cmp.Diff(tt.want, lines); d != "" {
				t.Errorf("unmerged %v: %s", tt.unmerged, d)
			}
			c.all()
		})
	}
}

// An edge dies: every client hears run.failed, marked as made up, without an id. Who
// comes back hears it again and is held; when the spool is shipped the stream goes on
// to the true end.
func TestWorkflowLostThenTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.talking("run-1")
		stop := e.renew(ttl)
		e.shipped()
		s := r.relayInBubble(relay.Config{})
		c := s.stream(workflows+"run-1/stream", nil)
		if got := c.res.Header.Get("X-Workflow-Run-Status"); got != "running" {
			t.Errorf("status %s", got)
		}
		before := c.take(len(mapped(t, workflow.ID{Run: "run-1"}, e.events)))
		last := before[len(before)-1]
		rest := c.later()
		time.Sleep(2 * time.Minute)
		stop()
		list := rest()
		if c.comments < 8 || len(list) != 1 {
			t.Fatalf("%d heartbeats, then %+v", c.comments, list)
		}
		lost := func(ev sseEvent) {
			t.Helper()
			v := envelopeOf(t, ev)
			var d workflow.RunFailedData
			if err := json.Unmarshal(v.Data, &d); err != nil || ev.id != "" || v.Event != workflow.RunFailed || !d.Synthesised ||
				d.Error.Code != workflow.CodeRunLost || d.Error.Details["provisional"] != true || v.Seq != atoi(t, last.id)+1 {
				t.Errorf("%+v %s, %v", v, v.Data, err)
			}
		}
		lost(list[0])
		time.Sleep(time.Minute)

		c = s.stream(workflows+"run-1/stream", map[string]string{"Last-Event-ID": last.id})
		if got := c.res.Header.Get("X-Workflow-Run-Status"); got != "failed" {
			t.Errorf("status of a lost run: %s", got)
		}
		lost(c.take(1)[0])
		var p workflowPage
		s.get(workflows+"run-1/events?after="+last.id, nil).into(t, &p)
		if len(p.Events) != 1 || p.Events[0].Event != workflow.RunFailed || p.Ended || p.Status != "failed" || itoa(p.Next) != last.id {
			t.Errorf("page of a lost run: %+v", p)
		}
		var v relay.WorkflowView
		s.get(workflows+"run-1", nil).into(t, &v)
		if v.Status != "failed" || !v.Provisional || v.Alive || !strings.Contains(string(v.Result), workflow.CodeRunLost) {
			t.Errorf("view of a lost run: %+v", v)
		}

		rest = c.later()
		time.Sleep(10 * time.Minute)
		e.resume()
		synctest.Wait()
		e.emit(chunk("late"), result(), exited())
		list = rest()
		back := envelopeOf(t, list[0])
		if list[0].id != "" || back.Event != workflow.RunResumed || !strings.Contains(string(back.Data), `"synthesised":true`) {
			t.Errorf("when it is back: %+v", list[0])
		}
		want := mapped(t, workflow.ID{Run: "run-1"}, e.events)[len(before):]
		if d := cmp.Diff(shown(t, want), shown(t, envelopes(t, list[1:]))); d != "" {
			t.Errorf("the truth: %s", d)
		}
		if got := s.get(workflows+"run-1/stream?after="+list[len(list)-1].id, nil); got.status != http.StatusNoContent {
			t.Errorf("after the end: %d", got.status)
		}
	})
}

// A lost run is over after LostFinal.
func TestWorkflowLostFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.talking("run-1")
		e.shipped()
		time.Sleep(time.Minute)
		s := r.relayInBubble(relay.Config{LostFinal: 30 * time.Minute})
		time.Sleep(time.Minute)
		c := s.stream(workflows+"run-1/stream", nil)
		n := len(mapped(t, workflow.ID{Run: "run-1"}, e.events))
		list := c.take(n + 1)
		from := time.Now()
		if rest := c.all(); len(rest) > 0 || list[n].name != string(workflow.RunFailed) {
			t.Errorf("%+v, then %+v", list[n], rest)
		}
		if d := time.Since(from); d < 25*time.Minute || d > 31*time.Minute {
			t.Errorf("held for %v", d)
		}
		if got := s.get(workflows+"run-1/stream?after="+list[n-1].id, nil); got.status != http.StatusNoContent {
			t.Errorf("after the final time: %d", got.status)
		}
	})
}
