// Command hosts runs real agent hosts, unchanged, in front of a real gate, and
// records what they do with a call that is forwarded, refused or held.
//
// Each host is installed from npm in the version that its package-lock.json pins.
// A run is one host in one scenario: in namespaces of its own, with an empty
// environment, a fresh home, a scripted model, a scripted approver and the demo's
// server behind the gate. The results are kept in e2e/hosts/measured.json, and
// docs/hosts.md is written from them.
//
// It is run from the root of the repository and needs Go, npm, Linux, and for the
// scenario esc tmux. The exit status says whether a tool ran twice or without
// approval, or a run could not be made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	o := options{now: time.Now} //nolint:forbidigo // the one clock of the program
	flag.StringVar(&o.hosts, "hosts", "", "`names` of the hosts to run; all if there are none")
	flag.StringVar(&o.scenarios, "scenarios", "", "`names` of the scenarios, of the form a30 or r30 as well; all if there are none")
	flag.StringVar(&o.gate, "gate", "", "`file` of the gate; it is built if there is none")
	flag.IntVar(&o.parallel, "parallel", 4, "how many hosts to run at once")
	flag.BoolVar(&o.list, "list", false, "list hosts and scenarios")
	flag.BoolVar(&o.docs, "docs", false, "only write docs/hosts.md from what was measured before")
	job := flag.String("job", "", "run the one host of this `directory`; used by the program itself")
	flag.StringVar(&o.relay, "relay", "", "run the command that follows, and record what it and the host say in this `directory`; used by the program itself")
	flag.StringVar(&o.server, "server", "", "be the server of the run in this `directory`; used by the program itself")
	flag.Parse()
	if err := o.do(*job); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1) //nolint:forbidigo // the exit status is what this program is for
	}
}

// options are what the command line says.
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
		say("hosts:     %s\nscenarios: %s\n", join(hostNames()), allScenarios)
		return nil
	case o.docs:
		m, err := readMeasured(measuredFile)
		if err != nil {
			return err
		}
		return errors.Join(m.write(measuredFile), m.writeDocs(docsFile))
	default:
		return o.runAll(ctx)
	}
}

// runAll runs every host in every scenario that was asked for.
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
	return errors.Join(r.run(ctx, hosts, scenarios), m.write(measuredFile), m.writeDocs(docsFile))
}

// cacheDir returns where programs of npm and files of runs are kept.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "thoughtgate"), err
}

// say prints text. If nobody reads it, the files still tell.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }
