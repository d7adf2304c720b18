package main

import "testing"

// A command that is made alone is found by its name, and all are made where none is asked for.
func TestSubcommands(t *testing.T) {
	a := &app{}
	all := map[string]bool{}
	for _, c := range newRoot(a, "").Commands() {
		all[c.Name()] = true
	}
	for _, c := range subcommands {
		if !all[c.name] {
			t.Errorf("no command is called %s", c.name)
		}
		only := newRoot(a, onlyCommand([]string{c.name, "--help"})).Commands()
		if len(only) != 1 || only[0].Name() != c.name {
			t.Errorf("%s alone makes %d commands", c.name, len(only))
		}
	}
	for _, args := range [][]string{nil, {"help", "run"}, {"--help"}, {"nothing"}, {"__complete", "ru"}} {
		if got := onlyCommand(args); got != "" {
			t.Errorf("%v asks for %q alone", args, got)
		}
	}
}
