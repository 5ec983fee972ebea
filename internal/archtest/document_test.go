package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// outside are the packages that ARCHITECTURE.md mentions and that are not of this module.
var outside = []string{"http"}

var (
	inCode  = regexp.MustCompile("`([^`\n]+)`")
	dotted  = regexp.MustCompile(`^[A-Za-z]\w*(\.[A-Za-z]\w*){1,2}$`)
	inBold  = regexp.MustCompile("\\*\\*`([A-Za-z]\\w*)`\\*\\*")
	endings = []string{".go", ".md", ".templ"}
)

// TestDocumentNames checks that what ARCHITECTURE.md names exists: each package.Name,
// Type.member and package.Type.member, and each name in bold.
func TestDocumentNames(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := readDeclarations(t)
	names := 0
	for _, m := range inCode.FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		first, _, _ := strings.Cut(name, ".")
		isFile := slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
		if !dotted.MatchString(name) || isFile || slices.Contains(outside, first) {
			continue
		}
		names++
		if !code.has(strings.Split(name, ".")) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", name)
		}
	}
	for _, m := range inBold.FindAllStringSubmatch(string(text), -1) {
		names++
		if !code.mentions(m[1]) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[1])
		}
	}
	_, glossary, _ := strings.Cut(string(text), "| word | meaning |\n|---|---|\n")
	glossary, _, _ = strings.Cut(glossary, "\n\n")
	if n := strings.Count(glossary, "\n") + 1; n < 10 || n > 25 {
		t.Errorf("the glossary of ARCHITECTURE.md has %d terms; want 25 at most", n)
	}
	if names < 50 {
		t.Errorf("found %d names in ARCHITECTURE.md; the patterns of this test no longer match", names)
	}
}

// embedded is before the names of embedded types among the members of a type.
const embedded = "embedded "

// declarations are the names that packages declare. A type has the names of its methods,
// fields and embedded types.
type declarations map[string]map[string][]string // by package and name

// readDeclarations reads all packages of the module, without tests.
func readDeclarations(t *testing.T) declarations {
	t.Helper()
	all := declarations{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all.add(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (all declarations) add(file *ast.File) {
	names := all[file.Name.Name]
	if names == nil {
		names = map[string][]string{}
		all[file.Name.Name] = names
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = nil
				continue
			}
			owner := typeName(d.Recv.List[0].Type)
			names[owner] = append(names[owner], d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				addSpec(names, s)
			}
		}
	}
}

func addSpec(names map[string][]string, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[n.Name] = nil
		}
	case *ast.TypeSpec:
		names[s.Name.Name] = append(names[s.Name.Name], members(s.Type)...)
	}
}

// members returns the names of the fields, methods and embedded types of a type.
func members(t ast.Expr) (names []string) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		if f.Names == nil {
			names = append(names, embedded+typeName(f.Type))
		}
	}
	return names
}

func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	default:
		return ""
	}
}

// has reports whether there is a package.Name, Type.member or package.Type.member.
func (all declarations) has(parts []string) bool {
	if names, ok := all[parts[0]]; ok {
		if _, declared := names[parts[1]]; declared && (len(parts) == 2 || hasMember(names, parts[1], parts[2])) {
			return true
		}
	}
	if len(parts) != 2 {
		return false
	}
	for _, names := range all {
		if hasMember(names, parts[0], parts[1]) {
			return true
		}
	}
	return false
}

// hasMember reports whether a type has a member of its own, or one that it gets from an
// embedded type of its package.
func hasMember(names map[string][]string, owner, member string) bool {
	return slices.ContainsFunc(names[owner], func(m string) bool {
		inner, ok := strings.CutPrefix(m, embedded)
		return m == member || ok && (inner == member || hasMember(names, inner, member))
	})
}

// mentions reports whether a package, a declaration or a member has a name.
func (all declarations) mentions(name string) bool {
	if _, ok := all[name]; ok {
		return true
	}
	for _, names := range all {
		for declared, members := range names {
			if declared == name || slices.Contains(members, name) {
				return true
			}
		}
	}
	return false
}
