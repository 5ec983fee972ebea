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
		Long:  "Check a configuration file, together with the environment, as serve would read it.\nPrints ok, or everything that is wrong with it.",
		Args:  positional(cobra.MaximumNArgs(1)),
	}
	file := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && *file != "" {
			return &usageError{cmd.CommandPath(), errors.New("name one file")}
		}
		if len(args) > 0 {
			*file = args[0]
		}
		_, warnings, err := load(cmd.ErrOrStderr(), config.Sources{File: *file})
		if err != nil {
			return err
		}
		warn(cmd.ErrOrStderr(), warnings)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}
