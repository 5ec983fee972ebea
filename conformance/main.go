// Command conformance runs the official MCP conformance suite against the Go SDK's
// everything-server and everything-client, directly and through ThoughtGate. It fails if a check
// has a worse result through the gate.
//
// Run it from the root of the repository. It needs Go and npm. Checks that the server itself
// fails do not count, only the differences. A scenario that differs is run again before it
// counts, because some scenarios depend on timing; the output mentions this. The last line is
// the verdict: "N passed, N failed".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
)

func main() {
	verbose := flag.Bool("v", false, "list the checks that fail without the gate as well")
	limit := flag.Duration("timeout", 10*time.Minute, "give up after this long")
	only := flag.String("legs", "", "run only the legs whose name contains this, such as rules, clients or 2026-07-28-stateless")
	gate := flag.String("through", "", "for the suite: run the client in the first argument with this gate in front of the server in the second")
	gateThatSignsIn := flag.String("connected", "", "like through, with a gate that signs in at the server")
	flag.Parse()
	if *gate+*gateThatSignsIn != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		var err error
		if *gate != "" {
			err = through(ctx, *gate, flag.Arg(0), flag.Arg(1))
		} else {
			err = runConnected(ctx, *gateThatSignsIn, flag.Arg(0), flag.Arg(1))
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			os.Exit(1)
		}
		return
	}
	r, err := run(*limit, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if *verbose {
		say(r.directFailures())
	}
	if len(r) > 0 {
		say(r.String())
	}
	if err != nil {
		os.Exit(1)
	}
}

// run compares the legs whose names contain only. A loss is also an error. The files of a run
// with losses are kept.
func run(limit time.Duration, only string) (report, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "thoughtgate-conformance-")
	if err != nil {
		return nil, err
	}
	r, err := compareAll(ctx, dir, only)
	if err != nil {
		return nil, fmt.Errorf("%w\nfiles: %s", err, dir)
	}
	if _, lost := r.count(); lost > 0 {
		return r, fmt.Errorf("the gate loses %d checks, files: %s", lost, dir)
	}
	return r, os.RemoveAll(dir)
}

// say prints text. Errors of the output are ignored: the exit status has the result.
func say(text string) { _, _ = os.Stdout.WriteString(text) }

func compareAll(ctx context.Context, dir, only string) (report, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	s, err := suite.Install(ctx, filepath.Join(cache, "thoughtgate"))
	if err != nil {
		return nil, err
	}
	b := &rig{suite: s, dir: dir}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	var r report
	for _, l := range legs() {
		if !strings.Contains(l.String(), only) {
			continue
		}
		o, err := b.compare(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
		say(o.String() + "\n")
		r = append(r, o)
	}
	return r, nil
}
