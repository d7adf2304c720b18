package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
)

// knownVars are the variables that cbcast reads, in order.
func knownVars() []string {
	fields, err := env.GetFieldParamsWithOptions(&config{}, env.Options{Prefix: envPrefix})
	if err != nil {
		return nil // loading the configuration says so
	}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.Key] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// unknownVars are those of names that nothing reads, in order.
func unknownVars(names []string) (no []string) {
	known := knownVars()
	for _, name := range names {
		if _, ok := slices.BinarySearch(known, name); !ok && known != nil {
			no = append(no, name)
		}
	}
	slices.Sort(no)
	return no
}

// meant is the variable that somebody meant who wrote name, "" where that is not clear:
// scripts have variables of their own with our prefix.
func meant(name string) string {
	const file = "_FILE"
	rest := strings.TrimPrefix(name, envPrefix)
	best, at, within := "", min(len(rest)/3, 3)+1, ""
	for _, k := range knownVars() {
		switch known := strings.TrimPrefix(k, envPrefix); {
		case known+file == rest:
			return k
		case strings.HasSuffix(known, "_"+rest) && within == "":
			within = k
		case strings.HasSuffix(known, "_"+rest):
			within = " " // of several
		default:
			if d := distance(rest, known, at); d < at {
				best, at = k, d
			}
		}
	}
	if best != "" {
		return best
	}
	return strings.TrimSpace(within)
}

// distance is how many letters must be put in, taken out or changed to make b of a; at
// most enough.
func distance(a, b string, enough int) int {
	if d := len(a) - len(b); max(d, -d) >= enough {
		return enough
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], enough)
}

// warnMisspelt says which variables nothing reads and what was meant by them. A wrapper
// says it on a terminal only: hosts read an agent's stderr.
func (a *app) warnMisspelt(c *cobra.Command, _ []string) {
	if n := c.Name(); (n == "run" || n == "tap" || n == "import") && !terminal(a.io.err) {
		return
	}
	if c.Name() == "doctor" {
		return // it says more
	}
	for _, name := range unknownVars(a.cfg.set) {
		if m := meant(name); m != "" {
			fmt.Fprintf(a.io.err, "cbcast: there is no variable %s; %s is one\n", name, m)
		}
	}
}
