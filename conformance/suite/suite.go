// Package suite runs the official MCP conformance suite against servers and clients, and compares
// the results of two of them.
//
// The suite is a Node.js program with pinned versions, including Node.js itself. [Install]
// installs it in a cache outside the repository, [Suite.Run] runs it and reads the results, and
// [Compare] returns what one server or client loses compared with another. The package is independent of gateways.
package suite

import (
	"context"
	"crypto/sha256"
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

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The pins of all installed packages. npm verifies the digests in them.
//
//go:embed package.json package-lock.json
var pins embed.FS

//go:embed server.mjs
var server []byte

// scenarioTimeout bounds one scenario. The slowest takes about a second on an idle machine, so
// even on a busy machine only a scenario that hangs exceeds it.
const scenarioTimeout = 2 * time.Minute

// A Suite is an installed conformance suite.
type Suite struct {
	Node   string // the program that runs Script
	Script string // the suite's command line
	Server string // the script of a server of the TypeScript SDK
}

// Install returns the suite from the cache directory, and installs it there with npm if it is
// missing. Several processes may do so at once.
func Install(ctx context.Context, cache string) (*Suite, error) {
	dir, err := testenv.InstallNPM(ctx, cache, "conformance", pins)
	if err != nil {
		return nil, fmt.Errorf("install the conformance suite: %w", err)
	}
	modules := filepath.Join(dir, "node_modules")
	s := &Suite{
		Node:   filepath.Join(modules, ".bin", "node"),
		Script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		Server: filepath.Join(dir, fmt.Sprintf("server-%x.mjs", sha256.Sum256(server))),
	}
	if err := os.WriteFile(s.Server, server, 0o600); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.Node); err != nil {
		s.Node = "node" // this platform has no packaged Node.js; the suite needs 22 or newer
	}
	return s, nil
}

// A Target describes a run of the suite.
type Target struct {
	URL      string // of the server
	Client   string // the command of a client, which gets the URL of a server of the suite; then there is no URL
	Version  string // protocol version; empty runs each scenario, extensions included, at the version it was written for
	Scenario string // empty runs all scenarios of the version
}

// Run runs the suite against a server or a client, and keeps the suite's files in dir, which it creates.
// Failing checks are not an error, but an incomplete run is.
func (s *Suite) Run(ctx context.Context, t Target, dir string) (Results, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.Node, s.arguments(t, dir)...)
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
	args := []string{s.Script, "server", "--url", t.URL}
	if t.Client != "" {
		args = []string{s.Script, "client", "--command", t.Client}
	}
	args = append(args, "--output-dir", dir, "--timeout", strconv.FormatInt(scenarioTimeout.Milliseconds(), 10))
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

// expected returns the number of scenarios that the suite announced. So a suite that stops
// early is not mistaken for one with few failures.
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

var resultDir = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$`)

// read reads the files in dir: one directory for each scenario that the suite began, with the
// checks if the scenario was completed. The name of a scenario may have a slash.
func read(dir string) (Results, error) {
	results := make(Results)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		name := resultDir.FindStringSubmatch(path)
		if err != nil || !e.IsDir() || name == nil {
			return err
		}
		results[name[1]], err = checksIn(filepath.Join(dir, path))
		if err != nil {
			return fmt.Errorf("checks of scenario %s: %w", name[1], err)
		}
		return fs.SkipDir
	})
	return results, err
}

// checksIn returns the checks of a scenario, or nil if it was not completed.
func checksIn(dir string) (checks []Check, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "checks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return checks, json.Unmarshal(data, &checks)
}
