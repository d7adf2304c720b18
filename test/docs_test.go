// Package test holds the checks that look at the whole repository: which
// package imports which, and whether the documents say what the code does.
package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the top of the repository, seen from this package's tests.
const root = ".."

// maxDirect bounds the direct dependencies in go.mod. Raise it together with a
// decision record in docs/adr that says why the standard library does not do.
const maxDirect = 36

func TestDocsPackage(t *testing.T) {
	for _, p := range packages(t) {
		files := p.GoFiles
		if len(files) == 0 {
			files = append(p.TestGoFiles, p.XTestGoFiles...)
		}
		var with []string
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Error(err)
			} else if f.Doc != nil && len(f.Doc.List) > 0 && !strings.HasPrefix(f.Doc.List[0].Text, "//go:") {
				with = append(with, name)
			}
		}
		if len(with) != 1 {
			t.Errorf("package %s: its doc comment stands in %d files %v; want exactly one", p.name(), len(with), with)
		}
	}
}

func TestDocsGoMod(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace) > 0 {
		t.Errorf("go.mod replaces modules; `go install …@version` would refuse it")
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) > maxDirect {
		t.Errorf("go.mod has %d direct dependencies, at most %d are agreed: %v", len(direct), maxDirect, direct)
	}
}

// foreign matches what belongs to one machine or one way of working and has no
// place in the project. The words are split so that this file does not match.
var foreign = regexp.MustCompile(strings.Join([]string{
	`(^|[^\w/.-])/wo` + `rk/(main|shared|\.library)`,
	`/tmp` + `/w/`,
	`(^|[^\w/.-])/ro` + `ot/`,
	`registry\.npm` + `js\.org|proxy\.go` + `lang\.org|sum\.go` + `lang\.org|(files\.)?py` + `pi\.org|pythonho` + `sted\.org|deb\.deb` + `ian\.org`,
	`style-` + `draft|i3\.` + `txt`,
}, "|"))

func TestDocsNoForeignPaths(t *testing.T) {
	for _, name := range tracked(t) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 {
			continue // deleted but not committed, or no text
		}
		for n, line := range bytes.Split(b, []byte("\n")) {
			if m := foreign.Find(line); m != nil {
				t.Errorf("%s:%d names %q", name, n+1, m)
			}
		}
	}
}

// tracked lists the files of the repository as git sees them.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout, so the files to check are not known: %v", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

// table returns the cells of the table that follows the line `<!-- marker -->`
// in a document, without its two header lines. Back quotes around a cell are
// removed; a "|" in a cell is written "\|".
func table(t *testing.T, doc, marker string) [][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, doc))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	found, header := false, 0
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		switch {
		case line == "<!-- "+marker+" -->":
			found = true
		case !found || line == "" && header == 0:
		case !strings.HasPrefix(line, "|"):
			return rows
		case header < 2:
			header++
		default:
			line = strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00")
			cells := strings.Split(line, "|")
			for i, c := range cells {
				c = strings.ReplaceAll(strings.TrimSpace(c), "\x00", "|")
				if len(c) > 1 && strings.Count(c, "`") == 2 && c[0] == '`' && c[len(c)-1] == '`' {
					c = c[1 : len(c)-1]
				}
				cells[i] = c
			}
			rows = append(rows, cells)
		}
	}
	if !found {
		t.Errorf("%s has no line <!-- %s -->", doc, marker)
	}
	return rows
}

// column returns one column of a table.
func column(rows [][]string, i int) []string {
	var out []string
	for _, r := range rows {
		if i < len(r) {
			out = append(out, r[i])
		}
	}
	return out
}

// same reports got and want that differ as sets, both ways, in words.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%s: %q is in the code but not in the table", what, w)
		}
	}
	for i, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%s: %q is in the table but not in the code", what, g)
		} else if slices.Contains(got[:i], g) {
			t.Errorf("%s: %q stands in the table twice", what, g)
		}
	}
}

// parseDir parses the non-test files of one package.
func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}
