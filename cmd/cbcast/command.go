package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/relay"
)

// maxRead bounds what is read from a file for an agent; a message on the bus is
// smaller.
const maxRead = 8 << 20

func newSend(a *app) *cobra.Command {
	o := giving{deliver: time.Hour, effect: 24 * time.Hour}
	var blocks bool
	c := &cobra.Command{
		Use:   "send [flags] RUN TEXT|@FILE|@-",
		Short: "Send a message to an agent",
		Long: `send gives the agent of RUN a message, as if its host had sent it. The message is
TEXT, or what is in FILE, or on the standard input with @- (@@… is a text that
begins with @). With --blocks it is a JSON list of content blocks, which may hold
images. A message that the agent would lose now waits until it can be given. RUN
is as in cbcast interrupt.

` + waitHelp + `

Settled means that the agent has ended the turn of the message.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, words []string) error {
			text, err := a.text(words[1], maxRead)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			args := map[string]json.RawMessage{"content": quote(text)}
			if blocks {
				args["content"] = json.RawMessage(text)
			}
			return a.order(c, words[0], o, "message", args)
		},
	}
	o.orderFlags(c)
	c.Flags().BoolVar(&blocks, "blocks", false, "the message is a JSON list of content blocks")
	return c
}

// shortNames are further names of commands.
var shortNames = map[string]string{"model": "set_model", "mode": "set_permission_mode"}

func newCommand(a *app) *cobra.Command {
	var o giving
	c := &cobra.Command{
		Use:   "command [flags] RUN NAME [VALUE] [KEY=VALUE …]",
		Short: "Give an agent any command",
		Long: `command gives the agent of RUN the command NAME. A VALUE without a key is that of
the command's first one; @FILE is what is in a file. RUN is as in cbcast interrupt.

  interrupt            reason, turn (end, keep), escalate (true)
  stop_task            task, reason
  message              content, uuid                      see also cbcast send
  steer                content: joins the turn that runs (cbc, Codex)
  set_permission_mode  mode; or: mode
  set_model            model; or: model
  rewind_files         checkpoint (a message's id), dry_run (true)
  rewind               checkpoint, scope, dry_run: history, too (cbc)
  end_session

  cbcast command last model claude-opus-4
  cbcast command --wait last rewind_files 5d0c… dry_run=true

What an agent cannot do is refused with the reason.

` + waitHelp,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, words []string) error {
			name := words[1]
			if long, ok := shortNames[name]; ok {
				name = long
			}
			args, err := a.keyed(name, words[2:])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.order(c, words[0], o, name, args)
		},
	}
	o.orderFlags(c)
	f := c.Flags()
	f.Lookup("deliver-within").Usage += "\n(default 30s; 1h for a message)"
	f.Lookup("effect-within").Usage += " (default 1m; 24h for a message)"
	return c
}

// order gives the command name with args.
func (a *app) order(c *cobra.Command, run string, o giving, name string, args map[string]json.RawMessage) error {
	data, err := json.Marshal(args)
	if err != nil {
		return &exitError{exitUsage, errors.New("that is no JSON")}
	}
	parsed, err := relay.ParseArgs(name, data)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return a.give(c, run, o, relay.Order{Name: name, Args: parsed})
}

// keyed reads the arguments of the command name from words.
func (a *app) keyed(name string, words []string) (map[string]json.RawMessage, error) {
	keys := relay.ArgumentNames(name)
	if names := relay.CommandNames(); !slices.Contains(names, name) {
		return nil, fmt.Errorf("there is no command %q; there are %s", name, strings.Join(names, ", "))
	}
	args := map[string]json.RawMessage{}
	for n, w := range words {
		key, v, ok := strings.Cut(w, "=")
		if !ok && n == 0 && len(keys) > 0 {
			key, v = keys[0], w
		} else if !ok {
			return nil, fmt.Errorf("%q is no KEY=VALUE", w)
		}
		if _, twice := args[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		if !slices.Contains(keys, key) {
			return nil, fmt.Errorf("%s takes no %q; it takes %s", name, key, cmp.Or(strings.Join(keys, ", "), "nothing"))
		}
		text, err := a.text(v, maxRead)
		if err != nil {
			return nil, err
		}
		args[key] = quote(text)
		if key == "escalate" || key == "dry_run" {
			yes, err := strconv.ParseBool(text)
			if err != nil {
				return nil, fmt.Errorf("%s is true or false", key)
			}
			args[key] = json.RawMessage(strconv.FormatBool(yes))
		}
	}
	return args, nil
}

// text is a word of the command line, or what is in the file that it names, which
// has no more than most bytes. A word that begins with "@" itself has it twice.
func (a *app) text(word string, most int) (string, error) {
	name, ok := strings.CutPrefix(word, "@")
	if !ok || strings.HasPrefix(name, "@") {
		return name, nil
	}
	var in io.Reader = a.io.in
	if name == "-" && a.io.in == nil {
		return "", errors.New("there is no stdin")
	}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", name, err)
	case len(b) > most:
		return "", fmt.Errorf("%s is longer than %d bytes", name, most)
	}
	return string(b), nil
}

// quote is a text in JSON.
func quote(text string) json.RawMessage {
	b, _ := json.Marshal(text) // a string always marshals
	return b
}
