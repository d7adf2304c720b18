package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// A feeder plays logs to a tally, and is the past that the tally may look at.
type feeder struct {
	t    *testing.T
	c    *tally
	seq  map[bus.Log]uint64
	at   time.Time // stored time of the last entry
	past map[runKey][]*event.Event
	log  []fed
}

type fed struct {
	log bus.Log
	at  bus.Place
	e   *event.Event
}

func testOptions() Options {
	return Options{Config: Config{Repos: []string{"acme/site"}, Workflows: []string{"nightly"}}, Version: "1", Revision: "r"}
}

func feed(t *testing.T, o Options) *feeder {
	t.Helper()
	f := &feeder{t: t, seq: map[bus.Log]uint64{}, at: capture.Start, past: map[runKey][]*event.Event{}}
	o.past = f
	if o.now == nil {
		o.now = func() time.Time { return f.at }
	}
	f.c = newTally(o.defaults())
	return f
}

func (f *feeder) History(_ context.Context, r bus.Ref, after uint64) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		for _, e := range f.past[runKey{r.Tenant, r.Run}] {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

func (f *feeder) Last(_ context.Context, r bus.Ref) (*event.Event, uint64, error) {
	list := f.past[runKey{r.Tenant, r.Run}]
	if len(list) == 0 {
		return nil, 0, bus.ErrNotFound
	}
	return list[len(list)-1], uint64(len(list)), nil
}

// store puts an event into a log without counting it.
func (f *feeder) store(log bus.Log, e *event.Event) fed {
	f.seq[log]++
	f.at = f.at.Add(time.Millisecond)
	if e.Time.After(f.at) {
		f.at = e.Time
	}
	if e.Seq > 0 {
		k := runKey{e.Tenant, e.Run}
		f.past[k] = append(f.past[k], e)
	}
	x := fed{log, bus.Place{Seq: f.seq[log], Time: f.at}, e}
	f.log = append(f.log, x)
	return x
}

func (f *feeder) count(x fed) {
	f.t.Helper()
	if err := f.c.apply(context.Background(), x.log, x.at, x.e, nil); err != nil {
		f.t.Fatal(err)
	}
}

func (f *feeder) play(events ...*event.Event) {
	f.t.Helper()
	for _, e := range events {
		log := bus.Log(0)
		if e.Seq == 0 {
			log = bus.ControlLog
		}
		f.count(f.store(log, e))
	}
}

// values are all counters, and of histograms count and sum, by name and labels. What
// depends on the clock or the process is left out.
func (c *tally) values() map[string]string {
	m := map[string]string{}
	for _, s := range c.samples() {
		var labels []string
		for _, l := range s.out.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		name := s.desc.String()
		name = name[strings.Index(name, `"`)+1:]
		name = strings.TrimPrefix(name[:strings.Index(name, `"`)], prefix)
		k := name + "{" + strings.Join(labels, ",") + "}"
		switch {
		case s.out.Counter != nil:
			m[k] = fmt.Sprint(s.out.Counter.GetValue())
		case s.out.Histogram != nil:
			h := s.out.Histogram
			m[k] = fmt.Sprintf("n=%d sum=%v zero=%d", h.GetSampleCount(), h.GetSampleSum(), h.GetZeroCount())
			for _, b := range h.GetBucket() {
				m[k] += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
			}
			m[k] += fmt.Sprint(" ", h.GetPositiveSpan(), h.GetPositiveDelta())
		default:
			m[k] = fmt.Sprint(s.out.Gauge.GetValue())
		}
	}
	return m
}

// timed are the metrics that tell of the process or the clock, not of the logs.
var timed = []*def{mSnapshot, mRebuilds, mHeld, mInfo, mOldest, mPendingOld, mRepeated}

func (c *tally) counted() map[string]string {
	m := c.values()
	for _, d := range timed {
		maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, d.name+"{") })
	}
	return m
}

// nonzero are the values of some metrics that are not zero.
func (c *tally) nonzero(defs ...*def) map[string]string {
	m := map[string]string{}
	for k, v := range c.values() {
		name, _, _ := strings.Cut(k, "{")
		if v != "0" && (len(defs) == 0 || slices.ContainsFunc(defs, func(d *def) bool { return d.name == name })) {
			m[k] = v
		}
	}
	return m
}

func captured(t *testing.T, name, tenant, run string) []*event.Event {
	t.Helper()
	c, err := capture.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return capture.Events(c, tenant, run)
}

// Of every recording the counts agree with the fold of the whole.
func TestCountsAgreeWithTheFold(t *testing.T) {
	for _, name := range capture.List() {
		t.Run(name, func(t *testing.T) {
			f := feed(t, testOptions())
			events := captured(t, name, "acme", "r1")
			f.play(events...)
			s := run.New("r1")
			for _, e := range events {
				s.Apply(e)
			}
			v := s.View()
			want := fromView(v, len(events))
			if v.Usage.IncludesEarlier && !slices.Contains(v.Argv, "--session-id") {
				want["output"] = 0 // what earlier runs used cannot be told apart
			}
			if d := cmp.Diff(want, sums(f.c)); d != "" {
				t.Errorf("counts differ from the fold (-fold +counts):\n%s", d)
			}
			if len(f.c.live) != 0 {
				t.Error("the run is still live")
			}
		})
	}
}

// sum is the total of a metric over all series, with label label=value if given.
func (c *tally) sum(d *def, match ...string) (n int64) {
	for _, s := range c.families[d].series {
		ok := true
		for i := 0; i+1 < len(match); i += 2 {
			ok = ok && s.labels[slices.Index(d.labels, match[i])] == match[i+1]
		}
		switch {
		case !ok:
		case s.h != nil:
			n += int64(s.h.count)
		default:
			n += s.n
		}
	}
	return n
}

func sums(c *tally) map[string]int64 {
	m := map[string]int64{
		"frames": c.sum(mFrames), "started": c.sum(mStarted), "duration": c.sum(mDuration),
		"turns": c.sum(mTurns), "turns done": c.sum(mTurnsDone), "tools": c.sum(mTools), "messages": c.sum(mMessages),
		"denied": c.sum(mDenied), "retries": c.sum(mRetries), "late": c.sum(mLate), "agents failed": c.sum(mAgents, "state", "error"),
		"tasks": c.sum(mTasks), "waits": c.sum(mWaitTime), "cost": c.sum(mCost) / 1000,
		"output": c.sum(mTokens, "type", "output"),
	}
	for _, s := range c.families[mFinished].series {
		if s.n > 0 {
			m["finished "+s.labels[len(s.labels)-1]] = s.n
		}
	}
	return m
}

func fromView(v run.View, events int) map[string]int64 {
	m := map[string]int64{
		"frames": int64(events), "started": 1, "duration": 1, "turns": int64(len(v.Turns)), "turns done": int64(len(v.Turns)),
		"tools": int64(v.Counts.ToolCalls), "messages": int64(v.Counts.Messages), "denied": int64(v.Counts.Denied),
		"retries": int64(v.Counts.Retries), "late": int64(v.Counts.Late), "agents failed": int64(v.Counts.AgentsFailed),
		"tasks": int64(len(v.Tasks)), "waits": int64(len(v.Asks)), "cost": nanoUSD(v.Usage.CostUSD) / 1000,
		"finished " + string(v.Verdict.Verdict): 1, "output": v.Usage.Tokens.Output,
	}
	if v.Dialect == "claude" && len(v.Usage.Models) > 0 {
		// The totals by model hold what sub-agents used, too.
		m["output"] = 0
		for _, u := range v.Usage.Models {
			m["output"] += u.Output
		}
	}
	return m
}

func fact(tenant, run, typ, ref string, data any) *event.Event {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return &event.Event{Tenant: tenant, Run: run, Ref: ref, Type: typ, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: b}
}
