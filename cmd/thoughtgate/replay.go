package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

func newReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay [FILE]",
		Short: "Judge recorded calls again, under another configuration",
		Long: "Judge recorded calls again, with the rules and policies of a configuration, and report which calls would be judged\n" +
			"differently, and how many more or fewer approvals a day people would be asked for. FILE has exported calls, as lines of JSON;\n" +
			"- is standard input. Without FILE, the calls are those of the gate at --url, or else those in the configured store, which no\n" +
			"gate may use if it is a SQLite file.\n" +
			"Nothing is sent or stored, and no arguments are printed.\n" +
			"A call whose arguments were not recorded is judged if the verdict does not depend on them, and otherwise only counted.\n" +
			"What only a running gate knows is not judged: standing approvals and limits.\n" +
			"The exit status is 1 if a call would be judged differently, and 2 after an error.",
		Example: "  thoughtgate replay -c candidate.yaml --since 7d calls.jsonl",
		Args:    positional(cobra.MaximumNArgs(1)),
	}
	file := starterFlag(cmd)
	source := newRecordFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	strict := cmd.Flags().Bool("strict", false, "exit with status 1 also if a call cannot be judged again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := source.replay(cmd, sayStarter(cmd, *file), args)
		if err != nil {
			return &statusError{2, err}
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), r)
		} else {
			_, err = io.WriteString(cmd.OutOrStdout(), r.Text())
		}
		switch {
		case err != nil:
			return &statusError{2, err}
		case r.Different > 0:
			return fmt.Errorf("%d of %d calls would be judged differently", r.Different, r.Calls)
		case *strict && r.Unknown > 0:
			return fmt.Errorf("%d of %d calls cannot be judged again (--strict)", r.Unknown, r.Calls)
		default:
			return nil
		}
	}
	return cmd
}

// recordFlags select entries of a record of calls.
type recordFlags struct {
	times timeFlags
	gate  gateFlags
}

func newRecordFlags(cmd *cobra.Command) *recordFlags {
	f := &recordFlags{gate: newGateFlags(cmd.Flags(), "an admin's token")}
	f.times.add(cmd.Flags())
	return f
}

// replay judges the selected entries with the configuration in a file.
func (f *recordFlags) replay(cmd *cobra.Command, file string, args []string) (*replay.Report, error) {
	l, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: file})
	if err != nil {
		return nil, err
	}
	if l.settings.Policy == nil {
		return nil, errors.New("there is nothing to replay: without rules, every call is forwarded")
	}
	var r *replay.Report
	err = f.use(cmd, file, args, func(entries entrySource) error {
		r, err = replay.Run(entries(), l.settings.Policy)
		if err == nil && r.Calls == 0 {
			err = errNoCalls
		}
		return err
	})
	return r, err
}

var errNoCalls = errors.New("the record has no calls")

// An entrySource returns the entries of a record of calls. Standard input can be read only once.
type entrySource func() iter.Seq2[callrecord.Entry, error]

// use calls do with the selected entries of the record in a file, of a running gate, or else in
// the store of a configuration.
func (f *recordFlags) use(cmd *cobra.Command, configuration string, args []string, do func(entrySource) error) error {
	return f.open(cmd, configuration, args, func(filter callrecord.Filter, read entryReader) error {
		return do(func() iter.Seq2[callrecord.Entry, error] { return read(filter) })
	})
}

// An entryReader returns the entries of a record that a filter selects.
type entryReader func(callrecord.Filter) iter.Seq2[callrecord.Entry, error]

// open calls do with the filter of the flags, and with the record in a file, of a running gate, or
// else in the store of a configuration.
func (f *recordFlags) open(cmd *cobra.Command, configuration string, args []string, do func(callrecord.Filter, entryReader) error) error {
	var filter callrecord.Filter
	var err error
	if filter.Since, filter.Until, err = f.times.parse(cmd, time.Now()); err != nil {
		return err
	}
	configuration = cmp.Or(configuration, os.Getenv("THOUGHTGATE_CONFIG"))
	of := auditFlags{gate: f.gate, config: &configuration}
	asks := *f.gate.url != "" || *f.gate.tokenFile != ""
	switch {
	case asks && len(args) > 0:
		return &usageError{cmd.CommandPath(), errors.New("give FILE, or the flags of a gate, not both")}
	case asks:
		of.config = new(string)
	case len(args) > 0:
		return do(filter, func(f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
			return selected(readRecord(cmd.Context(), cmd.InOrStdin(), args[0]), f)
		})
	}
	return of.useRecord(cmd, func(r record) error {
		return do(filter, func(f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
			f.Limit = pageOfCalls
			return r.entries(cmd.Context(), f)
		})
	})
}

const pageOfCalls = 1000 // entries that are read together

// entries returns the entries of the record that f selects. It ends after an error.
func (r record) entries(ctx context.Context, f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for page, err := range callrecord.Pages(ctx, r.find, f) {
			if err != nil {
				yield(callrecord.Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// selected returns the entries that f selects, and errors.
func selected(all iter.Seq2[callrecord.Entry, error], f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for e, err := range all {
			if (err != nil || f.Selects(&e)) && !yield(e, err) {
				return
			}
		}
	}
}

// readRecord returns the entries in a file, or in standard input if its name is "-".
func readRecord(ctx context.Context, stdin io.Reader, name string) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		in := stdin
		if name != "-" {
			file, err := os.Open(name)
			if err != nil {
				yield(callrecord.Entry{}, err)
				return
			}
			defer func() { _ = file.Close() }()
			in = file
		}
		for e, err := range callrecord.Read(in) {
			switch {
			case err != nil && name != "-":
				err = fmt.Errorf("%s: %w", name, err)
			case err == nil:
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
