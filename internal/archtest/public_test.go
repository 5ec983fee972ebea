package archtest

import (
	"bytes"
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
	"slices"
	"strings"
	"testing"
)

// public lists the packages that others import, by the folder of their module.
var public = map[string][]string{
	"../..":           {"./jsonrpc", "./mcpname", "./mcptask/...", "./task/..."},
	"../../gosdktask": {"."},
}

// mostNames is how many names a package may export: those that the author of a server needs.
// Names that only gateways or stores need are in other packages.
var mostNames = map[string]int{"task": 90, "mcptask": 25, "task/storetest": 2, "gosdktask": 12}

func TestExportedNames(t *testing.T) {
	for pkg, most := range mostNames {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				names += exportedNames(d)
			}
		}
		if names == 0 || names > most {
			t.Errorf("package %s exports %d names; want at most %d", pkg, names, most)
		}
	}
}

// exportedNames returns how many names of a package a declaration exports.
func exportedNames(d ast.Decl) (n int) {
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			count(d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				count(s.Name)
			case *ast.ValueSpec:
				count(s.Names...)
			}
		}
	}
	return n
}

// unstable lists what an exported signature of a public package must not name: packages
// whose types may still change, and packages that others cannot import.
var unstable = []string{"github.com/go-json-experiment/", "encoding/json/v2", "encoding/json/jsontext", "golang.org/x/exp", module + "internal/"}

// forAuthors lists the packages in which the author of a server finds nothing of a gateway, and
// ofGateways the packages with the types of gateways.
var (
	forAuthors = []string{"mcptask", "mcptask/schema", "task/storetest", "gosdktask"}
	ofGateways = []string{module + "task/gatetask", module + "task/gatestore", module + "mcptask/gatedialect", module + "task/auditlog"}
)

// TestPublicSignatures demands that a program can use the public packages without
// naming a type that is experimental or internal.
func TestPublicSignatures(t *testing.T) {
	for dir, patterns := range public {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.DepOnly}} {{.ImportPath}} {{.Export}}"}, patterns...)...)
		cmd.Dir = dir
		var trouble bytes.Buffer
		cmd.Stderr = &trouble
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, &trouble)
		}
		exports, paths := map[string]string{}, []string(nil)
		for line := range strings.Lines(string(out)) {
			depOnly, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			path, export, _ := strings.Cut(rest, " ")
			exports[path] = export
			if depOnly == "false" {
				paths = append(paths, path)
			}
		}
		imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		for _, path := range paths {
			pkg, err := imports.Import(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range naming(pkg, unstable) {
				t.Error(name)
			}
			if !slices.Contains(forAuthors, strings.TrimPrefix(path, module)) {
				continue
			}
			for _, name := range naming(pkg, ofGateways) {
				if !strings.HasPrefix(name, module+"mcptask.Dialect.Gate ") {
					t.Error(name)
				}
			}
		}
		if len(paths) == 0 {
			t.Errorf("no public packages in %s", dir)
		}
	}
}

// naming returns the exported names of a package whose signatures name a type of one of the
// given packages.
func naming(pkg *types.Package, packages []string) []string {
	c := signatures{of: packages}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			c.object(pkg.Path()+"."+name, o)
		}
	}
	return c.found
}

// signatures collects the names whose signatures have a type of some packages.
type signatures struct{ of, found []string }

func (c *signatures) object(name string, o types.Object) {
	typeName, isType := o.(*types.TypeName)
	if !isType || typeName.IsAlias() {
		c.see(name, o.Type())
		return
	}
	named, ok := o.Type().(*types.Named)
	if !ok {
		return
	}
	c.see(name, named.Underlying())
	for p := range named.TypeParams().TypeParams() {
		c.see(name, p.Constraint())
	}
	for m := range named.Methods() {
		if m.Exported() {
			c.see(name+"."+m.Name(), m.Type())
		}
	}
}

// see looks at a type as it is written: a type with a name is what its name says.
func (c *signatures) see(name string, t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		c.named(name, t.Obj())
		for arg := range t.TypeArgs().Types() {
			c.see(name, arg)
		}
	case *types.Alias:
		c.named(name, t.Obj())
		c.see(name, t.Rhs())
	case *types.Map:
		c.see(name, t.Key())
		c.see(name, t.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		c.see(name, t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			c.see(name, v.Type())
		}
		for v := range t.Results().Variables() {
			c.see(name, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				c.see(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				c.see(name+"."+m.Name(), m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			c.see(name, e)
		}
	default:
	}
}

func (c *signatures) named(name string, o *types.TypeName) {
	pkg := o.Pkg()
	if pkg == nil {
		return
	}
	if slices.ContainsFunc(c.of, func(prefix string) bool { return strings.HasPrefix(pkg.Path()+"/", prefix) || pkg.Path() == prefix }) {
		c.found = append(c.found, fmt.Sprintf("%s names %s.%s", name, pkg.Path(), o.Name()))
	}
}

// The test above must be able to fail.
func TestUnstableNames(t *testing.T) {
	const source = `package p

import "github.com/go-json-experiment/json/jsontext"

type Field struct{ Value jsontext.Value }
type Map map[string][]jsontext.Value
type Method struct{}
type Asks interface{ Ask(func() *jsontext.Value) }
type Same = jsontext.Value
type Fine struct{ hidden jsontext.Value }

func (*Method) Get() (jsontext.Value, bool) { return nil, false }
func (Fine) get() jsontext.Value            { return nil }
func Result() (v chan<- jsontext.Value)     { return nil }
func hidden(jsontext.Value)                 {}

var Variable [2]jsontext.Value
`
	experiment := types.NewPackage("github.com/go-json-experiment/json/jsontext", "jsontext")
	value := types.NewTypeName(token.NoPos, experiment, "Value", nil)
	types.NewNamed(value, types.NewSlice(types.Typ[types.Byte]), nil)
	experiment.Scope().Insert(value)
	experiment.MarkComplete()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: only{experiment}}
	pkg, err := conf.Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range naming(pkg, unstable) {
		name, _, _ := strings.Cut(line, " ")
		got = append(got, strings.TrimPrefix(name, "p."))
	}
	want := []string{"Asks.Ask", "Field.Value", "Map", "Method.Get", "Result", "Same", "Variable"}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// only imports one package.
type only struct{ pkg *types.Package }

func (o only) Import(string) (*types.Package, error) { return o.pkg, nil }
