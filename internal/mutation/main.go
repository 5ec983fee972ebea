// Command mutation changes single lines of the gate on which its security
// depends, one at a time, and demands that the test named for each change
// fails. A test that still passes proves nothing about its line.
//
//	go run ./internal/mutation              all changes
//	go run ./internal/mutation approval/    those whose name or file has this text
//
// The changes are described by marks: comments directly above the code that they change.
// A mark has the change, the test that must fail, and the vulnerability that the change would be:
//
//	//mutate:false TestDecideWho anybody may decide
//	if !w.admits(who) {
//
// The operations are
//
//	false, true        make the condition of an if, a for or a case, or a returned boolean, constant
//	drop               never execute the statement, or remove the case
//	swap "old" "new"   replace a text: it is exactly once in the line, or else in what begins there
//
// The test is one of the package of the file, or internal/policy.TestWords of another. It
// may be a regular expression without spaces, which matches whole names. Several marks may
// stand above one statement.
//
// The working tree stays as it is: go test is given an overlay with the changed file.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
)

var (
	errSurvived = errors.New("survived: the test passes although the code is changed")
	errUntested = errors.New("untested: there is no such test")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.New(os.Stderr, "mutation: ", 0).Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	marks, err := scan(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "thoughtgate-mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tried, bad := 0, 0
	for _, m := range marks {
		if !strings.Contains(m.name+" "+m.file, flags.Arg(0)) {
			continue
		}
		tried++
		if err := m.try(ctx, dir); err != nil {
			bad++
			_, _ = fmt.Fprintf(out, "BAD   %s (%s:%d, %s -run '%s')\n      %v\n", m.name, m.file, m.line, m.pkg, m.matcher(), err)
			continue
		}
		_, _ = fmt.Fprintf(out, "ok    %s\n", m.name)
	}
	_, _ = fmt.Fprintf(out, "%d of %d changes were noticed\n", tried-bad, tried)
	if bad > 0 {
		return fmt.Errorf("%d changes were not noticed, or could not be tried", bad)
	}
	return ctx.Err()
}

// try makes the change and returns nil if the test fails because of it.
func (m mark) try(ctx context.Context, dir string) error {
	overlay, err := m.overlay(dir)
	if err != nil {
		return err
	}
	module, pkg := m.module()
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout=5m", "-overlay="+overlay, "-run="+m.matcher(), "./"+pkg)
	test.Dir = module
	said, err := test.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case bytes.Contains(said, []byte("[no tests to run]")):
		return errUntested
	case err == nil:
		return errSurvived
	case bytes.Contains(said, []byte("[build failed]")) || bytes.Contains(said, []byte("[setup failed]")):
		return fmt.Errorf("%w:\n%s", errBroken, said)
	default:
		return nil
	}
}

// module returns the directory of the module that the test is part of, and the package
// below it.
func (m mark) module() (dir, pkg string) {
	for dir = filepath.Clean(m.pkg); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	pkg, err := filepath.Rel(dir, m.pkg)
	if err != nil {
		return ".", m.pkg
	}
	return dir, filepath.ToSlash(pkg)
}

// overlay writes the changed file, and the overlay for go test.
func (m mark) overlay(dir string) (string, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	source, err = m.apply(source)
	if err != nil {
		return "", err
	}
	changed, list := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, source, 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, replace, 0o600)
}
