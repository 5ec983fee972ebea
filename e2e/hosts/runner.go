package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

//go:embed npm/*/package.json npm/*/package-lock.json
var pins embed.FS

// install installs a host and returns its node_modules.
func install(ctx context.Context, cache string, h host) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	own, err := fs.Sub(pins, "npm/"+h.pins)
	if err != nil {
		return "", err
	}
	dir, err := testenv.InstallNPM(ctx, cache, "host-"+h.pins, own)
	if err != nil {
		return "", fmt.Errorf("installing %s: %w", h.title, err)
	}
	return filepath.Join(dir, "node_modules"), nil
}

// A runner runs many cells, each in its own process.
type runner struct {
	dir      string // for the files of runs
	cache    string
	gate     string
	parallel int

	mu       sync.Mutex
	measured *measured
}

// A job describes the cell of a process.
type job struct {
	Host     string `json:"host"`
	Scenario string `json:"scenario"`
	Gate     string `json:"gate"`
	Modules  string `json:"modules"`
}

// run runs hosts in scenarios. It goes through the scenarios one by one, so that the same slow
// host is not started several times at once.
func (r *runner) run(ctx context.Context, hosts []host, scenarios []scenario) error {
	modules := map[string]string{}
	for _, h := range hosts {
		dir, err := install(ctx, r.cache, h)
		if err != nil {
			return err
		}
		modules[h.name] = dir
	}
	var failures []error
	var group errgroup.Group
	group.SetLimit(r.parallel)
	for _, s := range scenarios {
		for _, h := range hosts {
			if !s.suits(h) {
				continue
			}
			group.Go(func() error {
				err := r.one(ctx, job{Host: h.name, Scenario: s.name, Gate: r.gate, Modules: modules[h.name]})
				r.mu.Lock()
				defer r.mu.Unlock()
				failures = append(failures, err)
				return nil
			})
		}
	}
	return errors.Join(group.Wait(), errors.Join(failures...))
}

// one runs a job in new namespaces and stores its record.
func (r *runner) one(ctx context.Context, j job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir := filepath.Join(r.dir, j.Host+"-"+j.Scenario)
	rec, err := r.spawn(ctx, dir, j)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", j.Host, j.Scenario, err)
		say("%v\n", err)
		return err
	}
	say("%s\n", rec.line())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured.add(rec)
	return errors.Join(r.measured.write(measuredFile), rec.unsafe())
}

func (r *runner) spawn(ctx context.Context, dir string, j job) (record, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750)); err != nil {
		return record{}, err
	}
	if err := writeJSON(filepath.Join(dir, "job.json"), j); err != nil {
		return record{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return record{}, err
	}
	cmd := exec.CommandContext(ctx, self, "-job", dir)
	isolate(cmd)
	cmd.WaitDelay = stopLimit
	if out, err := cmd.CombinedOutput(); err != nil {
		return record{}, fmt.Errorf("%w: %s; files: %s", err, strings.TrimSpace(string(out)), dir)
	}
	if err := os.RemoveAll(filepath.Join(dir, "home")); err != nil { // its processes have ended
		return record{}, err
	}
	var rec record
	return rec, readJSON(filepath.Join(dir, "record.json"), &rec)
}

// runJob runs the cell described in a directory. The caller has created the namespaces.
func runJob(ctx context.Context, dir string, now func() time.Time) error {
	if err := settle(); err != nil {
		return err
	}
	var j job
	if err := readJSON(filepath.Join(dir, "job.json"), &j); err != nil {
		return err
	}
	hosts, err := hostsNamed(j.Host)
	if err != nil {
		return err
	}
	s, err := scenarioOf(j.Scenario)
	if err != nil {
		return err
	}
	c := &cell{host: hosts[0], scenario: s, gate: j.Gate, modules: j.Modules, dir: dir, now: now, linger: 3 * time.Second}
	rec, err := c.run(ctx)
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "record.json"), rec)
}

func writeJSON(file string, value any) error {
	text, err := json.Marshal(value, indent)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

func readJSON(file string, value any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}
