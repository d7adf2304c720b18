package run_test

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// history folds a recording and returns the ids of the checkpoints each time they
// changed, the first time none.
func history(t *testing.T, name string) (s *run.State, sets [][]string) {
	t.Helper()
	c, err := capture.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s = run.New("r")
	for _, e := range capture.Events(c, "t", "r") {
		s.Apply(e)
		var ids []string
		for _, c := range s.View().Checkpoints {
			ids = append(ids, c.ID)
		}
		if len(sets) == 0 || !slices.Equal(sets[len(sets)-1], ids) {
			sets = append(sets, ids)
		}
	}
	return s, sets
}

// The messages that a child can be rewound to, as its recordings show: those that
// a rewind_files or a rewind named with success, and none after a rewind of the
// conversation.
func TestCheckpoints(t *testing.T) {
	for name, want := range map[string][][]string{
		"cbc-2.163.0/rewind": {
			nil,
			{"01a22b5d-0152-7e6c-99a7-b0279c494232"},
			{"01a22b5d-0152-7e6c-99a7-b0279c494232", "01a22b5d-0359-7e05-b466-a4ad1e095f61"},
			nil,
		},
		"claude-2.1.220/f0-rewind-files": {
			nil,
			{"00000000-0000-4000-8000-000000000001"},
			{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"},
		},
	} {
		_, got := history(t, name)
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// A checkpoint is shown with its turn and the files that are kept for it.
func TestCheckpointView(t *testing.T) {
	c, err := capture.Load("cbc-2.163.0/rewind-full")
	if err != nil {
		t.Fatal(err)
	}
	s := run.New("r")
	var most []run.CheckpointView
	for _, e := range capture.Events(c, "t", "r") {
		s.Apply(e)
		if l := s.View().Checkpoints; len(l) >= len(most) {
			most = l
		}
	}
	for i := range most {
		most[i].Seq, most[i].At = 0, nil
	}
	want := []run.CheckpointView{
		{ID: "01a22b60-b637-7ac2-888a-7150fb3ee3f0", Turn: 1, Files: 1},
		{ID: "01a22b60-b7dc-74ed-a211-2f5bcbeacd07", Turn: 2, Files: 1},
	}
	if d := gocmp.Diff(want, most); d != "" {
		t.Errorf("checkpoints (-want +got):\n%s", d)
	}
	if l := s.View().Checkpoints; len(l) != 0 {
		t.Errorf("after the rewind: %v", l)
	}
}

// Mode and model follow what the child answers, also to its host.
func TestModeAndModel(t *testing.T) {
	for _, tt := range []struct{ name, mode, model string }{
		{"cbc-2.163.0/controls", "default", "custom-local:mock-model"}, // its last init says so
		{"claude-2.1.220/21-control-misc", "default", "no-such-model"},
	} {
		c, err := capture.Load(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		s := run.New("r")
		var modes, models []string
		for _, e := range capture.Events(c, "t", "r") {
			s.Apply(e)
			if m := s.Mode(); m != "" && (len(modes) == 0 || modes[len(modes)-1] != m) {
				modes = append(modes, m)
			}
			models = append(models, s.Model())
		}
		if s.Mode() != tt.mode || s.Model() != tt.model {
			t.Errorf("%s: mode %q, model %q; want %q, %q", tt.name, s.Mode(), s.Model(), tt.mode, tt.model)
		}
		if !slices.Contains(modes, "plan") || !slices.Contains(modes, "acceptEdits") {
			t.Errorf("%s: modes %v", tt.name, modes)
		}
		if !slices.ContainsFunc(models, func(m string) bool { return strings.HasPrefix(m, "no-such") }) {
			t.Errorf("%s: models %v", tt.name, slices.Compact(models))
		}
	}
}

// What a child says it does not know is no longer said to be obeyed: CodeBuddy
// 2.117 does not name its version.
func TestLacks(t *testing.T) {
	s, _ := history(t, "cbc-2.117.0/rewind")
	if got := s.Lacks("rewind"); got != "Unknown control request subtype: rewind" {
		t.Errorf("Lacks = %q", got)
	}
	want := []string{"interrupt", "message", "steer", "set_permission_mode", "set_model"}
	if d := gocmp.Diff(want, s.Summary().Commands); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
}

// A Claude Code that keeps no files says so, and has no checkpoints then.
func TestNoCheckpoints(t *testing.T) {
	_, sets := history(t, "claude-2.1.220/21-control-misc")
	if last := sets[len(sets)-1]; last != nil {
		t.Errorf("checkpoints: %v", last)
	}
}

// What became of a message, by its uuid.
func TestMessageState(t *testing.T) {
	const id = "00000000-0000-4000-8000-00000000000"
	for _, tt := range []struct {
		name string
		want map[string]run.MessageState
	}{
		{"claude-2.1.220/06-command-lifecycle", map[string]run.MessageState{
			id + "1": {Known: true, Life: "completed", Turn: 1, Done: true},
			id + "2": {Known: true, Life: "completed", Turn: 2, Done: true},
			id + "3": {Known: true, Life: "cancelled"},
			id + "9": {},
		}},
		{"claude-2.1.220/58-interrupt-cancel-queued", map[string]run.MessageState{
			id + "1": {Known: true, Life: "cancelled", Turn: 1, Done: true, Aborted: true},
			id + "2": {Known: true, Life: "cancelled"},
		}},
		{"claude-2.1.220/j9-fold-midturn", map[string]run.MessageState{
			id + "1": {Known: true, Life: "completed", Turn: 1, Done: true},
			id + "2": {Known: true, Life: "completed", Turn: 1, Done: true},
		}},
		{"cbc-2.163.0/rewind", map[string]run.MessageState{
			"22222222-2222-4222-8222-222222222222": {Known: true, Turn: 2, Done: true},
		}},
	} {
		s, _ := history(t, tt.name)
		for uuid, want := range tt.want {
			if d := gocmp.Diff(want, s.Message(uuid)); d != "" {
				t.Errorf("%s %s (-want +got):\n%s", tt.name, uuid, d)
			}
		}
	}
}

// No more than the latest are kept, and the others counted.
func TestCheckpointsBounded(t *testing.T) {
	s := run.New("r")
	for i := range uint64(100) {
		s.Apply(&event.Event{
			Run: "r", Seq: i + 1, Type: "dev.cbcast.cbc.file_history_snapshot", Stream: event.Out, ContentType: event.JSON,
			Data: []byte(`{"type":"file-history-snapshot","snapshot":{"messageId":"m` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `","trackedFileBackups":{}}}`),
		})
	}
	v := s.View()
	if n := len(v.Checkpoints); n != 64 || v.Checkpoints[63].ID != "m99" || v.Dropped == nil || v.Dropped.Checkpoints != 36 {
		t.Errorf("%d checkpoints, dropped %+v", n, v.Dropped)
	}
}
