package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

// newMan returns a hidden command for packagers.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands",
		Args:   oneArgument,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { // manual pages are public
				return err
			}
			return writeManual(cmd.Root(), args[0])
		},
	}
}

// writeManual writes the pages of cmd and its subcommands.
func writeManual(cmd *cobra.Command, dir string) error {
	file := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(file, manualPage(cmd), 0o644); err != nil { // manual pages are public
		return err
	}
	for _, sub := range documented(cmd) {
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// documented returns the subcommands of cmd that have a page.
func documented(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, sub)
		}
	}
	return all
}

func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// manualPage returns the page of a command in roff.
func manualPage(cmd *cobra.Command) []byte {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, ".TH %q 1 %q %q\n", strings.ToUpper(pageName(cmd)), version.This().Time, "ThoughtGate")
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if cmd.Long != "" {
		fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", roffLines(cmd.Long))
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roffLines(cmd.Example))
	}
	flags := []*pflag.FlagSet{cmd.NonInheritedFlags(), cmd.InheritedFlags()}
	if flags[0].HasAvailableFlags() || flags[1].HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
	}
	for _, set := range flags {
		set.VisitAll(func(f *pflag.Flag) { manualOption(b, f) })
	}
	manualReferences(b, cmd)
	return b.Bytes()
}

func manualOption(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	argument, usage := pflag.UnquoteUsage(f)
	if argument != "" {
		name += " " + argument
	}
	if value := f.DefValue; value != "" && value != "false" && value != "[]" && value != "0" && value != "0s" {
		usage += " (default " + value + ")"
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roffLines(usage))
}

// manualReferences writes references to the pages of the parent and the subcommands.
func manualReferences(b *bytes.Buffer, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent()))
	}
	for _, sub := range documented(cmd) {
		pages = append(pages, pageName(sub))
	}
	for i, page := range pages {
		pages[i] = ".BR " + roff(page) + " (1)"
	}
	if len(pages) > 0 {
		fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(pages, " ,\n"))
	}
}

// roff escapes text for roff, on one line.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "\n", " ").Replace(text)
}

// roffLines escapes text for roff, and keeps its line ends.
func roffLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = roff(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") {
			line = `\&` + line // not a roff request
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n.br\n")
}
