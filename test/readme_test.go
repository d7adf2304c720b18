package test

import (
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const readme = "README.md"

// A variable is one that cbcast reads from the environment.
type variable struct{ name, def string }

// variables walks the configuration from cmd/cbcast's type config down through
// the Config structs of other packages, by their tags.
func variables(t *testing.T) []variable {
	t.Helper()
	return structVariables(t, "cmd/cbcast", "config", "CBCAST_")
}

func structVariables(t *testing.T, dir, typeName, prefix string) []variable {
	t.Helper()
	st, imports := findStruct(t, dir, typeName)
	var vars []variable
	for _, f := range st.Fields.List {
		var tag reflect.StructTag
		if f.Tag != nil {
			s, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			tag = reflect.StructTag(s)
		}
		if name, ok := tag.Lookup("env"); ok {
			name, _, _ = strings.Cut(name, ",")
			if name != "" && name != "-" {
				vars = append(vars, variable{prefix + name, tag.Get("envDefault")})
			}
			continue
		}
		switch x := f.Type.(type) {
		case *ast.SelectorExpr: // bus.Config
			pkg, ok := x.X.(*ast.Ident)
			if ok && strings.HasPrefix(imports[pkg.Name], module) {
				vars = append(vars, structVariables(t, strings.TrimPrefix(imports[pkg.Name], module), x.Sel.Name,
					prefix+tag.Get("envPrefix"))...)
			}
		case *ast.Ident: // a struct of the same package
			if x.Obj != nil || ast.IsExported(x.Name) {
				vars = append(vars, structVariables(t, dir, x.Name, prefix+tag.Get("envPrefix"))...)
			}
		}
	}
	return vars
}

// findStruct finds a struct type in a package, and that file's imports by name.
// A type that is no struct comes back empty.
func findStruct(t *testing.T, dir, name string) (*ast.StructType, map[string]string) {
	t.Helper()
	for _, f := range parseDir(t, dir) {
		imports := map[string]string{}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports[filepath.Base(p)] = p
			if i.Name != nil {
				imports[i.Name.Name] = p
			}
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				ts, ok := s.(*ast.TypeSpec)
				if !ok || ts.Name.Name != name {
					continue
				}
				if st, ok := ts.Type.(*ast.StructType); ok {
					return st, imports
				}
				return &ast.StructType{Fields: &ast.FieldList{}}, imports
			}
		}
	}
	t.Fatalf("%s: no type %s", dir, name)
	return nil, nil
}

// The table after <!-- config --> has the columns variable, default, meaning.
func TestDocsConfig(t *testing.T) {
	vars := variables(t)
	rows := table(t, readme, "config")
	var want []string
	defaults := map[string]string{}
	for _, v := range vars {
		want = append(want, v.name)
		defaults[v.name] = v.def
	}
	same(t, "README's configuration", column(rows, 0), want)
	for _, r := range rows {
		if len(r) != 3 || r[2] == "" {
			t.Errorf("row %q: want variable, default, meaning", r)
			continue
		}
		if def := defaults[r[0]]; def != "" && r[1] != def {
			t.Errorf("%s: the table's default is %q, the code's %q", r[0], r[1], def)
		}
	}
}

var (
	shellBlock = regexp.MustCompile("(?s)```(?:sh|console|bash)\n(.*?)```")
	flagWord   = regexp.MustCompile(`(^|\s)(--[a-z][a-z-]*)`)
)

// Every command line in README's shell blocks must exist: subcommands and flags
// of cbcast, and targets of the Makefile.
func TestDocsREADMECommands(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, readme))
	if err != nil {
		t.Fatal(err)
	}
	mk, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "cbcast")
	build := exec.Command("go", "build", "-o", program, "./cmd/cbcast")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	help := func(sub string) (string, error) {
		c := exec.Command(program, strings.Fields(sub+" --help")...)
		c.Env = []string{"HOME=" + t.TempDir(), "CBCAST_HUB=never"}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	known, err := help("")
	if err != nil {
		t.Fatalf("cbcast --help: %v", err)
	}
	lines := 0
	for _, block := range shellBlock.FindAllSubmatch(b, -1) {
		for line := range strings.SplitSeq(string(block[1]), "\n") {
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
			for part := range strings.SplitSeq(line, "|") {
				if err := checkCommand(strings.TrimSpace(part), known, string(mk), help); err != nil {
					t.Errorf("%s: %q: %v", readme, line, err)
				}
				lines++
			}
		}
	}
	if lines == 0 {
		t.Errorf("%s has no shell block", readme)
	}
}

func checkCommand(line, known, makefile string, help func(string) (string, error)) error {
	words := strings.Fields(line)
	for len(words) > 0 && strings.Contains(words[0], "=") { // NAME=value before a command
		words = words[1:]
	}
	if len(words) > 2 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/cbcast" {
		words = append([]string{"cbcast"}, words[3:]...)
	}
	if len(words) < 2 {
		return nil
	}
	switch words[0] {
	case "make":
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).MatchString(makefile) {
			return fmt.Errorf("the Makefile has no target %s", words[1])
		}
	case "cbcast", "./cbcast":
		sub := words[1]
		if strings.HasPrefix(sub, "-") {
			return nil
		}
		if !regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(sub) + `\s`).MatchString(known) {
			return fmt.Errorf("cbcast --help lists no command %s", sub)
		}
		text, err := help(sub)
		if err != nil {
			return fmt.Errorf("%s --help: %w", sub, err)
		}
		own, _, _ := strings.Cut(strings.Join(words[2:], " "), "-- ") // what follows is the child's
		for _, m := range flagWord.FindAllStringSubmatch(own, -1) {
			if !strings.Contains(text, m[2]) {
				return fmt.Errorf("cbcast %s --help lists no flag %s", sub, m[2])
			}
		}
	}
	return nil
}
