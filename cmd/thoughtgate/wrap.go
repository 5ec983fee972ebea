package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// wrapConfig and wrapPolicy are in force if wrap is given no file.
var (
	//go:embed wrap.yaml
	wrapConfig []byte
	//go:embed wrap.cedar
	wrapPolicy []byte
)

// wrapRestarts is how often wrap starts a server again within a minute.
const wrapRestarts = 3

func newWrap() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- COMMAND [ARGUMENT...]",
		Short: "Gate an MCP server for a local agent, over standard input and output",
		Long: "Run COMMAND, an MCP server that speaks over standard input and output, with the gate between it and the agent that started wrap;\n" +
			"or, with --url, reach a server over HTTP. Without a configuration file, tools that only read are forwarded and all others wait for\n" +
			"approval. Standard output carries nothing but MCP; what the server writes to standard error passes through.",
	}
	file := configFlag(cmd)
	flags := cmd.Flags()
	name := flags.String("name", "", "`name` of the server in rules and in the inbox (default: made from the command or the URL)")
	again := flags.Bool("restart", true, "start the server again when it ends by itself")
	var at remote
	flags.StringVar(&at.url, "url", "", "`URL` of a server over HTTP, in place of COMMAND")
	flags.StringArrayVar(&at.headers, "header", nil, "`header` for the server at --url, as 'NAME: VALUE'; ${VARIABLE} keeps a secret off the command line; may be repeated")
	flags.StringVar(&at.tokenFile, "token-file", "", "`file` with the bearer token for the server at --url; read for every request")
	cmd.Args = positional(func(_ *cobra.Command, command []string) error { return at.check(command) })
	cmd.RunE = func(cmd *cobra.Command, command []string) error {
		w := wrapping{name: *name, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
		if err := at.read(); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		if err := w.reach(at, command); err != nil {
			return err
		}
		if *again {
			w.restarts = wrapRestarts
		}
		// A write to a broken pipe is to return an error, also on standard output.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		gate, err := w.build(*file)
		if err != nil {
			return err
		}
		collectLess()
		return gate.Run(cmd.Context())
	}
	return cmd
}

// A wrapping is one server that is to be wrapped.
type wrapping struct {
	name           string
	server         config.Upstream
	token          func() (string, error) // see app.Wrap
	restarts       int
	stdin          io.Reader
	stdout, stderr io.Writer
}

// build returns the gate before the server, and prints where its inbox is.
func (w wrapping) build(file string) (*app.Wrapped, error) {
	sources := config.Sources{File: file, Server: &w.server, Starter: &config.Starter{
		Name: "the built-in configuration", Text: wrapConfig, Policies: []config.Source{{Name: "wrap.cedar", Text: wrapPolicy}},
	}}
	cfg, warnings, err := loadWrap(w.stderr, sources)
	if err != nil {
		return nil, err
	}
	level := new(slog.LevelVar)
	level.Set(cfg.Telemetry.Log.Level)
	log := logging.New(w.stderr, cfg.Telemetry.Log.Format, level)
	for _, p := range warnings {
		log.Warn("configuration", "warning", p.String())
	}
	gate, err := app.NewWrap(cfg, log, app.Wrap{
		In: w.stdin, Dir: workingDir(), Out: w.stdout, Stderr: w.stderr, Env: serverEnviron(os.Environ()), User: userName(), Restarts: w.restarts,
		Token: w.token,
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.reload(gate, sources, level), w.announce(gate)); err != nil {
		return nil, errors.Join(err, gate.Close())
	}
	return gate, nil
}

// loadWrap is load for a wrap, which shares the desk of its user unless the file
// says where held calls are kept, or who decides about them.
func loadWrap(stderr io.Writer, s config.Sources) (config.Config, []config.Problem, error) {
	cfg, warnings, err := load(stderr, s)
	if err != nil || cfg.StateDir == "" || cfg.Given("store") || cfg.Given("operators") {
		return cfg, warnings, err
	}
	s.Overrides = append(slices.Clone(s.Overrides), config.Override{Source: "wrap", Setting: "store", Values: []string{config.DeskStore}})
	return load(stderr, s)
}

// workingDir returns the directory in which the gate and the server run, or nothing
// if that is not known.
func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}

// reload has the gate read its configuration again when it changes.
func (w wrapping) reload(gate *app.Wrapped, sources config.Sources, level *slog.LevelVar) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return gate.ReloadFrom(app.Source{Signal: hangups, Level: level, Load: func() (config.Config, error) {
		cfg, _, err := loadWrap(io.Discard, sources)
		return cfg, err
	}})
}

// announce says in one line where held calls are decided. The agent's host collects
// what is written to standard error, so the token is in a private file.
func (w wrapping) announce(gate *app.Wrapped) error {
	where := ""
	if gate.MadeToken() != "" {
		if err := gate.KeepToken(); err != nil {
			return err
		}
		where = ", operator token in " + gate.TokenFile()
	}
	_, err := fmt.Fprintf(w.stderr, "thoughtgate: %s: calls that need approval wait at %s%s\n", w.name, gate.Inbox(), where)
	return err
}

// serverEnviron returns the environment of a wrapped server: that of the gate
// without the gate's own variables, which may hold the token of an approver.
func serverEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "THOUGHTGATE_") })
}

// userName returns the name of the user who runs the gate.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
