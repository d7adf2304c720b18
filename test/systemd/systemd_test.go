// Package systemd tests the units of deploy/systemd: with systemd's own checker where it is
// there, and the program under a service manager's socket.
package systemd

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

const units = "../../deploy/systemd"

// systemd-analyze finds nothing wrong with any unit, and what is exposed of those with a
// user of their own stays below 2.5 of 10.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here; Debian's package systemd has it")
	}
	for _, kind := range []string{"user", "system"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(units, kind))); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.*"))
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.IsDir() {
				continue
			}
			checked++
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(b), "/usr/local/bin/cbcast", program.Path)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want := map[string]int{"user": 1, "system": 6}[kind]; checked != want {
			t.Fatalf("%d units in %s, want %d", checked, kind, want)
		}
		for _, file := range files {
			base := filepath.Base(file)
			if strings.HasSuffix(base, ".d") {
				continue
			}
			name := strings.Replace(base, "@.", "@ci.", 1) // an instance
			args := []string{"verify", "--recursive-errors=no", "--man=no", name}
			if kind == "user" {
				args = append([]string{"--user"}, args...)
			}
			run(t, analyze, dir, args...)
			if kind == "system" && strings.HasSuffix(base, ".service") && !strings.Contains(base, "@") {
				run(t, analyze, dir, "security", "--offline=yes", "--threshold=25", "--no-pager", filepath.Join(dir, base))
			}
		}
	}
}

func run(t *testing.T, program, dir string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "XDG_RUNTIME_DIR="+dir)
	out, err := c.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Unknown") {
		t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
	}
}

// The programs say to the manager's socket that they are ready, that they live, and that
// they stop.
func TestNotify(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, args := range [][]string{{"up"}, {"metrics"}} {
		t.Run(args[0], func(t *testing.T) {
			sock := filepath.Join(dir, args[0])
			ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			c := exec.Command(program.Path, args[:1]...)
			c.Env = []string{
				"HOME=" + dir, "CBCAST_STATE_DIR=" + filepath.Join(dir, "state-"+args[0]), "CBCAST_RELAY_ADDR=127.0.0.1:0",
				"CBCAST_METRICS_ADDR=127.0.0.1:0", "NOTIFY_SOCKET=" + sock, "WATCHDOG_USEC=300000",
			}
			var log strings.Builder
			c.Stdout, c.Stderr = &log, &log
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Process.Kill() }()
			said := func() string {
				_ = ln.SetReadDeadline(time.Now().Add(2 * time.Minute))
				b := make([]byte, 4096)
				n, err := ln.Read(b)
				if err != nil {
					_ = c.Process.Kill()
					_ = c.Wait()
					t.Fatalf("%v\n%s", err, &log)
				}
				return string(b[:n])
			}
			if got := said(); !strings.HasPrefix(got, "READY=1\nSTATUS="+map[string]string{"up": "relay", "metrics": "metrics"}[args[0]]+" http://127.0.0.1:") {
				t.Errorf("the first word is %q", got)
			}
			for range 3 {
				if got := said(); got != "WATCHDOG=1" {
					t.Errorf("a sign of life is %q", got)
				}
			}
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			got := said()
			for got == "WATCHDOG=1" {
				got = said()
			}
			if got != "STOPPING=1" {
				t.Errorf("the last word is %q", got)
			}
			var ee *exec.ExitError
			if err := c.Wait(); errors.As(err, &ee) {
				t.Errorf("%v\n%s", err, &log)
			}
		})
	}
}
