package metrics

// A kind is what a metric is to Prometheus.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// A def describes one metric. The table of docs/metrics.md has a row for each.
type def struct {
	name   string
	kind   kind
	labels []string
	help   string

	unit    float64   // one of what is counted, in the metric's unit; 0 means 1
	buckets []float64 // upper bounds of a histogram's classic buckets, seconds
	limit   int       // series; 0 means [maxSeries]
}

// prefix begins every name.
const prefix = "cbcast_"

// Units of what is kept as whole numbers, so that sums do not depend on their order.
const (
	nano  = 1e-9
	micro = 1e-6
)

// Classic buckets.
var (
	runBuckets    = []float64{.5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400}
	taskBuckets   = []float64{.1, .5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200}
	waitBuckets   = []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400}
	settleBuckets = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 45, 60, 120}
)

// who are the labels of counts by whom a run is for.
var who = []string{"tenant", "dialect", "ci", "repo", "workflow"}

func whoAnd(more ...string) []string { return append(append([]string{}, who...), more...) }

// The metrics.
var (
	mStarted   = &def{name: "runs_started_total", kind: counter, labels: who, help: "Runs that started."}
	mFinished  = &def{name: "runs_finished_total", kind: counter, labels: whoAnd("verdict"), help: "Runs whose end is final: the child's exit was read, or the run is lost for longer than CBCAST_RELAY_LOST_FINAL."}
	mDuration  = &def{name: "run_duration_seconds", kind: histogram, labels: []string{"dialect", "verdict"}, unit: micro, buckets: runBuckets, help: "From a run's start to its child's exit."}
	mLost      = &def{name: "runs_lost_total", kind: counter, labels: []string{"tenant"}, help: "Times that a run's edge was taken to be gone. Provisional: the run may come back."}
	mResumed   = &def{name: "runs_resumed_total", kind: counter, labels: []string{"tenant"}, help: "Times that the edge of a lost run, or its spool, spoke again."}
	mCorrected = &def{name: "runs_corrected_total", kind: counter, labels: []string{"tenant", "verdict"}, help: "Runs counted as lost for good whose exit was read after all, by their true verdict."}
	mForgotten = &def{name: "runs_forgotten_total", kind: counter, help: "Live runs that were dropped because there are too many, or because nothing came of them for 7 days."}
	mActive    = &def{name: "runs_active", kind: gauge, labels: []string{"tenant", "state"}, help: "Runs that have not ended, by state. lost is provisional."}

	mTurns     = &def{name: "turns_started_total", kind: counter, labels: []string{"dialect"}, help: "User turns that began."}
	mTurnsDone = &def{name: "turns_finished_total", kind: counter, labels: []string{"dialect", "verdict"}, help: "User turns of ended runs."}
	mTasks     = &def{name: "tasks_finished_total", kind: counter, labels: []string{"dialect", "task_type", "status", "terminal_source"}, help: "Tasks that ended, and what told their end."}
	mTaskTime  = &def{name: "task_duration_seconds", kind: histogram, labels: []string{"task_type", "status"}, unit: micro, buckets: taskBuckets, help: "From a task's first frame to its end."}
	mAgents    = &def{name: "agents_finished_total", kind: counter, labels: []string{"dialect", "state"}, help: "Agents of workflows and plans of ended runs, by their last state; error is an agent that failed."}
	mTools     = &def{name: "tool_calls_total", kind: counter, labels: []string{"dialect"}, help: "Tool calls, those of sub-agents included."}
	mMessages  = &def{name: "messages_total", kind: counter, labels: []string{"dialect"}, help: "Assistant messages; a frame that is told again counts once."}
	mRetries   = &def{name: "api_retries_total", kind: counter, labels: []string{"dialect"}, help: "Retries of the model's API that the child told."}
	mDenied    = &def{name: "denials_total", kind: counter, labels: []string{"dialect"}, help: "Tool calls that were denied, as results and hooks say."}
	mLate      = &def{name: "late_frames_total", kind: counter, labels: []string{"dialect"}, help: "Frames about a task that came after its end."}
	mStalled   = &def{name: "stalls_total", kind: counter, labels: []string{"what"}, help: "What the edge's watchdogs saw."}

	mWaiting  = &def{name: "waiting", kind: gauge, labels: []string{"kind"}, help: "Asks that are open now."}
	mOldest   = &def{name: "waiting_oldest_seconds", kind: gauge, labels: []string{"kind"}, help: "Age of the oldest open ask; 0 without one."}
	mWaitTime = &def{name: "waiting_duration_seconds", kind: histogram, labels: []string{"kind", "outcome"}, unit: micro, buckets: waitBuckets, help: "From an ask to its decision, or to its end without one."}

	mCommands   = &def{name: "commands_total", kind: counter, labels: []string{"kind", "outcome", "by"}, help: "Commands by their final fact, and who wrote it: the edge, or a relay for an edge that is gone."}
	mPending    = &def{name: "commands_pending", kind: gauge, labels: []string{"kind"}, help: "Commands on the child's stdin without a final fact."}
	mPendingOld = &def{name: "commands_pending_oldest_seconds", kind: gauge, labels: []string{"kind"}, help: "Age of the oldest of them; 0 without one."}
	mSettle     = &def{name: "interrupt_settle_seconds", kind: histogram, labels: []string{"rung"}, unit: micro, buckets: settleBuckets, help: "From an interrupt or stop_task on the child's stdin to its effect, by the rung that had it."}

	mTokens = &def{name: "tokens_total", kind: counter, labels: []string{"type", "model", "tenant", "dialect"}, help: "Model tokens: input, output, cache_read, cache_create. Totals that a child restates count once."}
	mCost   = &def{name: "cost_usd_total", kind: counter, labels: []string{"model", "tenant", "dialect"}, unit: nano, help: "Cost as the child states it. Totals that a child restates count once."}

	mFrames     = &def{name: "frames_total", kind: counter, labels: []string{"dialect", "type"}, limit: 1000, help: "Events that begin a frame or are a fact, by ce-type."}
	mBytes      = &def{name: "frame_bytes_total", kind: counter, labels: []string{"dialect"}, help: "Bytes of events."}
	mInvalid    = &def{name: "frames_invalid_total", kind: counter, labels: []string{"dialect"}, help: "Lines of a child's stdout that are no frame."}
	mRedactions = &def{name: "redactions_total", kind: counter, labels: []string{"kind"}, help: "Spans that were masked, by rule."}
	mGaps       = &def{name: "gaps_total", kind: counter, labels: []string{"reason"}, help: "Gap facts: bytes of a child that could not be kept."}
	mGapBytes   = &def{name: "gap_bytes_total", kind: counter, labels: []string{"reason"}, help: "Bytes that gap facts count."}
	mMissing    = &def{name: "events_missing_total", kind: counter, help: "Numbers of runs that did not come: retention was faster."}
	mRepeated   = &def{name: "events_repeated_total", kind: counter, help: "Events that came again and were not counted again."}
	mUnreadable = &def{name: "events_unreadable_total", kind: counter, help: "Messages on the bus that are no event."}
	mLastEvent  = &def{name: "last_event_timestamp_seconds", kind: gauge, help: "When the last event that was read was stored, in Unix time; 0 before the first."}

	mSnapshot = &def{name: "metrics_snapshot_timestamp_seconds", kind: gauge, help: "When the counts were last written to disk, in Unix time; 0 before that."}
	mRebuilds = &def{name: "metrics_rebuilds_total", kind: counter, labels: []string{"why"}, help: "Times that all counts were made anew from the streams: no snapshot, or a damaged one."}
	mFull     = &def{name: "metrics_series_refused_total", kind: counter, help: "Counts that went to a series with the label other because the metric has too many series."}
	mHeld     = &def{name: "metrics_folds_held", kind: gauge, help: "States of runs in memory."}
	mInfo     = &def{name: "build_info", kind: gauge, labels: []string{"version", "revision", "goversion"}, help: "1, with what this program was built from."}
)

// catalog lists every metric in the order of the documentation.
var catalog = []*def{
	mStarted, mFinished, mDuration, mLost, mResumed, mCorrected, mForgotten, mActive,
	mTurns, mTurnsDone, mTasks, mTaskTime, mAgents, mTools, mMessages, mRetries, mDenied, mLate, mStalled,
	mWaiting, mOldest, mWaitTime, mCommands, mPending, mPendingOld, mSettle, mTokens, mCost,
	mFrames, mBytes, mInvalid, mRedactions, mGaps, mGapBytes, mMissing, mRepeated, mUnreadable, mLastEvent,
	mSnapshot, mRebuilds, mFull, mHeld, mInfo,
}
