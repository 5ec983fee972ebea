// Command bench measures the gate as a whole, against the upstream without
// anything in between and against a plain [net/http/httputil.ReverseProxy], all
// in one run, and holds the values against the budgets of the design. It judges
// nothing: numbers depend on the machine, ratios less so.
//
//	go run ./bench                 about ten minutes, half of them for how costs grow
//	go run ./bench -quick          rougher, in two minutes
//	go run ./bench -parts growth   tables of how costs grow alone
//
// The upstream, the proxy and the gate are processes of their own on loopback,
// so that the CPU time and memory of each can be told apart. The load comes
// from this process over raw keep-alive connections (package load). All targets
// are measured in each of many short rounds, in a random order. A ratio is one of
// two values of the same round, and a figure is the median over rounds, so that
// whatever else the machine does hits all targets alike. CPU time per request is
// what to trust on a machine that does other things as well.
//
// The proxy has the settings of the gate: buffers that are used again, the same
// GOGC, the same limits for kept connections, full duplex. nginx, if it is
// installed, shows how far a proxy can go that is not written in Go.
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

// peerCommand is the first argument with which this program runs itself as one
// of the servers.
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
		rand:    rand.New(rand.NewPCG(o.seed, 0)), //nolint:gosec // for the order of measurements
		out:     out,
		self:    self,
		dir:     dir,
		now:     time.Now, //nolint:forbidigo // the one clock of the program
	}
	return errors.Join(b.run(ctx), os.RemoveAll(dir))
}

// runPeer is what a process runs that this program has started from itself.
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
