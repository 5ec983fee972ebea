// Command hosts runs real, unchanged agent hosts with a real gate, and records how they handle
// calls that are forwarded, refused or held.
//
// Each host is installed from npm in the version that its package-lock.json pins. A run is one
// host in one scenario, in new namespaces, with an empty environment, an empty home directory,
// a scripted model, a scripted approver, and the demo's server behind the gate. The results
// are kept in e2e/hosts/measured.json. docs/hosts.csv is generated from them, and
// docs/hosts.md from the settings of the hosts.
//
// Run it from the root of the repository. It needs Go, npm and Linux, and tmux for the
// scenario esc. The exit status is not zero if a tool ran twice or without approval, or if a
// run failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	o := options{now: time.Now} // the one clock of the program
	flag.StringVar(&o.hosts, "hosts", "", "`names` of the hosts to run; all if there are none")
	flag.StringVar(&o.scenarios, "scenarios", "", "`names` of the scenarios, of the form a30 or r30 as well; all if there are none")
	flag.StringVar(&o.gate, "gate", "", "`file` of the gate; it is built if there is none")
	flag.IntVar(&o.parallel, "parallel", 4, "how many hosts to run at once")
	flag.BoolVar(&o.list, "list", false, "list hosts and scenarios")
	flag.BoolVar(&o.docs, "docs", false, "only write docs/hosts.md and docs/hosts.csv from what was measured before")
	job := flag.String("job", "", "run the one host of this `directory`; used by the program itself")
	flag.StringVar(&o.relay, "relay", "", "run the command that follows, and record what it and the host say in this `directory`; used by the program itself")
	flag.StringVar(&o.server, "server", "", "be the server of the run in this `directory`; used by the program itself")
	flag.Parse()
	if err := o.do(*job); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1)
	}
}

// options are the options of the command line.
type options struct {
	hosts, scenarios string
	gate             string
	parallel         int
	list, docs       bool
	relay, server    string
	now              func() time.Time
}

// Files that a run changes.
const (
	measuredFile = "e2e/hosts/measured.json"
	docsFile     = "docs/hosts.md"
	tableFile    = "docs/hosts.csv"
)

func (o options) do(job string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case job != "":
		return runJob(ctx, job, o.now)
	case o.relay != "":
		return relay(o.relay, flag.Args(), o.now)
	case o.server != "":
		return serveTool(ctx, o.server)
	case o.list:
		return list()
	case o.docs:
		m, err := readMeasured(measuredFile)
		if err != nil {
			return err
		}
		return errors.Join(m.write(measuredFile), m.writeDocs())
	default:
		return o.runAll(ctx)
	}
}

// list prints the names of the hosts, and the descriptions of the scenarios.
func list() error {
	say("hosts: %s\n", join(hostNames()))
	for _, name := range slices.Compact(slices.Sorted(slices.Values(split(allScenarios + " " + wrapScenarios)))) {
		s, err := scenarioOf(name)
		if err != nil {
			return err
		}
		say("%-10s %s\n", name, s.about)
	}
	return nil
}

// runAll runs every selected host in every selected scenario.
func (o options) runAll(ctx context.Context) error {
	hosts, err := hostsNamed(o.hosts)
	if err != nil {
		return err
	}
	scenarios, err := scenariosNamed(o.scenarios)
	if err != nil {
		return err
	}
	m, err := readMeasured(measuredFile)
	if err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	r := &runner{dir: filepath.Join(cache, "hosts"), cache: cache, gate: o.gate, measured: m, parallel: o.parallel}
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	if r.gate == "" {
		if r.gate, err = buildGate(ctx, r.dir); err != nil {
			return err
		}
	}
	if r.gate, err = filepath.Abs(r.gate); err != nil {
		return err
	}
	return errors.Join(r.run(ctx, hosts, scenarios), m.write(measuredFile), m.writeDocs())
}

// cacheDir returns the directory of the npm programs and the files of runs.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "thoughtgate"), err
}

// say prints text. Errors of the output are ignored: the files have the results.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }
