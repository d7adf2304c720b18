package notify_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// noActor does nothing that is clicked.
type noActor struct{}

func (noActor) Ask(context.Context, string, string) (*run.AskView, error) {
	return nil, errors.ErrUnsupported
}

func (noActor) Answer(context.Context, string, string, event.Answer, string) (sink.Acted, error) {
	return sink.Acted{}, errors.ErrUnsupported
}

func (noActor) Interrupt(context.Context, string, string, string, string) (sink.Acted, error) {
	return sink.Acted{}, errors.ErrUnsupported
}

// holds lists the files below dir that have one of the words, in their text or name.
func holds(t *testing.T, dir string, words ...string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, w := range words {
			if strings.Contains(string(data), w) || strings.Contains(path, w) {
				name, _ := filepath.Rel(dir, path)
				files = append(files, name)
				break
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const forgetRules = `
version: 1
destinations:
  hook: {type: webhook, url: $URL/hook, allow: [127.0.0.1]}
  gone: {type: webhook, url: $URL/gone, allow: [127.0.0.1], retry: {ladder: [1ms, 1ms]}}
  held: {type: webhook, url: $URL/held, allow: [127.0.0.1]}
  chat: {type: slack, token: xoxb-1, channel: C1, api: $URL/slack, signing_secret: s3cret, users: {U1: [answer]}, allow: [127.0.0.1]}
rules:
  - {name: all, to: [hook, gone], continue: true}
  - {name: later, match: {kind: [finished, failed]}, to: [held], digest: 24h, continue: true}
  - {name: asks, match: {kind: waiting}, to: [chat], waiting: {remind: [1h]}}
`

// What notify keeps of a run goes, while it runs; of other runs all of it stays. Nothing is
// told of the run any more: not when it goes on, and not when its events come again.
func TestForget(t *testing.T) {
	r := receive(t)
	r.reply = func(w http.ResponseWriter, q *http.Request, _ int) {
		switch {
		case q.URL.Path == "/gone":
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(q.URL.Path, "/slack"):
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
	b := serve(t)
	o := notify.Options{Bus: b, Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, r, forgetRules)}, Actor: noActor{}}
	n, stop := start(t, o)
	const one, other = "run-aaaa-1111", "run-bbbb-2222"
	first := []string{initLine, prompt, askLine("q1", "echo WORDONE")}
	publish(t, b, one, script(one, first...))
	publish(t, b, other, script(other, initLine, prompt, askLine("q1", "echo WORDTWO"), done, "exit 0"))
	waitMetric(t, n, "cbcast_notifications_total{destination=gone,kind=finished,outcome=dead} 1")
	waitMetric(t, n, "cbcast_notifications_total{destination=gone,kind=waiting,outcome=dead} 1")
	waitMetric(t, n, "cbcast_notifications_failed_total{destination=chat,reason=unknown} 1")
	r.wait(t, "both runs", func(all []got) bool {
		return slices.ContainsFunc(all, func(g got) bool { return g.Path == "/hook" && g.Run == one }) &&
			slices.ContainsFunc(all, func(g got) bool { return g.Path == "/hook" && g.Run == other && g.Kind == "finished" })
	})
	waitMetric(t, n, "cbcast_notifications_total{destination=hook,kind=finished,outcome=delivered} 1")
	before := holds(t, o.Dir, one, "WORDONE")
	for _, want := range []string{"outbox.log", "told/", "undelivered/", "sent/", "slack-chat/"} {
		if !slices.ContainsFunc(before, func(f string) bool { return strings.HasPrefix(f, want) }) {
			t.Fatalf("nothing of the run in %s, only in %v", want, before)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if _, err := notify.ForgetHere(o.Dir, time.Hour, notify.Forget{Run: one}); !errors.Is(err, notify.ErrBusy) {
		t.Fatalf("a directory in use: %v", err)
	}
	if _, err := notify.Ask(ctx, o.Dir, notify.Request{Forget: &notify.Forget{Run: "run-"}}); err == nil || !strings.Contains(err.Error(), "fits 2 runs") {
		t.Errorf("two runs at once: %v", err)
	}
	if _, err := notify.Ask(ctx, o.Dir, notify.Request{Forget: &notify.Forget{Run: "run-cccc"}}); err == nil || !strings.Contains(err.Error(), "no notice of such a run") {
		t.Errorf("a run that nothing is known of: %v", err)
	}
	answer, err := notify.Ask(ctx, o.Dir, notify.Request{Forget: &notify.Forget{Run: "run-aaaa"}})
	if err != nil {
		t.Fatal(err)
	}
	f := answer.Forgot
	if f == nil || f.Run != one || f.Tenant != tenant || f.Waiting != 1 || f.Letters != 1 || f.Sent != 1 || !slices.Contains(f.Told, "hook") {
		t.Errorf("forgot %+v", f)
	}
	if left := holds(t, o.Dir, one, "WORDONE"); len(left) > 0 {
		t.Errorf("still in %v", left)
	}
	if stay := holds(t, o.Dir, other); len(stay) < 3 {
		t.Errorf("of the other run there is only %v", stay)
	}
	again, err := notify.Ask(ctx, o.Dir, notify.Request{Forget: &notify.Forget{Run: one, Tenant: tenant}})
	if err != nil || again.Forgot.Waiting+again.Forgot.Letters+again.Forgot.Sent != 0 {
		t.Errorf("once more: %+v %v", again, err)
	}

	// It goes on, and a third run after it shows that it was read.
	publish(t, b, one, script(one, append(first, done, "exit 0")...))
	publish(t, b, "run-dddd-4444", script("run-dddd-4444", initLine, done, "exit 0"))
	waitMetric(t, n, "cbcast_notifications_total{destination=gone,kind=finished,outcome=dead} 2")
	stop()

	// Another state of the reading: all comes again.
	o.Bus = serve(t)
	publish(t, o.Bus, one, script(one, append(first, done, "exit 0")...))
	publish(t, o.Bus, "run-eeee-5555", script("run-eeee-5555", initLine, done, "exit 0"))
	n, stop = start(t, o)
	waitMetric(t, n, "cbcast_notifications_total{destination=gone,kind=finished,outcome=dead} 1")
	stop()
	if left := holds(t, o.Dir, one, "WORDONE"); len(left) > 0 {
		t.Errorf("after all came again in %v", left)
	}
	told := 0
	for _, g := range r.wait(t, "all", func([]got) bool { return true }) {
		if g.Path == "/hook" && g.Run == one {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times of it", told)
	}
	// Without a process that runs, by another word for it.
	f, err = notify.ForgetHere(o.Dir, time.Hour, notify.Forget{Run: "last"})
	if err != nil || f.Run != "run-eeee-5555" {
		t.Errorf("the last one: %+v %v", f, err)
	}
	if left := holds(t, o.Dir, "run-eeee"); len(left) > 0 {
		t.Errorf("of the last one still in %v", left)
	}
	if _, err := notify.ForgetHere(filepath.Join(o.Dir, "none"), time.Hour, notify.Forget{Run: "last"}); !errors.Is(err, notify.ErrNoRun) {
		t.Errorf("no directory: %v", err)
	}
}
