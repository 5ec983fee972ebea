package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/suggest"
)

func newSuggest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "suggest [FILE]",
		Short: "Propose rules from recorded calls",
		Long: "Propose rules that forward calls which people have always approved, or standing approvals for them, and list rules that no\n" +
			"recorded call reaches.\n" +
			"The output is YAML to copy, with the evidence, the saved approvals and the risk of each rule. Nothing is changed.\n" +
			"FILE has exported calls, as lines of JSON. Without FILE, the calls are those of the gate at --url, or else those in the\n" +
			"configured store, which no gate may use if it is a SQLite file. The output may have values of arguments.\n" +
			fmt.Sprintf("A proposal has at least %d approvals on %d days by people who saw the call, and is for the agents that made these calls.\n", suggest.LeastApprovals, suggest.LeastDays) +
			"There is none for a tool with a rejected call, even before --since, with a destructive hint, with a changed definition or with a name that\n" +
			"speaks of secrets, nor for arguments that have secrets or code. Each is tried: it changes exactly the calls of its evidence.",
		Example: "  thoughtgate suggest -c thoughtgate.yaml --since 30d",
		Args:    positional(cobra.MaximumNArgs(1)),
	}
	file := starterFlag(cmd)
	source := newRecordFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && args[0] == "-" {
			return &usageError{cmd.CommandPath(), errors.New("the record is read twice, so it cannot be standard input")}
		}
		*file = sayStarter(cmd, *file)
		l, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: *file})
		if err != nil {
			return err
		}
		if l.settings.Policy == nil {
			return errors.New("there is nothing to suggest: without rules, every call is forwarded")
		}
		rules, err := app.PolicyConfig(l.config)
		if err != nil {
			return err
		}
		return source.open(cmd, *file, args, func(filter callrecord.Filter, read entryReader) error {
			r, err := suggest.From(cmd.Context(), rules, runtime.GOMAXPROCS(0), filter, read)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), r.Text())
			return err
		})
	}
	return cmd
}
