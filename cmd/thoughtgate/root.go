package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

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
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			checkShells(cmd)
		case "help":
			cmd.Args = positional(func(_ *cobra.Command, args []string) error { return isCommand(root, args) })
		}
	}
	return root
}

// checkShells makes a shell that the command for completions does not know a wrong
// command line. Cobra's own command prints its help instead.
func checkShells(completion *cobra.Command) {
	completion.Args = positional(cobra.NoArgs)
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range completion.Commands() {
		shell.Args = noArguments
	}
}

// isCommand returns an error if names are not those of a command.
func isCommand(root *cobra.Command, names []string) error {
	_, rest, err := root.Find(names)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unknown command %q", strings.Join(names, " "))
	}
	return err
}
