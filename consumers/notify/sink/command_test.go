package sink_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func TestCommand(t *testing.T) {
	var got []byte
	code, stderr, fail := 0, "", error(nil)
	exec := func(ctx context.Context, argv, env []string, stdin []byte) (int, []byte, error) {
		got = stdin
		if code == -2 {
			<-ctx.Done()
			return -1, []byte(stderr), ctx.Err()
		}
		return code, []byte(stderr), fail
	}
	c, err := sink.NewCommand(sink.CommandConfig{Name: "page", Argv: []string{"/bin/page"}, Env: []string{"PATH=/bin", "TOKEN=SECRETPART"}, Exec: exec})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		code   int
		stderr string
		err    error
		want   sink.Verdict
		says   string
	}{
		{0, "", nil, sink.Delivered, ""},
		{75, "busy", nil, sink.Retry, `exit code 75): "busy"`},
		{3, "no route\x1b[2J with SECRETPART", nil, sink.Refused, `exit code 3: "no route[U+001B][2J with …"`},
		{-1, "", nil, sink.Unknown, "by a signal"},
		{-1, "", errors.New("exec: SECRETPART not found"), sink.Refused, "did not run"},
	} {
		code, stderr, fail = x.code, x.stderr, x.err
		o := c.Send(t.Context(), notice(sink.Finished))
		if o.Verdict != x.want || x.says != "" && !strings.Contains(fmt.Sprint(o.Err), x.says) {
			t.Errorf("%d: %s, %v", x.code, o.Verdict, o.Err)
		}
		holdsNone(t, "the error", fmt.Sprint(o.Err), "SECRETPART")
	}
	code = -2
	killed, err := sink.NewCommand(sink.CommandConfig{Name: "page", Argv: []string{"/bin/page"}, Timeout: time.Millisecond, Exec: exec})
	if err != nil {
		t.Fatal(err)
	}
	if o := killed.Send(t.Context(), notice(sink.Finished)); o.Verdict != sink.Unknown || !strings.Contains(fmt.Sprint(o.Err), "killed after 1ms") {
		t.Errorf("killed: %+v", o)
	}
	code = 0
	var p sink.Payload
	if err := json.Unmarshal(got, &p); err != nil || p.Run != testRun || !bytes.HasSuffix(got, []byte("}\n")) {
		t.Errorf("stdin: %v %s", err, got)
	}
	got = nil
	if o := c.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true })); o.Verdict != sink.Unknown || got != nil {
		t.Errorf("run again: %+v", o)
	}
	for _, cfg := range []sink.CommandConfig{{Exec: exec}, {Argv: []string{"x"}}, {Argv: []string{"x"}, Exec: exec, Env: []string{"CBCAST_TOKEN=1"}}, {Argv: []string{"x"}, Exec: exec, Env: []string{"none"}}} {
		if _, err := sink.NewCommand(cfg); err == nil {
			t.Errorf("taken: %+v", cfg)
		}
	}
}
