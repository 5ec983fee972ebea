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

// module is the prefix of this project's packages. With full paths, packages are found from
// every directory of the module.
const module = "github.com/thoughtgate/thoughtgate-go/"

// A bench is one run of this program.
type bench struct {
	options

	now  func() time.Time
	out  io.Writer
	self string // this program's file
	dir  string // for the built gate and its files
	rand *rand.Rand
	rows []report.Row
}

// A part measures one aspect. A new part needs a method and a line in [parts].
type part struct {
	name string
	run  func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"start", (*bench).start},
		{"forward", (*bench).forward},
		{"endpoints", (*bench).endpoints},
		{"pipe", (*bench).pipe},
		{"connections", (*bench).connections},
		{"result", (*bench).result},
		{"held", (*bench).held},
		{"life", (*bench).life},
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
		if ctx.Err() != nil { // the servers were stopped, too, so the error is not about them
			errs = append(errs, fmt.Errorf("%s: %w", p.name, context.Cause(ctx)))
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err)) // the other parts are still measured
		}
	}
	errs = append(errs, b.printf("\nBudgets. A ratio is the used share of the budget. %s\n\n%s\ntook %s\n",
		report.Spreads, report.Budgets(b.rows), b.now().Sub(began).Round(time.Second)))
	return errors.Join(errs...)
}

// buildGate builds the gate like a release, unless the options name one.
func (b *bench) buildGate(ctx context.Context) error {
	if b.gate != "" || !slices.Contains(b.targets, targetGate) {
		return nil
	}
	b.gate = filepath.Join(b.dir, "thoughtgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -funcalign=4", "-o", b.gate,
		module+"cmd/thoughtgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the gate: %w\n%s", err, out)
	}
	return nil
}

const rulesFile = "rules.yaml"

// rules returns a configuration in which all rules are tried before a call is forwarded,
// because the budgets apply to a gate with a policy.
func rules() []byte {
	text := []byte("version: 1\nstore: \"memory:\"\noperators: { token: " + operatorToken + " }\ndefault: forward\n" +
		"limits: { max_concurrent_requests: 1000000, max_connections: 1000000, max_streams: 1000000 }\nrules:\n")
	for i := range 100 {
		text = fmt.Appendf(text, "  - { match: \"*_%d\", action: approve }\n", i)
	}
	return text
}

func (b *bench) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(b.out, format, args...)
	return err
}

// The names of the targets.
const (
	targetDirect = "direct"
	targetProxy  = "proxy"
	targetGate   = "gate"
	targetNginx  = "nginx" // only if it is installed
)

func allTargets() []string { return []string{targetDirect, targetNginx, targetProxy, targetGate} }

// A target is the process that agents connect to: the upstream itself, a proxy or a gate.
type target struct {
	*proc.Process

	name string
}

// failed adds the name of the target and the end of its log to an error.
func (t target) failed(err error) error {
	return fmt.Errorf("%s: %w; its log ends with:\n%s", t.name, err, t.Log())
}

// A rig is an upstream and several targets.
type rig struct {
	targets []target
	stop    []func() error // in the order of starting
}

// assemble starts an upstream and the named targets.
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

// reach starts the named target.
func (b *bench) reach(ctx context.Context, r *rig, name string, upstream *proc.Process) (target, error) {
	if name == targetDirect {
		return target{upstream, name}, nil
	}
	command := b.command(name, upstream)
	var err error
	if name == targetNginx {
		command, err = b.nginx(ctx, upstream)
	} else if n := servers[name]; n > 0 {
		command.Args[2], err = b.endpointConfig("http://"+upstream.Agents+"/mcp", n)
		command.Args = command.Args[:len(command.Args)-2] // without --upstream
	}
	if err != nil {
		return target{}, err
	}
	p, err := r.add(ctx, command)
	return target{p, name}, err
}

// command returns the command that starts the proxy or the gate.
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

// Close stops all processes, in reverse order of starting.
func (r *rig) Close() error {
	var errs []error
	for _, stop := range slices.Backward(r.stop) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// shuffled returns the targets in the order for a round. With a fixed order, the effects of
// each target would always disturb the same next one.
func (r *rig) shuffled(random *rand.Rand) []target {
	order := slices.Clone(r.targets)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
