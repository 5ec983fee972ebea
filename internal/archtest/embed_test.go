package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// No type embeds another type of this module to borrow its methods: the reader could not see which of the
// two a method belongs to, and which fields it uses. Interfaces may be embedded, and so may the values of plain
// data: types without methods, and those with exported fields only.
func TestEmbedding(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{.Dir}} {{join .GoFiles " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := typeIndex{methods: make(map[string]bool), interfaces: make(map[string]bool), data: make(map[string]bool)}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, name := range fields[2:] {
			all.read(t, fields[0], filepath.Join(fields[1], name))
		}
	}
	for _, e := range all.embedded {
		if !all.methods[e.what] || all.interfaces[e.what] || all.data[e.what] && !e.pointer {
			continue
		}
		pkg := strings.TrimPrefix(e.in, module)
		if strings.HasPrefix(pkg, "bench") {
			continue // not part of the product
		}
		t.Errorf("%s: %s is embedded; give the field a name", e.at, strings.TrimPrefix(e.what, module))
	}
}

// A typeIndex is what is known of the types of the module. Types are named by the path of their package and their name.
type typeIndex struct {
	methods    map[string]bool // types with methods
	interfaces map[string]bool
	data       map[string]bool // structs with exported fields only
	embedded   []embedding
}

// An embedding is a type that a struct embeds.
type embedding struct {
	in, what string
	pointer  bool
	at       token.Position
}

func (d *typeIndex) read(t *testing.T, pkg, file string) {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	imports := make(map[string]string)
	for _, imp := range parsed.Imports {
		imported, _ := strconv.Unquote(imp.Path.Value)
		name := path.Base(imported)
		if imp.Name != nil {
			name = imp.Name.Name
		}
		imports[name] = imported
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				d.methods[nameOf(n.Recv.List[0].Type, pkg, imports)] = true
			}
		case *ast.TypeSpec:
			switch declared := n.Type.(type) {
			case *ast.InterfaceType:
				d.interfaces[pkg+"."+n.Name.Name] = true
			case *ast.StructType:
				d.data[pkg+"."+n.Name.Name] = exportsAll(declared)
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if len(field.Names) == 0 {
					_, pointer := field.Type.(*ast.StarExpr)
					d.embedded = append(d.embedded, embedding{in: pkg, what: nameOf(field.Type, pkg, imports), pointer: pointer, at: fset.Position(field.Pos())})
				}
			}
		}
		return true
	})
}

func exportsAll(s *ast.StructType) bool {
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			if !name.IsExported() {
				return false
			}
		}
	}
	return true
}

// nameOf returns the name of a type, whether it is a pointer to it or has type arguments.
func nameOf(e ast.Expr, pkg string, imports map[string]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOf(e.X, pkg, imports)
	case *ast.IndexExpr:
		return nameOf(e.X, pkg, imports)
	case *ast.IndexListExpr:
		return nameOf(e.X, pkg, imports)
	case *ast.SelectorExpr:
		return imports[nameOf(e.X, "", nil)[1:]] + "." + e.Sel.Name
	case *ast.Ident:
		return pkg + "." + e.Name
	default:
		return ""
	}
}
