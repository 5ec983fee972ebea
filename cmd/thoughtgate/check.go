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
			"Without FILE, THOUGHTGATE_CONFIG and THOUGHTGATE_UPSTREAM, it checks " + starterFile + " in the current directory.\n" +
			"Prints ok, or every error. Warnings are about settings that are allowed but probably not intended.",
		Args: optionalArgument,
	}
	file := starterFlag(cmd)
	strict := cmd.Flags().Bool("strict", false, "fail if there are warnings")
	schema := cmd.Flags().Bool("schema", false, "print a JSON Schema of the configuration file for editors, and check nothing")
	asJSON := cmd.Flags().Bool("json", false, "print the errors and warnings as JSON")
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
		if chosen := orStarter(*file); chosen != *file {
			*file = chosen
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "checking", absolute(chosen))
		}
		_, warnings, err := readPolicy(config.Sources{File: *file})
		if err == nil && *strict && len(warnings) > 0 {
			err = errors.New("failed because of warnings (--strict)")
		}
		if *asJSON {
			return printFindings(cmd.OutOrStdout(), *file, warnings, err)
		}
		warn(cmd.ErrOrStderr(), warnings)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}

// findings are what check prints as JSON.
type findings struct {
	OK       bool      `json:"ok"`
	File     string    `json:"file,omitempty"`
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`
}

// A finding is an error or a warning.
type finding struct {
	Source  string `json:"source,omitempty"` // a file, an environment variable or a flag
	Line    int    `json:"line,omitempty"`   // from 1, in files
	Column  int    `json:"column,omitempty"`
	Setting string `json:"setting,omitempty"`
	Text    string `json:"text"`
}

// printFindings prints the warnings and the error of a check.
func printFindings(w io.Writer, file string, warnings []config.Problem, err error) error {
	f := findings{OK: err == nil, File: file, Warnings: findingsOf(warnings), Errors: []finding{}}
	if bad := new(config.Error); errors.As(err, &bad) {
		f.Errors = findingsOf(bad.Problems)
	} else if err != nil {
		f.Errors = append(f.Errors, finding{Text: err.Error()})
	}
	if failed := printJSON(w, f); failed != nil || f.OK {
		return failed
	}
	return errReported
}

func findingsOf(problems []config.Problem) []finding {
	all := make([]finding, len(problems))
	for i, p := range problems {
		all[i] = finding{p.At.Source, p.At.Line, p.At.Column, p.Setting, p.Text}
	}
	return all
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
