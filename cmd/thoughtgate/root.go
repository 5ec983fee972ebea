package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "thoughtgate",
		Short:         "A gate between MCP clients and MCP servers",
		Args:          noArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	showVersion := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			return printVersion(cmd.OutOrStdout())
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServe(), newWrap(), newLogin(), newLogout(), newDesk(), newCheck(), newExplain(), newTest(), newCall(), newPin(), newReplay(), newSuggest(), newApprovals(), newAudit(), newCalls(), newConnections(), newStore(), newToken(), newInit(), newIsolate(), newDemo(), newVersion(), newMan())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			checkShells(cmd)
		case "help":
			cmd.Args = positional(func(_ *cobra.Command, args []string) error { return findCommand(root, args) })
		}
	}
	return root
}

// group makes cmd a command that only has subcommands.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// checkShells makes an unknown shell of the completion command a usage error. By default,
// Cobra prints the help text instead.
func checkShells(completion *cobra.Command) {
	for _, shell := range group(completion).Commands() {
		shell.Args = noArguments
	}
}

// errReported is the error of a command that has said on standard output why it failed.
var errReported = errors.New("failed")

// A statusError is an error with an exit status of its own.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }

func (e *statusError) Unwrap() error { return e.err }

// printError prints an error and returns the exit status. A problem in a file begins with
// its position, so that editors and terminals can link to it. Errors may quote files of others.
func printError(w io.Writer, err error) int {
	status := 1
	if other := new(statusError); errors.As(err, &other) {
		status = other.status
	}
	if bad := new(config.Error); errors.As(err, &bad) {
		for _, p := range bad.Problems {
			prefix := ""
			if p.At.Source == "" {
				prefix = "thoughtgate: "
			}
			_, _ = fmt.Fprintln(w, prefix+safetext.Escape(p.String()))
		}
		return status
	}
	if errors.Is(err, errReported) {
		return 1
	}
	_, _ = fmt.Fprintf(w, "thoughtgate: %s\n", strings.ReplaceAll(safetext.Escape(err.Error()), "\n", "; "))
	if misuse := new(usageError); errors.As(err, &misuse) {
		return 2
	}
	return status
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), version.This())
		}
		return printVersion(cmd.OutOrStdout())
	}
	return cmd
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, version.This())
	return err
}

func printJSON(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, jsontext.Multiline(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
