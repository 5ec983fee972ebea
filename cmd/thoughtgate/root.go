package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
)

// A usageError is a command line that makes no sense.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v (see %s --help)", e.err, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

// fail prints what went wrong and returns the exit status. A problem that has a
// place begins with it, so that editors and terminals find it.
func fail(w io.Writer, err error) int {
	if bad := new(config.Error); errors.As(err, &bad) {
		for _, p := range bad.Problems {
			prefix := ""
			if p.At.Source == "" {
				prefix = "thoughtgate: "
			}
			_, _ = fmt.Fprintln(w, prefix+p.String())
		}
		return 1
	}
	_, _ = fmt.Fprintf(w, "thoughtgate: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if misuse := new(usageError); errors.As(err, &misuse) {
		return 2
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "thoughtgate",
		Short:         "A gate between MCP clients and MCP servers",
		Args:          positional(cobra.NoArgs),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return printVersion(cmd.OutOrStdout())
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd.CommandPath(), err}
	})
	root.AddCommand(newServe(), newWrap(), newDesk(), newCheck(), newExplain(), newApprovals(), newAudit(), newStore(), newToken(), newInit(), newDemo(), newVersion(), newMan())
	return root
}

// noArguments is for commands that know only flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{cmd.CommandPath(), fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// positional makes what allowed refuses a usage error.
func positional(allowed cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := allowed(cmd, args); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return nil
	}
}

// load returns the configuration that s and the environment describe. When
// there is none it prints the warnings, which often say why.
func load(stderr io.Writer, s config.Sources) (config.Config, []config.Problem, error) {
	s.Environ = os.Environ()
	cfg, warnings, err := config.Load(s)
	if err != nil {
		warn(stderr, warnings)
		return cfg, nil, err
	}
	return cfg, warnings, nil
}

// A loaded is a configuration and what it says about calls.
type loaded struct {
	config   config.Config
	settings *gate.Settings
}

// loadPolicy is load for those who do not serve: it compiles the policy, prints
// all warnings, and returns how many there were.
func loadPolicy(stderr io.Writer, s config.Sources) (l loaded, warnings int, err error) {
	cfg, problems, err := load(stderr, s)
	if err != nil {
		return loaded{}, 0, err
	}
	warn(stderr, problems)
	settings, doubts, err := app.Settings(cfg)
	warn(stderr, doubts)
	return loaded{cfg, settings}, len(problems) + len(doubts), err
}

func warn(w io.Writer, warnings []config.Problem) {
	for _, p := range warnings {
		_, _ = fmt.Fprintln(w, "warning:", p)
	}
}
