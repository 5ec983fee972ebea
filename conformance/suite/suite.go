// Package suite runs the official MCP conformance suite against servers and
// compares what it says of two of them.
//
// The suite is a Node.js program with pinned versions, its own Node.js
// included. [Install] puts it into a cache outside the repository, [Suite.Run]
// points it at a server and reads its verdicts, [Compare] tells what one
// server loses against another. The package knows nothing of gateways.
package suite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/npm"
)

// pins says exactly what is installed. npm verifies it by the digests in it.
//
//go:embed package.json package-lock.json
var pins embed.FS

// scenarioTimeout bounds one scenario. The slowest takes about a second on an
// idle machine, so only a scenario that hangs meets it, also beside busy cores.
const scenarioTimeout = 2 * time.Minute

// Suite is an installed conformance suite.
type Suite struct {
	Node   string // the program that runs Script
	Script string // the suite's command line
}

// Install returns the suite from the cache directory, after putting it there
// with npm if it is not there yet. Several processes may do so at once.
func Install(ctx context.Context, cache string) (*Suite, error) {
	dir, err := npm.Install(ctx, cache, "conformance", pins)
	if err != nil {
		return nil, fmt.Errorf("install the conformance suite: %w", err)
	}
	modules := filepath.Join(dir, "node_modules")
	s := &Suite{
		Node:   filepath.Join(modules, ".bin", "node"),
		Script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}
	if _, err := os.Stat(s.Node); err != nil {
		s.Node = "node" // this platform has no packaged Node.js; the suite needs 22 or newer
	}
	return s, nil
}

// Target says what the suite runs against.
type Target struct {
	URL      string
	Version  string // protocol version; empty runs each scenario, extensions included, at the version it was written for
	Scenario string // empty runs all scenarios of the version
}

// Run runs the suite against a server and keeps the suite's own files in dir,
// which it creates. Failing checks are no error; a suite that does not run to its
// end is.
func (s *Suite) Run(ctx context.Context, t Target, dir string) (Results, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.Node, s.arguments(t, dir)...) //nolint:gosec // the program comes from Install
	cmd.Dir = dir
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("conformance suite: %w\n%s", err, out)
	}
	results, err := read(dir)
	if err != nil {
		return nil, err
	}
	if want := expected(t, out); len(results) == 0 || len(results) != want {
		return nil, fmt.Errorf("conformance suite reported %d of %d scenarios\n%s", len(results), want, out)
	}
	return results, nil
}

func (s *Suite) arguments(t Target, dir string) []string {
	args := []string{
		s.Script, "server", "--url", t.URL, "--output-dir", dir,
		"--timeout", strconv.FormatInt(scenarioTimeout.Milliseconds(), 10),
	}
	if t.Scenario != "" {
		args = append(args, "--scenario", t.Scenario)
	} else {
		args = append(args, "--suite", "all")
	}
	if t.Version != "" {
		args = append(args, "--spec-version", t.Version)
	}
	return args
}

var announced = regexp.MustCompile(`^Running all suite \((\d+) scenarios\)`)

// expected returns how many scenarios the suite said it would run, so that a
// suite that dies half-way cannot look like one with little to complain about.
func expected(t Target, out []byte) int {
	if t.Scenario != "" {
		return 1
	}
	found := announced.FindSubmatch(out)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return 0
	}
	return n
}

var resultDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$`)

// read collects what the suite left in dir: one directory per scenario that it
// began, and in it the checks if the scenario came to its end.
func read(dir string) (Results, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	results := make(Results)
	for _, e := range entries {
		name := resultDir.FindStringSubmatch(e.Name())
		if name == nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), "checks.json"))
		if errors.Is(err, fs.ErrNotExist) {
			results[name[1]] = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		var checks []Check
		if err := json.Unmarshal(data, &checks); err != nil {
			return nil, fmt.Errorf("checks of scenario %s: %w", name[1], err)
		}
		results[name[1]] = checks
	}
	return results, nil
}
