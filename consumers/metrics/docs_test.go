package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table of docs/metrics.md says what the code has.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(data), "<!-- metrics -->\n")
	if !ok {
		t.Fatal("docs/metrics.md has no table <!-- metrics -->")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	if d := cmp.Diff(docTable(), table); d != "" {
		t.Errorf("docs/metrics.md (-code +docs):\n%s", d)
	}
}

// docTable is the table as it must be.
func docTable() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | says |\n|---|---|---|---|")
	for _, d := range catalog {
		labels := strings.Join(d.labels, ", ")
		if slices.Equal(d.labels, who) {
			labels = "*who*"
		} else if len(d.labels) > len(who) && slices.Equal(d.labels[:len(who)], who) {
			labels = "*who*, " + strings.Join(d.labels[len(who):], ", ")
		}
		fmt.Fprintf(&b, "\n| `%s%s` | %s | %s | %s |", prefix, d.name, d.kind, labels, d.help)
	}
	return b.String()
}

// Every metric follows the conventions: base units in the name, _total on counters, no name
// twice, labels of the known ones.
func TestNames(t *testing.T) {
	known := regexp.MustCompile(`^(tenant|dialect|ci|repo|workflow|verdict|state|task_type|status|terminal_source|what|kind|outcome|by|rung|type|model|reason|why|version|revision|goversion)$`)
	seen := map[string]bool{}
	for _, d := range catalog {
		if seen[d.name] {
			t.Errorf("%s stands twice", d.name)
		}
		seen[d.name] = true
		if strings.HasSuffix(d.name, "_total") != (d.kind == counter) {
			t.Errorf("%s is a %s", d.name, d.kind)
		}
		if d.kind == histogram && (!strings.HasSuffix(d.name, "_seconds") || !slices.IsSorted(d.buckets) || d.unit != micro) {
			t.Errorf("%s: a histogram of something else", d.name)
		}
		if !strings.HasSuffix(d.help, ".") {
			t.Errorf("%s: help without a full stop", d.name)
		}
		for _, l := range d.labels {
			if !known.MatchString(l) {
				t.Errorf("%s has the label %s", d.name, l)
			}
		}
	}
}

// Rules and dashboard name metrics that there are.
func TestDeployNamesMetrics(t *testing.T) {
	names := map[string]bool{}
	for _, d := range catalog {
		names[prefix+d.name] = true
		if d.kind == histogram {
			for _, s := range []string{"_bucket", "_count", "_sum"} {
				names[prefix+d.name+s] = true
			}
		}
	}
	others := regexp.MustCompile(`^cbcast_(consumer|archive|relay|trace|notifications?)_`) // of the other programs
	name := regexp.MustCompile(`\bcbcast_[a-z0-9_]+`)
	for _, file := range []string{"prometheus/rules.yml", "prometheus/alerts.yml", "prometheus/rules_test.yml", "grafana/cbcast.json"} {
		data, err := os.ReadFile(filepath.Join("../../deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllString(string(data), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, n := range found {
			if !names[n] && !others.MatchString(n) {
				t.Errorf("%s names %s, which there is not", file, n)
			}
		}
	}
}
