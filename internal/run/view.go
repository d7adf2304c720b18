package run

import (
	"encoding/json"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

// A View is a run's state as JSON: the public body of GET /v1/runs/{run}. Field
// names and their order are stable; fields may be added. Everything in it that
// comes from the child (names, labels, texts) is untrusted text of bounded length.
type View struct {
	Run     string `json:"run"`
	Tenant  string `json:"tenant,omitempty"`
	Dialect string `json:"dialect"`
	// State is starting, working, waiting (an ask is open), idle, done (the child
	// is gone) or lost (no word from its edge).
	State string `json:"state"`
	// WaitingFor is approval or input while State is waiting, resume where the run
	// has ended on a question.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Verdict is there when the run has ended or is lost.
	Verdict *Judgement `json:"verdict,omitempty"`
	// Provisional says that the verdict may still change: the edge was lost.
	Provisional bool `json:"provisional,omitempty"`

	Session  string        `json:"session,omitempty"` // the main one
	Sessions []SessionView `json:"sessions"`
	// Resume is the conversation that the run was told to go on with. Its id need
	// not be among Sessions.
	Resume *event.Resume `json:"resume,omitempty"`

	Versions map[string]string `json:"versions,omitempty"` // cbcast, child
	Host     string            `json:"host,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	Argv     []string          `json:"argv,omitempty"`
	Model    string            `json:"model,omitempty"`
	Mode     string            `json:"permission_mode,omitempty"`
	Sandbox  string            `json:"sandbox,omitempty"` // of codex: read-only, workspace-write, danger-full-access
	CI       map[string]string `json:"ci,omitempty"`

	// Capabilities is what the child can do, as far as it was seen.
	Capabilities *event.Capabilities `json:"capabilities,omitempty"`
	// WaitsForResume is there where the run ended on a question.
	WaitsForResume *WaitsView `json:"waits_for_resume,omitempty"`

	StartedAt *time.Time `json:"started_at,omitempty"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	LastSeq   uint64     `json:"last_seq"`

	Open      Open           `json:"open"`
	Turns     []TurnView     `json:"turns"`
	Tasks     []TaskView     `json:"tasks"`
	Asks      []AskView      `json:"asks"`
	Subagents []SubagentView `json:"subagents,omitempty"`
	Usage     UsageView      `json:"usage"`
	Result    *ResultView    `json:"result,omitempty"`
	// Checkpoints are the user messages that the child can be rewound to, the
	// latest last.
	Checkpoints []CheckpointView `json:"checkpoints,omitempty"`
	Interrupts  []InterruptView  `json:"interrupts,omitempty"`
	Commands    []CommandView    `json:"commands,omitempty"`
	Warnings    []Warning        `json:"warnings,omitempty"`
	Counts      Counts           `json:"counts"`
	Exit        *ExitView        `json:"exit,omitempty"`
	Lost        *LostView        `json:"lost,omitempty"`
	Dropped     *Dropped         `json:"dropped,omitempty"`
}

// Open counts what has begun and not ended.
type Open struct {
	Turns int `json:"turns"`
	Tasks int `json:"tasks"`
	Asks  int `json:"asks"`
	// Approvals and Questions are the asks by what they wait for.
	Approvals int `json:"approvals"`
	Questions int `json:"questions"`
	// Silent is how many of Tasks will not tell their end before the next turn:
	// CodeBuddy's background Agents, while no turn is worked on.
	Silent int `json:"silent"`
}

// Any reports whether anything is open that will tell its end.
func (o Open) Any() bool { return o.Turns > 0 || o.Tasks > o.Silent || o.Asks > 0 }

// SessionView is one conversation id seen in the run. Role is main, former (main
// before a reset), concurrent (CodeBuddy opened another one for a message) or
// agent (seen in stray init frames only).
type SessionView struct {
	ID       string `json:"id"`
	Role     string `json:"role"`
	FirstSeq uint64 `json:"first_seq"`
}

// TurnView is one user turn: the input, every result that it led to, the tasks
// it started and the turns that their ends woke.
type TurnView struct {
	N          int        `json:"n"`      // 1, 2, 3 … within the run
	State      string     `json:"state"`  // open or done
	Inputs     []uint64   `json:"inputs"` // seqs of the user messages it covers
	Origin     string     `json:"origin"` // user, or child where nothing asked for it
	StartedSeq uint64     `json:"started_seq"`
	EndedSeq   uint64     `json:"ended_seq,omitempty"` // of the last result
	StartedAt  *time.Time `json:"started_at,omitempty"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Results    int        `json:"results"`
	Wakeups    int        `json:"wakeups"` // rounds that no input asked for
	Tasks      []string   `json:"tasks,omitempty"`
	CostUSD    float64    `json:"cost_usd"`
	Tokens     Tokens     `json:"tokens"`
	Verdict    *Judgement `json:"verdict,omitempty"` // when State is done
	// Of codex: the steps of the plan as last told, the sub-agents that work for the
	// turn, and what the turn itself did.
	Phases []PhaseView `json:"phases,omitempty"`
	Agents []AgentView `json:"agents,omitempty"`
	Items  *ItemCounts `json:"items,omitempty"`
}

// TaskView is one unit of work that the child announced.
type TaskView struct {
	ID          string `json:"id"`
	Type        string `json:"type,omitempty"` // as the child says: local_workflow, Bash …
	Name        string `json:"name,omitempty"` // the wire's name of a workflow
	Label       string `json:"label,omitempty"`
	Description string `json:"description,omitempty"`
	// Status is pending, running, paused, completed, failed, killed, stopped;
	// ended (left the list of background tasks, nothing else said), not_reported
	// (CodeBuddy never reports the end of a background Agent), unknown (open when
	// the child ended).
	Status      string      `json:"status"`
	Synthesised bool        `json:"synthesised,omitempty"` // the status is ours, no frame said it
	By          string      `json:"by,omitempty"`          // what ended it: interrupt, stop_task, signal
	Turn        int         `json:"turn,omitempty"`
	ToolUseID   string      `json:"tool_use_id,omitempty"`
	StartedSeq  uint64      `json:"started_seq,omitempty"`
	EndedSeq    uint64      `json:"ended_seq,omitempty"`
	StartedAt   *time.Time  `json:"started_at,omitempty"`
	EndedAt     *time.Time  `json:"ended_at,omitempty"`
	Summary     string      `json:"summary,omitempty"`
	Error       string      `json:"error,omitempty"`
	Progress    int         `json:"progress"` // task_progress frames
	Late        int         `json:"late"`     // frames after its end
	Usage       *TaskUsage  `json:"usage,omitempty"`
	Phases      []PhaseView `json:"phases,omitempty"`
	Agents      []AgentView `json:"agents,omitempty"`
}

// TaskUsage is a task's own count, as last reported.
type TaskUsage struct {
	Tokens     int64 `json:"total_tokens"`
	ToolUses   int64 `json:"tool_uses"`
	DurationMS int64 `json:"duration_ms"`
}

// ItemCounts counts the items of a codex turn by how they ended. Unfinished are
// those whose end was never told: the turn was interrupted or failed, or the
// child ended.
type ItemCounts struct {
	Started    int `json:"started"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Declined   int `json:"declined"`
	Unfinished int `json:"unfinished"`
}

// PhaseView is one phase of a workflow, or one step of a plan.
type PhaseView struct {
	Index  int64  `json:"index"`
	Title  string `json:"title"`
	Status string `json:"status,omitempty"` // pending, inProgress, completed; codex alone says it
	// Of a workflow: how many agents of the phase are known, how many of them have
	// ended, when the first began and when the last of them ended (Unix milliseconds,
	// the child's clock; EndedMS only while all known ones have ended).
	Agents    int   `json:"agents,omitempty"`
	Ended     int   `json:"ended,omitempty"`
	StartedMS int64 `json:"started_ms,omitempty"`
	EndedMS   int64 `json:"ended_ms,omitempty"`
}

// AgentView is one agent of a workflow, from the last snapshot.
type AgentView struct {
	// Key names the agent within its task: phase and index, "/2" where CodeBuddy
	// gives no phase, with "#2" where they repeat. agent_id repeats or is empty.
	Key     string `json:"key"`
	AgentID string `json:"agent_id,omitempty"`
	Label   string `json:"label,omitempty"`
	Phase   string `json:"phase,omitempty"`
	// PhaseIndex is the Index of its phase, absent where the child names none.
	PhaseIndex *int64 `json:"phase_index,omitempty"`
	// State is start, progress, done, error, stopped (codex), or not_reported: its
	// task has ended and no frame said what became of it.
	State      string `json:"state"`
	Cached     bool   `json:"cached,omitempty"`
	Model      string `json:"model,omitempty"`
	Attempt    int64  `json:"attempt,omitempty"`
	Tokens     int64  `json:"tokens,omitempty"`
	ToolCalls  int64  `json:"tool_calls,omitempty"`
	LastTool   string `json:"last_tool,omitempty"`
	QueuedMS   int64  `json:"queued_ms,omitempty"`  // Unix milliseconds, the child's clock
	StartedMS  int64  `json:"started_ms,omitempty"` // absent while it waits for its turn
	EndedMS    int64  `json:"ended_ms,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	Error      string `json:"error,omitempty"`
	Result     string `json:"result_preview,omitempty"`
}

// SubagentView counts the frames of one sub-agent: those with one
// parent_tool_use_id. Parent is main, the tool_use id of the sub-agent that
// called it, or unattached where the call was never seen.
type SubagentView struct {
	Call     string `json:"call"` // tool_use id
	Parent   string `json:"parent"`
	Task     string `json:"task,omitempty"`
	Name     string `json:"name,omitempty"`
	Frames   int    `json:"frames"`
	FirstSeq uint64 `json:"first_seq"`
}

// Tokens counts model tokens.
type Tokens struct {
	Input       int64 `json:"input"`
	Output      int64 `json:"output"`
	CacheRead   int64 `json:"cache_read"`
	CacheCreate int64 `json:"cache_create"`
}

// UsageView is what the run used, without counting anything twice.
type UsageView struct {
	CostUSD float64 `json:"cost_usd"`
	Tokens  Tokens  `json:"tokens"`
	// IncludesEarlier says that a resumed CodeBuddy session counted on from where
	// earlier runs had left it: what they used is in Tokens, too.
	IncludesEarlier bool                  `json:"includes_earlier,omitempty"`
	Models          map[string]ModelUsage `json:"models,omitempty"`
}

// ModelUsage is the share of one model.
type ModelUsage struct {
	Tokens
	CostUSD float64 `json:"cost_usd"`
}

// ResultView is the last result of the run.
type ResultView struct {
	Seq       uint64          `json:"seq"`
	Subtype   string          `json:"subtype"`
	IsError   bool            `json:"is_error"`
	Text      string          `json:"text,omitempty"` // cut at 4 KiB
	Truncated bool            `json:"truncated,omitempty"`
	Errors    []string        `json:"errors,omitempty"`
	Structure json.RawMessage `json:"structured_output,omitempty"` // up to 64 KiB, else left out
}

// InterruptView is one interrupt or stop_task on the child's stdin, with its
// three facts: asked, acked, ended.
type InterruptView struct {
	ID       string `json:"id"`
	What     string `json:"what"` // interrupt, stop_task
	By       string `json:"by"`   // host, cbcast
	Task     string `json:"task,omitempty"`
	AskedSeq uint64 `json:"asked_seq"`
	AckedSeq uint64 `json:"acked_seq,omitempty"`
	EndedSeq uint64 `json:"ended_seq,omitempty"` // the first effect
	Effect   string `json:"effect,omitempty"`    // turn, task, ask
	Error    string `json:"error,omitempty"`
}

// CheckpointView is a user message that the child can be rewound to. CodeBuddy
// names them; of Claude Code they are the messages whose uuid is known, where it
// was told to keep files.
type CheckpointView struct {
	ID    string     `json:"id"` // for rewind and rewind_files
	Seq   uint64     `json:"seq"`
	At    *time.Time `json:"at,omitempty"`
	Turn  int        `json:"turn,omitempty"`
	Files int        `json:"files,omitempty"` // that CodeBuddy keeps for it
}

// CommandView is a command from the bus and the facts known about it.
type CommandView struct {
	ID    string     `json:"id"`
	Name  string     `json:"name"`
	State string     `json:"state"` // the latest fact
	Facts []FactView `json:"facts"`
}

// FactView is one step of a command's life.
type FactView struct {
	Fact   string     `json:"fact"`
	Reason string     `json:"reason,omitempty"`
	Seq    uint64     `json:"seq,omitempty"` // 0 for facts that a relay wrote
	At     *time.Time `json:"at,omitempty"`
}

// Warning is something that does not fit and changed no verdict.
type Warning struct {
	Seq  uint64 `json:"seq"`
	What string `json:"what"`
	Text string `json:"text,omitempty"`
}

// Counts are simple totals. Frames that repeat (same uuid) count once in
// Messages and ToolCalls, and each time in Frames and Types.
type Counts struct {
	Frames         map[string]int `json:"frames"` // by stream
	Types          map[string]int `json:"types"`  // by ce-type without "dev.cbcast.<dialect>."
	Messages       int            `json:"messages"`
	ToolCalls      int            `json:"tool_calls"`
	Denied         int            `json:"denied"`
	Retries        int            `json:"retries"`
	Interrupts     int            `json:"interrupts"`
	AcksUnknown    int            `json:"acks_unknown"`
	AcksRepeated   int            `json:"acks_repeated"`
	Repeats        int            `json:"repeats"` // frames with a uuid seen before
	Ambiguous      int            `json:"ambiguous"`
	Late           int            `json:"late"`
	AgentsFailed   int            `json:"agents_failed"`
	Redacted       int            `json:"redacted"` // masked spans
	GapFrames      int64          `json:"gap_frames"`
	GapBytes       int64          `json:"gap_bytes"`
	Missing        uint64         `json:"missing"` // seqs that were not delivered to this fold
	InputsFolded   int            `json:"inputs_folded"`
	InputsDropped  int            `json:"inputs_cancelled"`
	InputsRepeated int            `json:"inputs_repeated"`
	SessionsIgnore int            `json:"sessions_ignored"`
}

// ExitView says how the child ended.
type ExitView struct {
	Seq        uint64       `json:"seq"`
	Code       *int         `json:"code,omitempty"` // absent where there was no exit to see
	Signal     string       `json:"signal,omitempty"`
	Signals    []SignalView `json:"signals,omitempty"` // passed on to the child, in order
	Ended      string       `json:"ended,omitempty"`   // what of ours ended it: kill_after_result, timeout
	Reason     string       `json:"reason,omitempty"`  // why there is no code: eof, import, edge_died
	Complete   bool         `json:"complete"`
	Leftovers  int          `json:"leftovers,omitempty"`
	DurationMS int64        `json:"duration_ms,omitempty"`
}

// SignalView is a signal that was passed on to the child, and who sent it:
// parent, command or cbcast.
type SignalView struct {
	Signal string     `json:"signal"`
	From   string     `json:"from"`
	At     *time.Time `json:"at,omitempty"`
}

// LostView says that the edge went silent.
type LostView struct {
	Reason  string     `json:"reason,omitempty"`
	At      *time.Time `json:"at,omitempty"`
	Resumed bool       `json:"resumed,omitempty"`
}

// Dropped counts what a View no longer lists because of its bounds.
type Dropped struct {
	Turns       int            `json:"turns,omitempty"`
	Tasks       int            `json:"tasks,omitempty"`
	Asks        int            `json:"asks,omitempty"`
	Checkpoints int            `json:"checkpoints,omitempty"`
	Verdicts    map[string]int `json:"verdicts,omitempty"` // of the dropped turns
}
