package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/ingest/child"
)

// minimalRules is a rules file that works, for those who have none.
const minimalRules = `
  version: 1
  destinations:
    hook: {type: webhook, url: https://example.com/hook}
  rules:
    - {name: all, to: [hook]}
`

func notifyKind() consumerKind {
	return consumerKind{
		name:   "notify",
		addr:   func(c *config) string { return c.Notify.Addr },
		wanted: func(c *config) bool { return c.Notify.Rules != "" },
		hangup: true,
		check:  func(a *app) error { return a.checkNotify() },
		open: func(ctx context.Context, a *app, e consumerEnv) (consumer, error) {
			n, err := a.openNotify(e)
			if err != nil {
				return nil, err
			}
			return &notifier{n, a.onHangup(ctx, func() { _ = n.Reload() })}, nil // a bad file is said by Reload
		},
		add: func(c consumer, mux *http.ServeMux) {
			if n, ok := c.(*notifier); ok {
				n.Routes(mux)
			}
		},
		paths: []string{"POST /slack", "POST /slack/{name}"},
	}
}

// A notifier reads its rules again at SIGHUP.
type notifier struct {
	*notify.Notifier
	unhook func()
}

func (n *notifier) Run(ctx context.Context) error {
	defer n.unhook()
	return n.Notifier.Run(ctx)
}

// checkNotify says what is wrong with the rules, or with the secrets that they name.
func (a *app) checkNotify() error {
	if a.cfg.Notify.Rules == "" {
		return errNoRules
	}
	return notify.Check(a.notifyOptions(consumerEnv{dir: a.notifyDir()}))
}

func (a *app) openNotify(e consumerEnv) (*notify.Notifier, error) {
	if a.cfg.Notify.Rules == "" {
		return nil, errNoRules
	}
	return notify.New(a.notifyOptions(e))
}

func (a *app) notifyOptions(e consumerEnv) notify.Options {
	return notify.Options{
		Config: a.cfg.Notify, Dir: e.dir, Bus: e.bus, Partitions: a.partitions(), PublicURL: a.cfg.PublicURL,
		Env: a.lookup(), Actor: &relayActor{a}, Exec: child.Brief, Log: e.log,
	}
}

var errNoRules = errors.New("there are no rules: set CBCAST_NOTIFY_RULES to a file like\n" + minimalRules + "\n  and see cbcast notify --schema and docs/notify.md")

// lookup finds variables for the secrets that rules refer to.
func (a *app) lookup() notify.Lookup {
	vars := environMap(a.environ)
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func newNotify(a *app) *cobra.Command {
	var check, test string
	var schema bool
	c := &cobra.Command{
		Use:   "notify",
		Short: "Tell people what happens to runs",
		Long: `notify reads the bus and tells people that runs ended, failed, were lost, or wait for
somebody: in Slack, by webhook, by mail, or through a command. CBCAST_NOTIFY_RULES names
the file that says who is told what. It is a part of cbcast up where that is set.

SIGHUP reads the file again; one that is wrong changes nothing.`,
		Example: `  cbcast notify --check notify.yaml     is it right, and which rule is for what
  CBCAST_NOTIFY_RULES=notify.yaml cbcast notify --test chat
  CBCAST_NOTIFY_RULES=notify.yaml cbcast notify`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case schema:
				_, err := a.io.out.Write(notify.Schema)
				return err
			case check != "":
				return a.notifyCheck(check)
			case test != "":
				return a.notifyTest(c.Context(), test)
			case a.cfg.Notify.Rules == "":
				return &exitError{exitUsage, errNoRules}
			}
			return a.runConsumer(c.Context(), notifyKind())
		},
	}
	f := c.Flags()
	f.StringVar(&check, "check", "", "check a rules `FILE` and say which rule is for what; nothing is sent")
	f.StringVar(&test, "test", "", "send a notice, marked as a test, to a `DESTINATION` of the rules and say what happened")
	f.BoolVar(&schema, "schema", false, "print the JSON Schema of a rules file")
	f.StringVar(&a.cfg.Notify.Rules, "rules", a.cfg.Notify.Rules, "rules `FILE`")
	f.StringVar(&a.cfg.Notify.Addr, "listen", a.cfg.Notify.Addr, "address of health, metrics and Slack's requests")
	c.AddCommand(newNotifyLs(a), newNotifyDead(a), newNotifyReplay(a), newNotifyEnable(a), newNotifyForget(a))
	return c
}

func (a *app) notifyCheck(path string) error {
	r, findings := notify.Inspect(path, a.notifyOptions(consumerEnv{}))
	if r != nil {
		a.notifySays(path, r)
		if r.HasButtons() {
			findings = append(findings, a.relayFindings()...)
		}
	}
	wrong := 0
	for _, f := range findings {
		word := "wrong"
		if f.Here {
			word = "not here"
		} else {
			wrong++
		}
		fmt.Fprintf(a.io.err, "%s: %s\n", word, printable(f.Text))
	}
	if wrong > 0 {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// notifySays prints which rule is for what.
func (a *app) notifySays(path string, r *notify.Rules) {
	fmt.Fprintf(a.io.out, "%s: %d destinations, %d rules\n\n", path, len(r.Destinations), len(r.Rules))
	samples := r.Samples()
	width := 0
	for _, s := range samples {
		width = max(width, utf8.RuneCountInString(s.What))
	}
	for _, s := range samples {
		fmt.Fprintf(a.io.out, "%-*s  %s\n", width, s.What, s.Says)
	}
	fmt.Fprintf(a.io.out, "\nassumed where nothing else stands: %s\n", notify.Assumed())
}

// relayFindings says what clicks lack to reach the runs.
func (a *app) relayFindings() []notify.Finding {
	if _, err := a.relayToken(); err != nil {
		return []notify.Finding{{Here: true, Text: "buttons: " + err.Error() + "; set CBCAST_NOTIFY_RELAY_TOKEN_FILE"}}
	}
	return nil
}

func (a *app) notifyTest(ctx context.Context, dest string) error {
	if a.cfg.Notify.Rules == "" {
		return &exitError{exitUsage, errNoRules}
	}
	r, err := notify.LoadFile(a.cfg.Notify.Rules)
	if err != nil {
		return err
	}
	log, closeLog, err := a.serviceLogger() // where a destination of the type log writes
	if err != nil {
		return err
	}
	defer closeLog()
	res, err := notify.Test(ctx, r, dest, a.notifyOptions(consumerEnv{dir: a.notifyDir(), log: log}))
	if err != nil {
		return err
	}
	fmt.Fprintln(a.io.out, res.Text)
	if !res.Delivered {
		return &exitError{exitFailed, nil}
	}
	return nil
}

func (a *app) notifyDir() string { return filepath.Join(a.cfg.StateDir, "notify") }

// relayToken is what clicks reach the relay with.
func (a *app) relayToken() (string, error) {
	n := a.cfg.Notify
	if n.RelayToken != "" {
		return n.RelayToken, nil
	}
	file := n.RelayTokenFile
	if file == "" {
		file = a.tokenFile()
	}
	b, err := notify.ReadSecret(file)
	if err != nil {
		return "", fmt.Errorf("read the relay's token: %w", err)
	}
	return strings.TrimSpace(b), nil
}
