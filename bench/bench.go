package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

// module is what the paths of our packages begin with. Named by their whole
// paths, they are found from wherever in the module this program is run.
const module = "github.com/thoughtgate/thoughtgate-go/"

// A bench is one run of this program.
type bench struct {
	options

	now  func() time.Time
	out  io.Writer
	self string // this program's file
	dir  string // for the built gate and what it may write
	rand *rand.Rand
	rows []report.Row
}

// A part measures one thing. A new part is a method and a line in [parts].
type part struct {
	name string
	run  func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"start", (*bench).start},
		{"forward", (*bench).forward},
		{"pipe", (*bench).pipe},
		{"connections", (*bench).connections},
		{"result", (*bench).result},
		{"held", (*bench).held},
		{"streams", (*bench).idleStreams},
		{"subscribers", (*bench).subscribers},
		{"micro", (*bench).micro},
		{"growth", (*bench).growth},
	}
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

func (b *bench) run(ctx context.Context) error {
	began := b.now()
	if err := b.buildGate(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, rulesFile), rules(), 0o600); err != nil {
		return err
	}
	errs := []error{b.printf("%s, %s/%s, %d processors, which all processes share; load average before: %s; -seed %d\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), proc.LoadAverage(), b.seed)}
	for _, p := range parts() {
		if !slices.Contains(b.parts, p.name) {
			continue
		}
		err := p.run(b, ctx)
		if ctx.Err() != nil { // the servers have been stopped too, so what failed says nothing about them
			errs = append(errs, fmt.Errorf("%s: %w", p.name, context.Cause(ctx)))
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err)) // the other parts still have something to say
		}
	}
	errs = append(errs, b.printf("\nBudgets. A ratio is the used share of the budget. %s\n\n%s\ntook %s\n",
		report.Spreads, report.Budgets(b.rows), b.now().Sub(began).Round(time.Second)))
	return errors.Join(errs...)
}

// buildGate builds the gate as a release is built, unless there is one.
func (b *bench) buildGate(ctx context.Context) error {
	if b.gate != "" || !slices.Contains(b.targets, targetGate) {
		return nil
	}
	b.gate = filepath.Join(b.dir, "thoughtgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -funcalign=4", "-o", b.gate, //nolint:gosec // the only variable is our own file name
		module+"cmd/thoughtgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the gate: %w\n%s", err, out)
	}
	return nil
}

const rulesFile = "rules.yaml"

// rules returns a configuration whose rules are all tried before a call is
// forwarded: the budgets are for a gate with policy on.
func rules() []byte {
	text := []byte("version: 1\nstore: \"memory:\"\noperators: { token: " + operatorToken + ", max_connections: 8 }\ndefault: forward\n" +
		"limits: { max_concurrent_requests: 1000000, max_connections: 1000000,\n" +
		"  max_requests_per_client: 1000000, max_streams_per_client: 1000000, max_connections_per_client: 1000000 }\nrules:\n")
	for i := range 100 {
		text = fmt.Appendf(text, "  - { match: \"*_%d\", action: approve }\n", i)
	}
	return text
}

func (b *bench) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(b.out, format, args...)
	return err
}

// The ways to the upstream.
const (
	targetDirect = "direct"
	targetProxy  = "proxy"
	targetGate   = "gate"
	targetNginx  = "nginx" // if it is installed
)

func allTargets() []string { return []string{targetDirect, targetNginx, targetProxy, targetGate} }

// A target is one way to the upstream: the process that agents talk to.
type target struct {
	*proc.Process

	name string
}

// failed adds to an error which target it is about and what that said last.
func (t target) failed(err error) error {
	return fmt.Errorf("%s: %w; its log ends with:\n%s", t.name, err, t.Log())
}

// A rig is an upstream and some ways to it.
type rig struct {
	targets []target
	stop    []func() error // in the order of starting
}

// assemble starts an upstream and the named ways to it.
func (b *bench) assemble(ctx context.Context, names ...string) (*rig, error) {
	r := &rig{}
	upstream, err := r.add(ctx, proc.Command{Name: "upstream", Path: b.self, Args: []string{peerCommand, "upstream"}, Dir: b.dir})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		t, err := b.reach(ctx, r, name, upstream)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.targets = append(r.targets, t)
	}
	return r, nil
}

// reach starts the named way to the upstream.
func (b *bench) reach(ctx context.Context, r *rig, name string, upstream *proc.Process) (target, error) {
	if name == targetDirect {
		return target{upstream, name}, nil
	}
	command := b.command(name, upstream)
	if name == targetNginx {
		var err error
		if command, err = b.nginx(ctx, upstream); err != nil {
			return target{}, err
		}
	}
	p, err := r.add(ctx, command)
	return target{p, name}, err
}

// command returns how the proxy or the gate is started.
func (b *bench) command(name string, upstream *proc.Process) proc.Command {
	url := "http://" + upstream.Agents
	if name == targetProxy {
		return proc.Command{Name: name, Path: b.self, Args: []string{peerCommand, "proxy", url}, Dir: b.dir}
	}
	return proc.Command{
		Name: name, Path: b.gate, Dir: b.dir,
		Args: []string{
			"serve", "--config", filepath.Join(b.dir, rulesFile),
			"--listen", "127.0.0.1:0", "--operators-listen", "127.0.0.1:0", "--upstream", url + "/mcp",
		},
	}
}

func (r *rig) add(ctx context.Context, c proc.Command) (*proc.Process, error) {
	p, err := proc.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	r.stop = append(r.stop, p.Stop)
	return p, nil
}

// Close stops all processes, those in front first.
func (r *rig) Close() error {
	var errs []error
	for _, stop := range slices.Backward(r.stop) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// shuffled returns the targets in the order for a round. A fixed order would have
// each target suffer from what the one before it leaves behind.
func (r *rig) shuffled(random *rand.Rand) []target {
	order := slices.Clone(r.targets)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
