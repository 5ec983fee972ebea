package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A usageError reports a wrong command line.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v (see %s --help)", e.err, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

// positional turns the errors of allowed into usage errors.
func positional(allowed cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := allowed(cmd, args); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return nil
	}
}

// noArguments allows only flags.
func noArguments(cmd *cobra.Command, args []string) error { return countArguments(cmd, args, 0, 0) }

// oneArgument needs the argument that cmd.Use names.
func oneArgument(cmd *cobra.Command, args []string) error { return countArguments(cmd, args, 1, 1) }

// optionalArgument allows one argument.
func optionalArgument(cmd *cobra.Command, args []string) error {
	return countArguments(cmd, args, 0, 1)
}

func countArguments(cmd *cobra.Command, args []string, least, most int) error {
	var err error
	switch {
	case len(args) < least:
		err = fmt.Errorf("%s is missing", strings.Fields(cmd.Use)[1])
	case len(args) <= most:
		return nil
	case cmd.HasAvailableSubCommands():
		err = unknownCommand(cmd, args[0])
	default:
		err = fmt.Errorf("unexpected argument %q", args[most])
	}
	return &usageError{cmd.CommandPath(), err}
}

// unknownCommand returns an error with the most similar command. Among equally similar ones,
// it prefers those of cmd.
func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("there is no command %q", cmd.CommandPath()+" "+name)
	paths := map[string]string{}
	var names []string
	for _, one := range append(everyCommand(cmd), everyCommand(cmd.Root())...) {
		if _, known := paths[one.Name()]; !known && one.IsAvailableCommand() {
			names = append(names, one.Name())
			paths[one.Name()] = one.CommandPath()
		}
	}
	if nearest := config.Nearest(name, names); nearest != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, paths[nearest])
	}
	return err
}

// everyCommand returns the commands below cmd, in the order of their depth.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	all := cmd.Commands()
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	return all
}

// findCommand returns an error if names do not name a command.
func findCommand(root *cobra.Command, names []string) error {
	cmd, rest, err := root.Find(names)
	if err == nil && len(rest) > 0 {
		err = unknownCommand(cmd, rest[0])
	}
	return err
}

// flagError describes a wrong flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		err = unknownFlag(cmd, unknown)
	} else if lacking, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		err = fmt.Errorf("--%s needs a value", lacking.GetFlag().Name)
	} else if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = invalidValue(invalid)
	} else if wrong, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		err = fmt.Errorf("%q is not a flag", wrong.GetSpecifiedFlag())
	}
	return &usageError{cmd.CommandPath(), err}
}

func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" { // -version is -v -e -r and so on
		return fmt.Errorf("there is no flag -%s%s", name, config.Suggest("--"+letters, names))
	}
	return fmt.Errorf("there is no flag --%s%s", name, config.Suggest("--"+name, names))
}

// invalidValue describes a value that a flag does not take.
func invalidValue(e *pflag.InvalidValueError) error {
	kinds := map[string]string{
		"bool": "true or false", "int": "a whole number", "duration": "a time such as 90s, 30m or 2h",
	}
	flag := e.GetFlag()
	if kind, ok := kinds[flag.Value.Type()]; ok {
		return fmt.Errorf("--%s must be %s, not %q", flag.Name, kind, e.GetValue())
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, e.GetValue(), errors.Unwrap(e))
}

// oneOf returns an error unless value, of the flag name, is one of words.
func oneOf(name, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("--%s must be one of %s, not %q%s", name, strings.Join(words, ", "), value, config.Suggest(value, words))
}
