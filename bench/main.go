// Command bench compares the gate with the upstream without a proxy and with a plain
// [net/http/httputil.ReverseProxy], all in one run, and lists the values with the budgets of
// the design. A value over its budget is not an error, because values depend on the machine;
// ratios depend on it less.
//
//	go run ./bench                 about ten minutes, half of them for how costs grow
//	go run ./bench -quick          rougher, in two minutes
//	go run ./bench -parts growth   tables of how costs grow alone
//
// The upstream, the proxy and the gate are separate processes on loopback, so that their CPU
// time and memory can be measured separately. This process generates the load over raw
// keep-alive connections (package load). All targets are measured in each of many short
// rounds, in random order. A ratio compares two values of the same round, and a result is the
// median over rounds, so that other load on the machine affects all targets equally. On a busy
// machine, CPU time per request is the most reliable value.
//
// The proxy has the settings of the gate: reused buffers, the same GOGC, the same limits of
// idle connections, full duplex. nginx, if it is installed, shows the speed of a proxy that is
// not written in Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/peer"
)

// peerCommand is the first argument with which this program starts itself as one of the
// servers.
const peerCommand = "peer"

// gatePercent is the GOGC of a gate, and therefore of all servers.
const gatePercent = 300

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.New(os.Stderr, "bench: ", 0).Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == peerCommand {
		return runPeer(ctx, args[1:])
	}
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "thoughtgate-bench-")
	if err != nil {
		return err
	}
	b := &bench{
		options: o,
		rand:    rand.New(rand.NewPCG(o.seed, 0)), // for the order of measurements
		out:     out,
		self:    self,
		dir:     dir,
		now:     time.Now, // the one clock of the program
	}
	return errors.Join(b.run(ctx), os.RemoveAll(dir))
}

// runPeer runs a server in a process that this program started from itself.
func runPeer(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == pipePeer {
		return servePipe(os.Stdin, os.Stdout)
	}
	h, err := peerHandler(args)
	if err != nil {
		return err
	}
	debug.SetGCPercent(gatePercent)
	return peer.Serve(peer.UntilClosed(ctx, os.Stdin), h, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
}

func peerHandler(args []string) (http.Handler, error) {
	switch {
	case len(args) == 1 && args[0] == "upstream":
		return peer.Upstream(), nil
	case len(args) == 2 && args[0] == "proxy":
		target, err := url.Parse(args[1])
		if err != nil {
			return nil, err
		}
		return peer.Proxy(target), nil
	default:
		return nil, fmt.Errorf("unknown peer %q", args)
	}
}
