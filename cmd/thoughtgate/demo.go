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
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/demo"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// tour is the text that the demo prints.
//
//go:embed demo.txt
var tour string

// rules are the demo's rules.
//
//go:embed demo.yaml
var rules string

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try the gate in front of a small built-in MCP server",
		Long: "Start a small MCP server with a gate in front of it, print commands to try, and print the calls that the gate holds.\n" +
			"The demo stores everything in memory, and ignores configuration files and environment variables.",
		Args: noArguments,
	}
	listen := cmd.Flags().String("listen", config.Default().Listen, "`address` for agents; if the default is in use, a free port is used")
	operators := cmd.Flags().String("operators-listen", config.Default().Operators.Listen, "`address` for operators; likewise")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		d, err := demoConfig{
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

// A demoConfig configures the demo.
type demoConfig struct {
	agents, operators, upstream demoAddress

	program        string // the running executable, which may not be in PATH
	stdout, stderr io.Writer
}

// demoUpstream is the preferred address of the demo's server.
const demoUpstream = "127.0.0.1:8082"

// A demoAddress is the preferred address of a listener. It is the same at every start, so
// that clients keep their configuration.
type demoAddress struct {
	address string
	fixed   bool // chosen by the user, so do not use another one
}

// choose returns the address. If the address is in use, it prints a message and returns one
// with a free port.
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

// A runningDemo is a gate, the server behind it, and the printer of events.
type runningDemo struct {
	gate     *app.App
	upstream net.Listener
	printer  *printer
}

// prepare binds the addresses and prints the tour.
func (p demoConfig) prepare() (*runningDemo, error) {
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
	t, err := newPrinter(p.stdout, gate, p.command())
	if err == nil {
		err = p.explain(gate)
	}
	if err != nil {
		return nil, errors.Join(err, gate.Close(), l.Close())
	}
	return &runningDemo{gate: gate, upstream: l, printer: t}, nil
}

// run serves until ctx ends.
func (d *runningDemo) run(ctx context.Context) error {
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
func (p demoConfig) gate(agents, operators, url string) (*app.App, error) {
	override := func(setting, value string) config.Override {
		return config.Override{Source: "demo", Setting: setting, Values: []string{value}}
	}
	cfg, _, err := config.Load(config.Sources{Starter: &config.Starter{Name: "demo", Text: []byte("version: 1\n" + rules)}, Overrides: []config.Override{
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

// explain prints the tour. The token may be shown, because it is valid only while the demo runs.
func (p demoConfig) explain(gate *app.App) error {
	server := ""
	if gate.AgentAddr() != config.Default().Listen {
		server = "--server http://" + gate.AgentAddr() + "/mcp "
	}
	_, err := strings.NewReplacer(
		"AGENTS", gate.AgentAddr(),
		"INBOX", gate.LoginLink(),
		"PROGRAM", p.command(),
		"SERVER", server,
		"VARIABLES", fmt.Sprintf("%s=http://%s %s=%s", urlVariable, gate.OperatorAddr(), tokenVariable, gate.GeneratedToken()),
	).WriteString(p.stdout, tour)
	return err
}

// command returns how a shell starts the running executable.
func (p demoConfig) command() string {
	if found, err := exec.LookPath("thoughtgate"); err == nil && found == p.program {
		return "thoughtgate"
	}
	if plain.MatchString(strings.TrimPrefix(p.program, "/")) {
		return p.program
	}
	return "'" + strings.ReplaceAll(p.program, "'", `'\''`) + "'"
}

// A printer prints the calls that the demo's gate holds, and their outcomes. It uses the
// operators' API.
type printer struct {
	out     *screen
	client  *client.Client
	program string // how a shell starts it
}

func newPrinter(w io.Writer, gate *app.App, program string) (*printer, error) {
	c, err := client.New(client.Config{URL: "http://" + gate.OperatorAddr(), Token: gate.GeneratedToken()})
	return &printer{newScreen(w), c, program}, err
}

// run prints events until ctx ends.
func (t *printer) run(ctx context.Context) error {
	following, ctx := errgroup.WithContext(ctx)
	for e, err := range t.client.Watch(ctx) {
		if err == nil {
			err = t.print(e)
		}
		if _, lost := errors.AsType[*client.LostError](err); err != nil && !lost {
			following.Go(func() error { return err })
			break
		}
		if e.Kind == client.Settled && !e.Approval.State.Terminal() {
			following.Go(func() error { return t.follow(ctx, e.Approval) })
		}
	}
	return following.Wait()
}

// print prints an event.
func (t *printer) print(e client.Event) error {
	a := e.Approval
	switch e.Kind {
	case client.Pending:
		return t.held(a)
	case client.Settled:
		return t.out.line("%s  %s", a.ID.Short(), t.out.status(a))
	default:
		return nil
	}
}

// held prints a pending call, with the commands that decide it.
func (t *printer) held(a review.Approval) error {
	lines := []string{
		fmt.Sprintf("%s  %s  %s", a.ID.Short(), t.out.status(a), callText(a)),
		fmt.Sprintf("requested by %s; %s; %s left", requester(a), oneLine(a.Reason, maxCell), formatDuration(time.Until(a.ExpiresAt))),
		fmt.Sprintf("%s approvals approve %s", t.program, a.ID.Short()),
		fmt.Sprintf("%s approvals reject %s --reason 'not this one'", t.program, a.ID.Short()),
	}
	return t.out.line("%s", strings.Join(lines, "\n    "))
}

// pollInterval is the time between looks at an approved call.
const pollInterval = 200 * time.Millisecond

// follow prints the outcome of an approved call.
func (t *printer) follow(ctx context.Context, a review.Approval) error {
	again := time.NewTicker(pollInterval)
	defer again.Stop()
	for !a.State.Terminal() {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		now, err := t.client.Show(ctx, a.ID)
		if err != nil {
			return nil // the gate is stopping
		}
		a = now
	}
	return t.out.line("%s  %s", a.ID.Short(), t.out.status(a))
}
