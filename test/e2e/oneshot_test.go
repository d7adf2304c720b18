package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"testing"

	"github.com/cbcast/cbcast/test/mockmodel"
)

// A one-shot run that prints one JSON document has no frames: its output goes
// through as it is, and the verdict comes from the document.
func TestOneShot(t *testing.T) {
	for name, c := range map[string]struct {
		agent func(*testing.T, *model, ...string) program
		tap   bool // a pipe to cbcast tap, else cbcast run
	}{
		"claude piped to tap": {claude, true},
		"claude wrapped":      {claude, false},
		"cbc piped to tap":    {cbc, true},
		"cbc wrapped":         {cbc, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, mockmodel.Turn{Name: "hello", Steps: []mockmodel.Step{say("hello from the model")}})
			h := up(t)
			p := c.agent(t, m, "-p", "say hello", "--output-format", "json")
			argv := append([]string{p.path}, p.args...)
			var wrote, got bytes.Buffer
			if c.tap {
				tap := exec.CommandContext(t.Context(), cbcast(), "tap", "--dialect", string(p.dialect))
				tap.Env = append(append([]string{}, p.env...), h.env()...)
				tap.Stdout = &got
				in, err := tap.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := tap.Start(); err != nil {
					t.Fatal(err)
				}
				oneShot(t, p, argv, nil, io.MultiWriter(&wrote, in))
				_ = in.Close()
				if err := tap.Wait(); err != nil {
					t.Fatal("tap: ", err)
				}
				if !bytes.Equal(wrote.Bytes(), got.Bytes()) {
					t.Errorf("tap passed on\n%s\nof\n%s", got.Bytes(), wrote.Bytes())
				}
			} else {
				oneShot(t, p, append([]string{cbcast(), "run", "--dialect", string(p.dialect), "--"}, argv...), h.env(), &got)
			}
			if !json.Valid(got.Bytes()) || !bytes.Contains(got.Bytes(), []byte("hello from the model")) {
				t.Errorf("the output is %s", got.Bytes())
			}
			run := h.theRun()
			events := h.follow(run)
			<-events.done // it ends with the run
			checkState(t, h, run, "success")
			if st := h.show(run); st.Dialect != string(p.dialect) {
				t.Errorf("the run's dialect is %q, want %q", st.Dialect, p.dialect)
			}
		})
	}
}

// oneShot runs an agent that reads nothing to its end.
func oneShot(t *testing.T, p program, argv, env []string, stdout io.Writer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(append([]string{}, p.env...), env...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, stderr.Bytes())
	}
}
