package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every mark can be read and applied, has a unique name, and names a test that exists.
// The changes themselves are tried by make mutate.
func TestMarksApply(t *testing.T) {
	t.Chdir("../..")
	marks, err := scan(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(marks) < 300 {
		t.Errorf("found only %d marks", len(marks))
	}
	names, tests := map[string]bool{}, map[string][]string{}
	for _, m := range marks {
		source, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(source); err != nil {
			t.Errorf("%s:%d: %v", m.file, m.line, err)
		}
		if names[m.name] {
			t.Errorf("%s:%d: another mark is called %q too", m.file, m.line, m.name)
		}
		names[m.name] = true
		if tests[m.pkg] == nil {
			tests[m.pkg] = testsOf(t, m.pkg)
		}
		pattern, err := regexp.Compile(m.matcher())
		if err != nil || !slices.ContainsFunc(tests[m.pkg], pattern.MatchString) {
			t.Errorf("%s:%d: there is no test %s in %s (%v)", m.file, m.line, m.test, m.pkg, err)
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testsOf returns the names of the tests of a package.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunction.FindAllSubmatch(source, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

// marked is a file with a statement below a mark.
func marked(op, code string) string {
	return "package p\n\nfunc f() {\n\t//mutate:" + op + " TestF a hole\n\t// A comment may come between.\n" + code + "\n}\n"
}

func TestApply(t *testing.T) {
	for _, test := range []struct{ op, code, want string }{
		{"false", "\tif a || b {\n\t}", "\tif false && (a || b) {\n\t}"},
		{"false", "\tif x := g(); x {\n\t}", "\tif x := g(); false && (x) {\n\t}"},
		{"true", "\tfor i := 0; i < n; i++ {\n\t}", "\tfor i := 0; true || (i < n); i++ {\n\t}"},
		{"true", "\treturn a && b // why", "\treturn true || (a && b) // why"},
		{"drop", "\tg(a,\n\t\tb) // why", "\tif false { g(a,\n\t\tb) } // why"},
		{"drop", "\tif a {\n\t\tg()\n\t}", "\tif false { if a {\n\t\tg()\n\t} }"},
		{`swap "a" "b"`, "\tif a {\n\t\ta()\n\t}", "\tif b {\n\t\ta()\n\t}"}, // the first line counts first
		{`swap "b()" "c()"`, "\tif a {\n\t\tb()\n\t}", "\tif a {\n\t\tc()\n\t}"},
		{"swap `\"x\"` \"`y`\"", "\tg(\"x\")", "\tg(`y`)"},
	} {
		source := marked(test.op, test.code)
		marks, err := marksIn("p.go", []byte(source))
		if err != nil || len(marks) != 1 {
			t.Fatalf("%s: %v, %v", test.op, marks, err)
		}
		changed, err := marks[0].apply([]byte(source))
		if want := marked(test.op, test.want); err != nil || string(changed) != want {
			t.Errorf("got %v\n%s\nwant\n%s", err, changed, want)
		}
	}
}

func TestApplyToCases(t *testing.T) {
	code := "package p\n\nfunc f() {\n\tswitch {\n\t//mutate:OP x/y.Test(A|B).* a hole\n\tcase a, b:\n\t\tg()\n\tdefault:\n\t}\n}\n"
	for op, want := range map[string]string{
		"false": "\tcase false && (a), false && (b):\n\t\tg()\n", "drop": "\t\n",
	} {
		source := strings.Replace(code, "OP", op, 1)
		marks, err := marksIn("p.go", []byte(source))
		if err != nil || len(marks) != 1 || marks[0].pkg != "x/y" || marks[0].test != "Test(A|B).*" || marks[0].name != "a hole" {
			t.Fatalf("%+v, %v", marks, err)
		}
		changed, err := marks[0].apply([]byte(source))
		if want := strings.Replace(source, "\tcase a, b:\n\t\tg()\n", want, 1); err != nil || string(changed) != want {
			t.Errorf("got %v\n%s\nwant\n%s", err, changed, want)
		}
	}
}

func TestMarksThatDoNotApply(t *testing.T) {
	for _, test := range []struct {
		op, code string
		want     error
	}{
		{"false", "\tg()", errMisplace},
		{"false", "\n\tif a {\n\t}", errMisplace}, // not directly above
		{"drop", "", errMisplace},
		{`swap "a" "b"`, "\tg(a, a)", errText},
		{`swap "x" "b"`, "\tg(a)\n\tx()", errText}, // of the next statement
		{`swap "g(" "g"`, "\tg(a)", errBroken},
		{"flip", "\tg()", errMark},
		{`swap "a"`, "\tg(a)", errMark},
		{`swap "a" "a"`, "\tg(a)", errMark},
	} {
		source := marked(test.op, test.code)
		marks, err := marksIn("p.go", []byte(source))
		if err == nil {
			_, err = marks[0].apply([]byte(source))
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s above %q: got %v, want %v", test.op, test.code, err, test.want)
		}
	}
}

// A test of another module is run in the directory of that module.
func TestModule(t *testing.T) {
	t.Chdir("../..")
	for pkg, want := range map[string][2]string{
		"gosdktask":                  {"gosdktask", "."},
		"gosdktask/examples/restart": {"gosdktask/examples", "restart"},
		"task/sqlitestore":           {".", "task/sqlitestore"},
	} {
		if dir, below := (mark{pkg: pkg}).module(); dir != want[0] || below != want[1] {
			t.Errorf("%s is %s in %s", pkg, below, dir)
		}
	}
}
