package main

import (
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
	return root
}
