package recover

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
)

// A hub is the local store of a test, without any NATS server from outside.
type hub struct {
	t   *testing.T
	dir string
}

func (h hub) start(env []string, args ...string) (*exec.Cmd, io.WriteCloser, *bytes.Buffer) {
	h.t.Helper()
	c := exec.Command(program.Path, args...)
	c.Env = append([]string{
		"HOME=" + h.dir, "XDG_STATE_HOME=" + h.dir, "PATH=" + os.Getenv("PATH"),
	}, env...)
	in, err := c.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c, in, &said
}

// await returns what the hub's file says once it is as wanted.
func (h hub) await(what string, ok func(natsd.Info) bool) natsd.Info {
	var i natsd.Info
	w := world{t: h.t}
	w.until(what, func() bool {
		var err error
		i, err = natsd.Find(context.Background(), h.dir+"/cbcast")
		return err == nil && ok(i)
	})
	return i
}

// A relay with access settings is not continued at its address by a run that has
// none, and is not taken for one that such a run serves.
func TestGuardedRelay(t *testing.T) {
	h := hub{t, t.TempDir()}
	closed := []string{"CBCAST_RELAY_CLOSED=true", "CBCAST_RELAY_ADDR=127.0.0.1:0"}
	up, _, _ := h.start(closed, "up")
	at := h.await("up serves", func(i natsd.Info) bool { return i.PID == up.Process.Pid && i.Relay != "" })
	if !at.Guarded {
		t.Fatalf("the hub's file says %+v", at)
	}
	log := h.dir + "/run.log"
	run, in, _ := h.start([]string{"CBCAST_LOG=" + log}, "run", "--", "sh", "-c", "read go")
	_ = up.Process.Signal(syscall.SIGTERM)
	_ = up.Wait()
	after := h.await("the run has the store", func(i natsd.Info) bool { return i.PID == run.Process.Pid })
	if !after.Guarded || after.Relay != at.Relay {
		t.Errorf("the hub's file says %+v", after)
	}
	w := world{t: t}
	w.until("the run says that it does not serve", func() bool {
		b, _ := os.ReadFile(log)
		return bytes.Contains(b, []byte("relay not served"))
	})
	u, err := url.Parse(at.Relay)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", u.Host); err == nil {
		_ = c.Close()
		t.Errorf("somebody listens at %s", u.Host)
	}
	_ = in.Close()
	_ = run.Wait()
}

func TestGuardedUpBesideAnOpenRelay(t *testing.T) {
	h := hub{t, t.TempDir()}
	run, in, _ := h.start([]string{"CBCAST_RELAY_ADDR=127.0.0.1:0"}, "run", "--", "sh", "-c", "read go")
	open := h.await("the run serves", func(i natsd.Info) bool { return i.PID == run.Process.Pid && i.Relay != "" })
	up, _, said := h.start([]string{"CBCAST_RELAY_CLOSED=true"}, "up")
	if err := up.Wait(); err == nil || up.ProcessState.ExitCode() != 2 || !strings.Contains(said.String(), open.Relay) ||
		!strings.Contains(said.String(), "cbcast.env") {
		t.Errorf("up ended with %v and said %s", err, said)
	}
	_ = in.Close()
	_ = run.Wait()
}
