package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/relay"
)

// tokenOptions are the flags of token.
type tokenOptions struct {
	scopes, tenants, runs []string
	expires, add          string
}

func newToken(a *app) *cobra.Command {
	var o tokenOptions
	c := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for the relay",
		Long: `token makes a random token and prints it, once: nobody can show it again. What the
relay needs of it is an entry with its hash, which is printed too; it goes into the
list in CBCAST_RELAY_TOKENS_FILE (or CBCAST_RELAY_TOKENS), a JSON array. With --add it
is put into that file, and only the token is printed. A relay that runs reads the file
again by itself, within seconds.

Scopes: read (see runs), command (interrupt, messages …), answer (decide asks), delegate
(act for people of a chat, by name), admin (everything); each of these includes read.
metrics is for Prometheus: it opens /metrics and shows no run.`,
		Example: `  cbcast token ci-dashboard --scope read --tenant acme --expires 2160h
  cbcast token alice --scope command,answer --add /etc/cbcast/tokens.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.token(args[0], o, time.Now()) },
	}
	f := c.Flags()
	f.StringSliceVar(&o.scopes, "scope", []string{string(relay.ScopeRead)}, "what it may: read, command, answer, delegate, metrics, admin")
	f.StringSliceVar(&o.tenants, "tenant", nil, "whose runs it sees; all without")
	f.StringSliceVar(&o.runs, "run", nil, "which runs it sees: ids, or the beginning of ids and *; all without")
	f.StringVar(&o.expires, "expires", "", "when it ends: a time from now (720h) or a date (2027-01-31T00:00:00Z); never without")
	f.StringVar(&o.add, "add", "", "file of tokens to put the entry into; it is made if it is not there")
	return c
}

func (a *app) token(name string, o tokenOptions, now time.Time) error {
	t := relay.Token{Name: name, Tenants: o.tenants, Runs: o.runs}
	for _, s := range o.scopes {
		t.Scopes = append(t.Scopes, relay.Scope(strings.TrimSpace(s)))
	}
	for _, p := range o.runs {
		if !canBeRun(p) {
			return &exitError{exitUsage, fmt.Errorf("--run %q: no run can have this id; want one of cbcast ls, or the beginning of one and *", p)}
		}
	}
	var err error
	if t.Expires, err = expiry(o.expires, now); err != nil {
		return &exitError{exitUsage, err}
	}
	token, entry, err := relay.NewToken(t)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if o.add != "" {
		if err := addToken(o.add, entry); err != nil {
			return err
		}
		fmt.Fprintln(a.io.out, token)
		return nil
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "%s\n%s\n", token, line)
	if terminal(a.io.out) {
		fmt.Fprintln(a.io.err, "cbcast: the first line is the token, which is not shown again; the second is the entry for the list of tokens")
	}
	return nil
}

// canBeRun reports whether p is the form of a run's id (a UUID in lower case), or
// of its beginning with a * behind it.
func canBeRun(p string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	id, prefix := strings.CutSuffix(p, "*")
	if id == "" || len(id) > len(form) || !prefix && len(id) < len(form) {
		return false
	}
	for i := range len(id) {
		if dash := form[i] == '-'; dash != (id[i] == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(id[i])) {
			return false
		}
	}
	return true
}

// expiry reads a time from now, or a date; zero for never.
func expiry(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d).UTC().Truncate(time.Second), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !t.After(now) {
		return time.Time{}, fmt.Errorf("--expires %q: want a time from now (720h) or a date to come (2027-01-31T00:00:00Z)", s)
	}
	return t.UTC(), nil
}

// dropToken takes the entry of a token that nobody has out of a file of tokens.
func dropToken(name, token string) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the list of tokens: %w", err)
	}
	list, err := relay.ParseTokens(data)
	if err != nil {
		return fmt.Errorf("the list of tokens in %s: %w", name, err)
	}
	kept := slices.DeleteFunc(slices.Clone(list), func(t relay.Token) bool { return t.Name == token })
	if len(kept) == len(list) {
		return nil
	}
	if data, err = json.MarshalIndent(kept, "", "  "); err != nil {
		return err
	}
	return durable.WriteFile(name, append(data, '\n'), 0o600)
}

// addToken puts an entry into a file of tokens, whole or not at all.
func addToken(name string, entry relay.Token) error {
	perm := fs.FileMode(0o600)
	var list []relay.Token
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the list of tokens: %w", err)
	default:
		if list, err = relay.ParseTokens(data); err != nil {
			return fmt.Errorf("the list of tokens in %s: %w", name, err)
		}
		if st, err := os.Stat(name); err == nil {
			perm = st.Mode().Perm()
		}
	}
	if data, err = json.MarshalIndent(append(list, entry), "", "  "); err != nil {
		return err
	}
	if _, err := relay.ParseTokens(data); err != nil { // such a name may be there
		return fmt.Errorf("the list of tokens in %s: %w", name, err)
	}
	if dir := filepath.Dir(name); !isDir(dir) {
		return fmt.Errorf("write the list of tokens: there is no directory %s; make it first", dir)
	}
	if err := durable.WriteFile(name, append(data, '\n'), perm); err != nil {
		return fmt.Errorf("write the list of tokens: %w", err)
	}
	return nil
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}
