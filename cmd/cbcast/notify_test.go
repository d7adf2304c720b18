package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/consume"
)

// program runs a command with nothing of this machine but what environ says.
func program(t *testing.T, environ []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code, _ = runMain(t.Context(), append([]string{"cbcast"}, args...), append([]string{"HOME=" + t.TempDir()}, environ...), stdio{out: &o, err: &e})
	return code, o.String(), e.String()
}

// rulesFile writes a rules file.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "notify.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const logRules = "version: 1\ndestinations:\n  journal: {type: log}\nrules: [{name: a, to: [journal]}]\n"

// What can never work is said once, before anything is started: by up, and by the
// program alone.
func TestStaticErrors(t *testing.T) {
	secret := "version: 1\ndestinations:\n  hook: {type: webhook, url: env:NO_SUCH_HOOK}\nrules: [{name: a, to: [hook]}]\n"
	form := "version: 1\ndestinations:\n  hook: {type: webhook, url: \"https://example.com/\", secrets: [\"hidden-9f3\"]}\nrules: [{name: a, to: [hook]}]\n"
	for name, tc := range map[string]struct {
		part string
		env  []string
		want string
	}{
		"variable of a secret": {"notify", []string{"CBCAST_NOTIFY_RULES=" + rulesFile(t, secret)}, "line 3, column 30: destination hook: env:NO_SUCH_HOOK stands for nothing here: the variable NO_SUCH_HOOK is not set"},
		"form of a secret":     {"notify", []string{"CBCAST_NOTIFY_RULES=" + rulesFile(t, form)}, "it must begin with whsec_ or whsk_"},
		"no rules file":        {"notify", []string{"CBCAST_NOTIFY_RULES=" + filepath.Join(t.TempDir(), "none.yaml")}, "no such file"},
		"wrong rules":          {"notify", []string{"CBCAST_NOTIFY_RULES=" + rulesFile(t, "version: 7\n")}, "version is 7: write 1"},
		"notify without rules": {"notify", []string{"CBCAST_UP_WITH=notify"}, "CBCAST_NOTIFY_RULES"},
		"archive without one":  {"archive", []string{"CBCAST_UP_WITH=archive"}, "archive: CBCAST_ARCHIVE_DEST is not set"},
		"archive that is none": {"archive", []string{"CBCAST_ARCHIVE_DEST=ftp://x/y"}, "CBCAST_ARCHIVE_DEST"},
		"trace without one":    {"trace", []string{"CBCAST_UP_WITH=trace"}, "trace: no collector: set OTEL_EXPORTER_OTLP_ENDPOINT"},
		"trace that is none":   {"trace", []string{"CBCAST_TRACE_ENDPOINT=collector"}, "CBCAST_TRACE_ENDPOINT is no http or https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"up", tc.part} {
				code, out, errs := program(t, append(tc.env, "CBCAST_NATS_URL=nats://127.0.0.1:1"), command)
				if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) || strings.Contains(errs, "hidden-9f3") {
					t.Errorf("%s: exit %d, want %d and %q\n%s\n%s", command, code, exitUsage, tc.want, out, errs)
				}
			}
		})
	}
}

// Why a part does not run stands in one line, and shows as a metric.
func TestPartsShown(t *testing.T) {
	a := &app{cfg: config{With: []string{"notify"}}}
	cs := a.newConsumers(nil, nil)
	cs.all[0].set(nil, errors.New("one\ntwo\nthree"))
	if got := cs.ready()["notify"].Error(); got != "one (and 2 more)" {
		t.Errorf("got %q", got)
	}
	cs.all[0].set(nil, errors.New(strings.Repeat("ä", maxBrief)))
	if got := cs.ready()["notify"].Error(); got != strings.Repeat("ä", maxBrief/2)+"…" {
		t.Errorf("got %q", got)
	}
	families, err := cs.gather().Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "cbcast_consumer_ready" {
		t.Fatalf("%v %v", families, err)
	}
	if m := families[0].GetMetric()[0]; m.GetGauge().GetValue() != 0 || m.GetLabel()[0].GetValue() != "cbcast-notify" {
		t.Errorf("got %v", m)
	}
}

// A test of a destination of the type log is a line in the log.
func TestNotifyTestLog(t *testing.T) {
	file := rulesFile(t, logRules)
	code, out, errs := program(t, []string{"CBCAST_NOTIFY_RULES=" + file}, "notify", "--test", "journal")
	if code != 0 || !strings.Contains(out, "journal: delivered") || !strings.Contains(errs, "destination=journal") || !strings.Contains(errs, "kind=test") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}

// A program that another process runs already says who, and prints no address.
func TestDirUsed(t *testing.T) {
	err := dirUsed("metrics", fmt.Errorf("run: %w", &consume.DirUsedError{Dir: "/d", PID: os.Getpid()}))
	for _, want := range []string{fmt.Sprintf("process %d", os.Getpid()), "runs metrics already", "CBCAST_UP_WITH", "CBCAST_STATE_DIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := dirUsed("notify", fmt.Errorf("lock: %w", notify.ErrBusy)); !strings.Contains(err.Error(), "most likely cbcast up") {
		t.Errorf("got %v", err)
	}
	if other := errors.New("x"); !errors.Is(dirUsed("notify", other), other) || dirUsed("notify", nil) != nil {
		t.Error("another error is changed")
	}
}

// A signal that was ignored from the beginning is said once, and only then.
func TestHangupIgnored(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	heard := func() { // however this process was started; Reset does not end Ignore
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		signal.Stop(c)
	}
	heard()
	defer heard()
	hangupIgnored(log)
	signal.Ignore(syscall.SIGHUP)
	first := out.Len()
	hangupIgnored(log)
	if first != 0 || !strings.Contains(out.String(), "SIGHUP is ignored") {
		t.Errorf("got %q", &out)
	}
}

// Enabling a destination needs none of its secrets.
func TestNotifyEnableWithoutSecrets(t *testing.T) {
	file := rulesFile(t, "version: 1\ndestinations:\n  hook: {type: webhook, url: env:NO_SUCH_HOOK}\nrules: [{name: a, to: [hook]}]\n")
	code, out, errs := program(t, []string{"CBCAST_NOTIFY_RULES=" + file}, "notify", "enable", "hook")
	if code != 0 || !strings.HasPrefix(out, "hook is enabled") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	code, _, errs = program(t, []string{"CBCAST_NOTIFY_RULES=" + file}, "notify", "replay", "--dead", "--dest", "hok")
	if code != exitFailed || !strings.Contains(errs, "hok: no such destination in the rules; they are hook") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

// To forget needs no rules, and makes no directory.
func TestNotifyForgetNothing(t *testing.T) {
	state := t.TempDir()
	code, out, errs := program(t, []string{"CBCAST_STATE_DIR=" + state}, "notify", "forget", "last")
	if code != exitFailed || out != "" || !strings.Contains(errs, "last: no notice of such a run is kept") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(state, "notify")); !os.IsNotExist(err) {
		t.Errorf("there is a directory: %v", err)
	}
}

// Who was told, and what stays, is said for people.
func TestNotifyForgotten(t *testing.T) {
	var out bytes.Buffer
	a := &app{io: stdio{out: &out}}
	a.cfg.StateDir, a.cfg.MaxAge = "/state", 24*time.Hour
	a.sayForgotten(&notify.Forgotten{Run: "r1\x1b", Tenant: "acme", Last: time.Now(), Waiting: 1, Sent: 2, Sending: 1, Told: []string{"chat (channel C1, message 1.2)"}})
	for _, want := range []string{"run r1␛ of tenant acme in /state/notify: 1 notice waiting, 0 notices given up, 2 copies", "1 notice of it is being sent", "told and not taken back: chat (channel C1, message 1.2)", "on the bus until 24h0m0s", "archive erase"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
