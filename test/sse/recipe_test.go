package sse

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var block = regexp.MustCompile("(?s)<!-- (\\S+) -->\n```\\w+\n(.*?)```\n")

// recipes are the blocks of docs/clients.md that a comment names, with the names.
func recipes(t *testing.T) [][]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	return block.FindAllStringSubmatch(string(doc), -1)
}

// recipe is the one block of a name.
func recipe(t *testing.T, name string) string {
	t.Helper()
	for _, m := range recipes(t) {
		if m[1] == name {
			return m[2]
		}
	}
	t.Fatalf("docs/clients.md has no recipe for %s", name)
	return ""
}

// squeeze is text without indentation and without what gofmt aligns.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// What docs/clients.md shows is what the tests run.
func TestRecipes(t *testing.T) {
	all := recipes(t)
	if len(all) < 10 {
		t.Errorf("docs/clients.md has %d recipes", len(all))
	}
	for _, m := range all {
		if m[1] == "nginx" {
			continue // is taken from there
		}
		code, err := os.ReadFile(filepath.Join("../..", m[1]))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(squeeze(string(code)), squeeze(m[2])) {
			t.Errorf("%s has not what docs/clients.md shows of it:\n%s", m[1], m[2])
		}
	}
}
