package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/docs"
	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file",
		Long: "Check a configuration file with its rules and policies, and the environment, as serve reads them.\n" +
			"Prints ok, or every error. Warnings are about settings that are allowed but probably not intended.",
		Args: positional(cobra.MaximumNArgs(1)),
	}
	file := configFlag(cmd)
	strict := cmd.Flags().Bool("strict", false, "fail if there are warnings")
	schema := cmd.Flags().Bool("schema", false, "print a JSON Schema of the configuration file for editors, and check nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *schema {
			return printSchema(cmd.OutOrStdout())
		}
		if len(args) > 0 && *file != "" {
			return &usageError{cmd.CommandPath(), errors.New("give one file only")}
		}
		if len(args) > 0 {
			*file = args[0]
		}
		_, warnings, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: *file})
		if err != nil {
			return err
		}
		if *strict && warnings > 0 {
			return errors.New("failed because of warnings (--strict)")
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}

// printSchema prints the JSON schema of the configuration file, with the texts of the
// documentation.
func printSchema(w io.Writer) error {
	meanings := map[string]config.Meaning{}
	for _, s := range docs.Settings() {
		meanings[s.Path] = config.Meaning{Text: s.Meaning, Default: s.Value()}
	}
	text, err := config.JSONSchema(app.ChannelKinds(), meanings)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
