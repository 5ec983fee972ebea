package app_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// TestEverySettingIsUsed demands that what the configuration can say is asked for
// by the program: a setting that is read and checked but never used would be
// believed and not obeyed.
func TestEverySettingIsUsed(t *testing.T) {
	used := selectors(t, "*.go", "../../cmd/thoughtgate/*.go")
	unused := map[string]bool{}
	visit(reflect.TypeFor[config.Config](), func(structure reflect.Type, field string) {
		if !used[field] {
			unused[structure.Name()+"."+field] = true
		}
	})
	// Package config itself reads the files of policies.
	delete(unused, "Cedar.Policies")
	if len(unused) > 0 {
		t.Errorf("nothing asks for %v", slices.Sorted(maps.Keys(unused)))
	}
}

// visit calls found with every field of the structures of package config that t
// is made of.
func visit(t reflect.Type, found func(structure reflect.Type, field string)) {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		visit(t.Elem(), found)
	case reflect.Struct:
		if !strings.HasSuffix(t.PkgPath(), "/internal/config") {
			return
		}
		for f := range t.Fields() {
			if f.IsExported() {
				found(t, f.Name)
				visit(f.Type, found)
			}
		}
	default:
	}
}

// selectors returns the names that stand behind a dot in files that are no tests.
func selectors(t *testing.T, patterns ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal("no files", pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					names[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	return names
}
