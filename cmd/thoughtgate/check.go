package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file",
		Long: "Check a configuration file with its rules and policies, together with the environment, as serve would read it.\n" +
			"Prints ok, or everything that is wrong with it. Warnings tell what is allowed and probably not meant.",
		Args: positional(cobra.MaximumNArgs(1)),
	}
	file := configFlag(cmd)
	strict := cmd.Flags().Bool("strict", false, "fail if there are warnings")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && *file != "" {
			return &usageError{cmd.CommandPath(), errors.New("name one file")}
		}
		if len(args) > 0 {
			*file = args[0]
		}
		_, warnings, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: *file})
		if err != nil {
			return err
		}
		if *strict && warnings > 0 {
			return errors.New("there are warnings, and --strict is set")
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}
