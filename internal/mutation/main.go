// Command mutation changes single lines of the gate on which its security
// depends, one at a time, and demands that the test named for each change
// fails. A test that still passes proves nothing about its line.
//
//	go run ./internal/mutation              all changes
//	go run ./internal/mutation approval/    those whose name or file has this text
//
// The working tree stays as it is: go test is given an overlay with the changed
// file. A change whose text is no longer in its file is reported as moved, and
// must be adjusted in the table.
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
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// A mutation is a change of one place in a file, and the test that must notice.
type mutation struct {
	name     string
	file     string // below the root of the repository
	old, new string // old is in the file exactly once
	pkg      string // of the test, below the root of the repository
	run      string // as in go test -run
}

var (
	errMoved    = errors.New("moved: the text to change is not in the file exactly once; adjust the table")
	errSurvived = errors.New("survived: the test passes although the line is changed")
	errUntested = errors.New("untested: there is no such test; adjust the table")
	errBroken   = errors.New("broken: the change does not compile; adjust the table")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.New(os.Stderr, "mutation: ", 0).Fatal(err)
	}
}

// all returns the changes of all tables.
func all() []mutation {
	return slices.Concat(mutations, operatorMutations, bridgeMutations, channelMutations, grantMutations, shownMutations, observed, kept, upstreams, connections, library, texts)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "thoughtgate-mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tried, bad := 0, 0
	for _, m := range all() {
		if !strings.Contains(m.name+" "+m.file, flags.Arg(0)) {
			continue
		}
		tried++
		if err := m.try(ctx, dir); err != nil {
			bad++
			_, _ = fmt.Fprintf(out, "BAD   %s (%s, %s -run '%s')\n      %v\n", m.name, m.file, m.pkg, m.run, err)
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
func (m mutation) try(ctx context.Context, dir string) error {
	overlay, err := m.overlay(dir)
	if err != nil {
		return err
	}
	module, pkg := m.module()
	//nolint:gosec // the arguments are those of the table
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout=5m", "-overlay="+overlay, "-run="+m.run, "./"+pkg)
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
func (m mutation) module() (dir, pkg string) {
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

// overlay writes the changed file, and what tells go test of it.
func (m mutation) overlay(dir string) (string, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errMoved, err)
	}
	if bytes.Count(text, []byte(m.old)) != 1 {
		return "", fmt.Errorf("%w: %q", errMoved, m.old)
	}
	changed, list := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, replace, 0o600)
}
