package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
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
