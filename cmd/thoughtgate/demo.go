package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/demo"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// tour is what the demo prints: text at the margin, commands indented by two.
//
//go:embed demo.txt
var tour string

// rules are the demo's, as it shows them.
//
//go:embed demo.yaml
var rules string

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try the gate in front of a small built-in MCP server",
		Long: "Start a small MCP server with a gate in front of it, print commands to try, and print the calls that the gate holds.\n" +
			"Everything is kept in memory. Configuration files and environment variables are ignored.",
		Args: noArguments,
	}
	listen := cmd.Flags().String("listen", config.Default().Listen, "`address` for agents; if the default is in use, a free port is used")
	operators := cmd.Flags().String("operators-listen", config.Default().Operators.Listen, "`address` for operators; likewise")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		d, err := demoPlan{
			agents:    demoAddress{*listen, cmd.Flags().Changed("listen")},
			operators: demoAddress{*operators, cmd.Flags().Changed("operators-listen")},
			upstream:  demoAddress{demoUpstream, false},

			program: program,
			stdout:  cmd.OutOrStdout(),
			stderr:  cmd.ErrOrStderr(),
		}.prepare()
		if err != nil {
			return err
		}
		return d.run(cmd.Context())
	}
	return cmd
}

// A demoPlan says what the demo should be like.
type demoPlan struct {
	agents, operators, upstream demoAddress

	program        string // the file that runs, which shells need not find by its name
	stdout, stderr io.Writer
}

// demoUpstream is where the demo's server is, unless that is in use.
const demoUpstream = "127.0.0.1:8082"

// A demoAddress is where the demo would like to listen. It is the same at every
// start, so that what was set up in a client works again.
type demoAddress struct {
	address string
	fixed   bool // the user chose it, so no other will do
}

// choose returns the address, or one with a free port if that is in use, and says
// so.
func (a demoAddress) choose(w io.Writer) (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", a.address)
	switch {
	case err == nil:
		return a.address, l.Close()
	case a.fixed || !errors.Is(err, syscall.EADDRINUSE):
		return "", err
	}
	_, err = fmt.Fprintf(w, "%s is in use, so the demo uses another port.\n\n", a.address)
	return "127.0.0.1:0", err
}

// A demonstration is a gate and the server behind it, both bound to their
// addresses, and the one that prints what happens.
type demonstration struct {
	gate     *app.App
	upstream net.Listener
	printer  *printer
}

// prepare makes everything ready to run and prints how to use it.
func (p demoPlan) prepare() (*demonstration, error) {
	var chosen [3]string
	for i, wish := range []demoAddress{p.agents, p.operators, p.upstream} {
		address, err := wish.choose(p.stdout)
		if err != nil {
			return nil, err
		}
		chosen[i] = address
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", chosen[2])
	if err != nil {
		return nil, fmt.Errorf("listen for the demo's server: %w", err)
	}
	gate, err := p.gate(chosen[0], chosen[1], "http://"+l.Addr().String()+"/mcp")
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	t, err := newPrinter(p.stdout, gate)
	if err == nil {
		err = p.explain(gate, l.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, gate.Close(), l.Close())
	}
	return &demonstration{gate: gate, upstream: l, printer: t}, nil
}

// run serves until ctx is done.
func (d *demonstration) run(ctx context.Context) error {
	server := &http.Server{Handler: demo.New(), ReadHeaderTimeout: 10 * time.Second}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		if err := server.Serve(d.upstream); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the demo's server: %w", err)
		}
		return nil
	})
	running.Go(func() error {
		defer func() { _ = server.Close() }()
		return d.gate.Run(ctx)
	})
	running.Go(func() error { return d.printer.run(ctx) })
	return running.Wait()
}

// gate returns a gate at two addresses in front of url.
func (p demoPlan) gate(agents, operators, url string) (*app.App, error) {
	file, err := writeRules()
	defer func() { _ = os.Remove(file) }()
	if err != nil {
		return nil, err
	}
	override := func(setting, value string) config.Override {
		return config.Override{Source: "demo", Setting: setting, Values: []string{value}}
	}
	cfg, _, err := config.Load(config.Sources{File: file, Overrides: []config.Override{
		override("store", "memory:"),
		{Source: "--listen", Setting: "listen", Values: []string{agents}},
		{Source: "--operators-listen", Setting: "operators.listen", Values: []string{operators}},
		override("upstreams", url),
		override("shutdown.drain", "2s"),
		override("telemetry.log.level", "error"),
		override("telemetry.log.format", "text"),
	}})
	if err != nil {
		return nil, err
	}
	return app.New(cfg, logging.New(p.stderr, cfg.Telemetry.Log.Format, cfg.Telemetry.Log.Level))
}

// writeRules writes a configuration with the demo's rules, which only a file
// can have, and returns its name.
func writeRules() (name string, err error) {
	f, err := os.CreateTemp("", "thoughtgate-demo-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("version: 1\n" + rules)
	return f.Name(), errors.Join(err, f.Close())
}

func (p demoPlan) explain(gate *app.App, upstream net.Addr) error {
	_, err := strings.NewReplacer(
		"AGENTS", gate.AgentAddr(),
		"INBOX", gate.LoginLink(),
		"OPERATORS", gate.OperatorAddr(),
		"UPSTREAM", upstream.String(),
		"RULES", rules,
		"APPROVER\n", p.approver(gate),
	).WriteString(p.stdout, tour)
	return err
}

// approver returns the commands that make a terminal an approver's. The token
// is good for as long as the demo runs, so it may be seen.
func (p demoPlan) approver(gate *app.App) string {
	return fmt.Sprintf("    export %s=http://%s %s=%s\n", urlVariable, gate.OperatorAddr(), tokenVariable, gate.MadeToken()) +
		"    thoughtgate() { '" + strings.ReplaceAll(p.program, "'", `'\''`) + "' \"$@\"; }\n"
}
