package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A source is a package of the module, parsed and type-checked.
type source struct {
	name    string // the import path without the module's
	product bool   // whether cmd/thoughtgate is built of it
	fset    *token.FileSet
	files   []*ast.File // without tests and generated code
	info    *types.Info
}

// listed is what "go list" says about a package.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	Standard   bool
	GoFiles    []string
	Deps       []string
	Module     *struct {
		Path string
		Main bool
	}
}

func (l listed) ours() bool { return l.Module != nil && l.Module.Main && len(l.GoFiles) > 0 }

// load reads the packages of the module in dir.
func load(dir string) ([]source, error) {
	all, err := list(dir)
	if err != nil {
		return nil, err
	}
	exports, product := map[string]string{}, map[string]bool{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
		if strings.HasSuffix(l.ImportPath, "/cmd/thoughtgate") {
			product[l.ImportPath] = true
			for _, dep := range l.Deps {
				product[dep] = true
			}
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var sources []source
	for _, l := range all {
		if !l.ours() {
			continue
		}
		s := source{name: strings.TrimPrefix(l.ImportPath, l.Module.Path+"/"), product: product[l.ImportPath], fset: fset}
		if err := s.read(l, imports); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

func list(dir string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,Standard,GoFiles,Deps,Module", "./...") //nolint:noctx // it ends with this program
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

func (s *source) read(l listed, imports types.Importer) error {
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(s.fset, filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
		if !ast.IsGenerated(f) {
			s.files = append(s.files, f)
		}
	}
	s.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	_, err := config.Check(l.ImportPath, s.fset, files, s.info)
	return err
}
