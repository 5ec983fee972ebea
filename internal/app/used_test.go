package app_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module     = "github.com/thoughtgate/thoughtgate-go/"
	configPath = module + "internal/config"
)

// The program uses every setting of the configuration. A setting that is parsed and checked
// but never used would mislead its users.
func TestEverySettingIsUsed(t *testing.T) {
	c := newTypeChecker(t, module+"internal/app", module+"cmd/thoughtgate")
	settings, err := c.importer.Import(configPath)
	if err != nil {
		t.Fatal(err)
	}
	unused := map[*types.Var]string{}
	visit(settings.Scope().Lookup("Config").Type(), unused)
	if len(unused) < 100 {
		t.Fatalf("there are only %d settings", len(unused))
	}
	for _, dir := range []string{".", "../../cmd/thoughtgate"} {
		for field := range c.fieldsUsedIn(dir) {
			delete(unused, field)
		}
	}
	names := slices.Sorted(maps.Values(unused))
	// Package config itself reads policy files, and builds the environment of servers and the
	// TLS settings of upstreams.
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == "Cedar.Policies" || name == "Config.OwnVariables" || strings.HasPrefix(name, "Source.") || strings.HasPrefix(name, "TLS.")
	})
	if len(names) > 0 {
		t.Errorf("unused settings: %v", names)
	}
}

// visit adds the exported fields of all structures of package config in t to fields, with
// their names.
func visit(t types.Type, fields map[*types.Var]string) {
	switch t := t.(type) {
	case *types.Slice:
		visit(t.Elem(), fields)
	case *types.Map:
		visit(t.Elem(), fields)
	case *types.Pointer:
		visit(t.Elem(), fields)
	case *types.Alias:
		visit(types.Unalias(t), fields)
	case *types.Named:
		structure, ok := t.Underlying().(*types.Struct)
		if !ok || t.Obj().Pkg() == nil || t.Obj().Pkg().Path() != configPath {
			return
		}
		for field := range structure.Fields() {
			if field.Embedded() {
				visit(field.Type(), fields)
			} else if _, seen := fields[field]; field.Exported() && !seen {
				fields[field] = t.Obj().Name() + "." + field.Name()
				visit(field.Type(), fields)
			}
		}
	}
}

// A typeChecker loads packages with their types.
type typeChecker struct {
	t        *testing.T
	files    *token.FileSet
	importer types.Importer
}

// newTypeChecker returns a typeChecker for packages and their imports, with type data written
// by the compiler.
func newTypeChecker(t *testing.T, packages ...string) typeChecker {
	t.Helper()
	listed := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	var problems bytes.Buffer
	listed.Stderr = &problems
	out, err := listed.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &problems)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	files := token.NewFileSet()
	return typeChecker{t: t, files: files, importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package %s", path)
		}
		return os.Open(exports[path])
	})}
}

// fieldsUsedIn returns the fields that the code in a directory selects, without tests.
func (c typeChecker) fieldsUsedIn(dir string) map[*types.Var]bool {
	c.t.Helper()
	listed, err := build.ImportDir(dir, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	var trees []*ast.File
	for _, name := range listed.GoFiles {
		tree, err := parser.ParseFile(c.files, filepath.Join(dir, name), nil, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	found := types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	checker := types.Config{Importer: c.importer}
	if _, err := checker.Check(dir, c.files, trees, &found); err != nil {
		c.t.Fatal(err)
	}
	used := map[*types.Var]bool{}
	for _, s := range found.Selections {
		if field, ok := s.Obj().(*types.Var); ok {
			used[field] = true
		}
	}
	return used
}
