package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSupervisorSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{filepath.Join(dir, "s"), "@" + dir} {
		ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a := &app{environ: []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=3600000000", "WATCHDOG_PID=" + strconv.Itoa(os.Getpid())}}
		stop := a.supervised(t.Context(), slog.New(slog.DiscardHandler), "serving", func(context.Context) error { return nil })
		got := []string{read(t, ln), read(t, ln)}
		stop()
		got = append(got, read(t, ln))
		if diff := cmp.Diff([]string{"READY=1\nSTATUS=serving", "WATCHDOG=1", "STOPPING=1"}, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func read(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestSupervisorEnvironment(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		heard   bool
		watch   time.Duration
		bad     bool
	}{
		{name: "none"},
		{name: "no watchdog", environ: []string{"NOTIFY_SOCKET=/s"}, heard: true},
		{name: "watchdog", environ: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=2000000"}, heard: true, watch: 2 * time.Second},
		{name: "of another process", environ: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=2000000", "WATCHDOG_PID=1"}, heard: true},
		{name: "no number", environ: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=x"}, heard: true},
		{name: "no path", environ: []string{"NOTIFY_SOCKET=s"}, bad: true},
	} {
		s, err := (&app{environ: c.environ}).supervisor()
		if (err != nil) != c.bad || (s.send != nil) != c.heard || s.watch != c.watch {
			t.Errorf("%s: heard %v, watch %s, error %v", c.name, s.send != nil, s.watch, err)
		}
	}
}

// A process that does not answer for itself gives no sign of life, and gives it again
// when it answers.
func TestSupervisorWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		begin := time.Now()
		s := supervisor{watch: 30 * time.Second, send: func(state string) error {
			said = append(said, time.Since(begin).String()+" "+state)
			return nil
		}}
		stop := s.run(t.Context(), slog.New(slog.DiscardHandler), "up", func(ctx context.Context) error {
			switch at := time.Since(begin); {
			case at < 15*time.Second || at > 35*time.Second:
				return nil
			case at < 25*time.Second:
				return errors.New("no answer")
			}
			<-ctx.Done() // it hangs; that is bounded
			return ctx.Err()
		})
		time.Sleep(55 * time.Second)
		synctest.Wait()
		stop()
		want := []string{"0s READY=1\nSTATUS=up", "0s WATCHDOG=1", "10s WATCHDOG=1", "40s WATCHDOG=1", "50s WATCHDOG=1", "55s STOPPING=1"}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
