package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// directive begins every mark.
const directive = "//mutate:"

// The operations of marks.
const (
	opFalse = "false"
	opTrue  = "true"
	opDrop  = "drop"
	opSwap  = "swap"
)

// A mark is a directive comment. It describes one change of the code below it, and names
// the test that must fail once that change is made.
type mark struct {
	file     string // below the root of the repository
	line     int    // of the comment
	op       string
	old, new string // of opSwap
	pkg      string // of the test, below the root of the repository
	test     string // a regular expression that matches whole names of tests
	name     string // the hole that the change would be
}

var (
	errMark     = errors.New("a mark is //mutate:false, true, drop or swap \"old\" \"new\", then the test, then the hole")
	errMisplace = errors.New("misplaced: the mark must stand directly above the code that it changes")
	errText     = errors.New("the old text must be exactly once in the line below, or else in the whole of what begins there")
	errBroken   = errors.New("broken: the change does not compile")
)

// testPattern splits internal/policy.TestWords; the package is left out if it is that of the mark.
var testPattern = regexp.MustCompile(`^(?:([a-z0-9_/-]+)\.)?((?:Test|Fuzz|Example)\S*)$`)

// scan returns the marks of the Go files below root, in the order of the files.
func scan(root string) ([]mark, error) {
	var all []mark
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		marks, err := marksIn(filepath.ToSlash(below), source)
		all = append(all, marks...)
		return err
	})
	return all, err
}

// marksIn returns the marks of one file.
func marksIn(file string, source []byte) ([]mark, error) {
	if !bytes.Contains(source, []byte(directive)) {
		return nil, nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var marks []mark
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			text, ok := strings.CutPrefix(comment.Text, directive)
			if !ok {
				continue
			}
			m, err := parseMark(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", fset.Position(comment.Pos()), err)
			}
			m.file, m.line, m.pkg = file, fset.Position(comment.Pos()).Line, cmp.Or(m.pkg, path.Dir(file))
			marks = append(marks, m)
		}
	}
	return marks, nil
}

// parseMark reads what follows the directive.
func parseMark(text string) (mark, error) {
	var m mark
	m.op, text, _ = strings.Cut(text, " ")
	switch m.op {
	case opFalse, opTrue, opDrop:
	case opSwap:
		var err error
		if m.old, text, err = unquotePrefix(text); err != nil {
			return m, err
		}
		if m.new, text, err = unquotePrefix(text); err != nil {
			return m, err
		}
		if m.old == m.new || m.old == "" {
			return m, errMark
		}
	default:
		return m, errMark
	}
	test, name, _ := strings.Cut(text, " ")
	parts := testPattern.FindStringSubmatch(test)
	if parts == nil || strings.TrimSpace(name) == "" {
		return m, errMark
	}
	m.pkg, m.test, m.name = parts[1], parts[2], strings.TrimSpace(name)
	return m, nil
}

// unquotePrefix reads a Go string and the space after it.
func unquotePrefix(text string) (value, rest string, err error) {
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", errMark
	}
	value, err = strconv.Unquote(quoted)
	return value, strings.TrimPrefix(text[len(quoted):], " "), err
}

// apply returns the source of the marked file with the change made.
func (m mark) apply(source []byte) ([]byte, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, m.file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	file := fset.File(parsed.Pos())
	line, err := m.target(source)
	if err != nil {
		return nil, err
	}
	node := nodeAt(parsed, file, line)
	if node == nil {
		return nil, errMisplace
	}
	var changed []byte
	if m.op == opSwap {
		changed, err = m.swap(source, lineRange(source, file, line), nodeRange(file, node))
	} else {
		changed, err = m.rewrite(source, file, node)
	}
	if err != nil {
		return nil, err
	}
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return changed, nil
}

// target returns the first line below the mark that is not a comment.
func (m mark) target(source []byte) (int, error) {
	lines := bytes.Split(source, []byte("\n"))
	if !bytes.HasPrefix(bytes.TrimSpace(lines[m.line-1]), []byte(directive)) {
		return 0, errMisplace // it ends a line of code
	}
	for i := m.line; i < len(lines); i++ {
		if !bytes.HasPrefix(bytes.TrimSpace(lines[i]), []byte("//")) {
			return i + 1, nil
		}
	}
	return 0, errMisplace
}

// nodeAt returns the longest part of the file that begins on the line.
func nodeAt(parsed *ast.File, file *token.File, line int) ast.Node {
	var longest ast.Node
	ast.Inspect(parsed, func(n ast.Node) bool {
		if n == nil || n.End() < file.LineStart(line) {
			return false
		}
		if file.Line(n.Pos()) == line && (longest == nil || n.End() > longest.End()) && n != parsed {
			longest = n
		}
		return true
	})
	return longest
}

// An extent is a range of bytes of a file.
type extent struct{ from, to int }

func lineRange(source []byte, file *token.File, line int) extent {
	from := file.Offset(file.LineStart(line))
	if n := bytes.IndexByte(source[from:], '\n'); n >= 0 {
		return extent{from, from + n}
	}
	return extent{from, len(source)}
}

func nodeRange(file *token.File, n ast.Node) extent {
	return extent{file.Offset(n.Pos()), file.Offset(n.End())}
}

// swap replaces the old text, in the first place that has it.
func (m mark) swap(source []byte, places ...extent) ([]byte, error) {
	for _, p := range places {
		text := source[p.from:p.to]
		switch bytes.Count(text, []byte(m.old)) {
		case 0:
		case 1:
			return splice(source, p, bytes.Replace(text, []byte(m.old), []byte(m.new), 1)), nil
		default:
			return nil, fmt.Errorf("%w: %q", errText, m.old)
		}
	}
	return nil, fmt.Errorf("%w: %q", errText, m.old)
}

// rewrite makes conditions constant, or a statement unreachable. All that they mention
// stays in the code, because Go refuses variables and imports that are not used.
func (m mark) rewrite(source []byte, file *token.File, node ast.Node) ([]byte, error) {
	switch m.op {
	case opFalse:
		return wrap(source, file, conditions(node), "false && (", ")")
	case opTrue:
		return wrap(source, file, conditions(node), "true || (", ")")
	}
	switch n := node.(type) {
	case *ast.CaseClause, *ast.CommClause:
		return splice(source, nodeRange(file, n), nil), nil
	case ast.Stmt:
		return wrap(source, file, []ast.Node{n}, "if false { ", " }")
	}
	return nil, fmt.Errorf("%w: only statements and cases can be dropped", errMisplace)
}

// conditions returns what opFalse and opTrue make constant.
func conditions(node ast.Node) []ast.Node {
	var found []ast.Node
	add := func(all ...ast.Expr) {
		for _, e := range all {
			if e != nil {
				found = append(found, e)
			}
		}
	}
	switch n := node.(type) {
	case *ast.IfStmt:
		add(n.Cond)
	case *ast.ForStmt:
		add(n.Cond)
	case *ast.CaseClause:
		add(n.List...)
	case *ast.ReturnStmt:
		add(n.Results...)
	}
	return found
}

// wrap writes text before and after each of the nodes.
func wrap(source []byte, file *token.File, nodes []ast.Node, before, after string) ([]byte, error) {
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: no condition begins there", errMisplace)
	}
	for _, n := range slices.Backward(nodes) {
		at := nodeRange(file, n)
		source = splice(source, at, slices.Concat([]byte(before), source[at.from:at.to], []byte(after)))
	}
	return source, nil
}

// splice returns a copy of the source with other text in a place.
func splice(source []byte, place extent, text []byte) []byte {
	return slices.Concat(source[:place.from], text, source[place.to:])
}

// matcher matches the names of the tests of the mark.
func (m mark) matcher() string { return "^(" + m.test + ")$" }
