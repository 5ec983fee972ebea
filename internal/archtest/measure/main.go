// Command measure counts the lines of code that are shipped: those of the packages of this
// module that cmd/thoughtgate is built of, without tests, generated code, blank lines and
// comments. It prints the lines of each package and their sum.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	const format = `{{with .Module}}{{if .Main}}{{$.Dir}} {{join $.GoFiles " "}}{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-deps", "-f", format, "./cmd/thoughtgate") //nolint:noctx // it ends with this program
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	sum := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		n := 0
		for _, name := range fields[1:] {
			text, err := os.ReadFile(filepath.Join(fields[0], name))
			if err != nil {
				return err
			}
			n += lines(text)
		}
		fmt.Printf("%6d %s\n", n, fields[0])
		sum += n
	}
	fmt.Printf("%6d lines of code\n", sum)
	return nil
}

// lines returns how many lines of a Go file have code, and 0 if it is generated.
func lines(text []byte) int {
	fset := token.NewFileSet()
	head, err := parser.ParseFile(fset, "", text, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil || ast.IsGenerated(head) {
		return 0
	}
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n")
		n += end - max(first, last+1) + 1
		last = end
	}
}
