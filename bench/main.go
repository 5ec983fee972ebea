// Command bench measures the gate as a whole, against the upstream without
// anything in between and against a plain [net/http/httputil.ReverseProxy], all
// in one run, and holds the values against the budgets of the design. It judges
// nothing: numbers depend on the machine, ratios less so.
//
//	go run ./bench          about three minutes
//	go run ./bench -quick   about half a minute, and rougher
//
// The upstream, the proxy and the gate are processes of their own on loopback,
// so that the CPU time and memory of each can be told apart. The load comes
// from this process over raw keep-alive connections (package load). Targets
// take turns in short rounds and the figures are medians over rounds, so that
// whatever else the machine does hits all of them alike.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/peer"
)

// peerCommand is the first argument with which this program runs itself as one
// of the servers.
const peerCommand = "peer"

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
