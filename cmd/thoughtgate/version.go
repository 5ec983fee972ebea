package main

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

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
