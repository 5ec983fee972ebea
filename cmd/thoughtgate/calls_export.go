package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/callexport"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

// exportFlags say where an export goes, and from where it goes on.
type exportFlags struct {
	calls  *callFlags
	output string
	to, ca string

	position string
	follow   bool
}

func newCallsExport(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the record of calls as lines of JSON, or send it to a SIEM",
		Long: "Write the record of calls, one line of JSON for each entry, in the order in which they were written. With --to, send\n" +
			"it to a receiver of logs instead:\n\n" +
			"  --to http://HOST:PORT, https://HOST:PORT   OTLP logs, with the headers in OTEL_EXPORTER_OTLP_HEADERS (NAME=VALUE,...)\n" +
			"  --to tcp://HOST:PORT, tls://HOST:PORT      syslog: RFC 5424, with the length of each message, and JSON as its text\n\n" +
			"With --position, the command goes on where the receiver last accepted, and every entry is sent at least once. Without,\n" +
			"pass the cursor that it prints to standard error at its end with --after. With --follow, the command goes on until it\n" +
			"is interrupted, and waits for a receiver that is not available.",
		Example: "  thoughtgate calls export --follow | logger\n" +
			"  thoughtgate calls export --follow --to tls://siem.example.com:6514 --position siem.cursor",
		Args: noArguments,
	}
	f := &exportFlags{calls: newCallFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "`file` to write, which must not exist (default: standard output)")
	flags.StringVar(&f.calls.filter.After, "after", "", "only entries that were written after this `cursor`")
	flags.StringVar(&f.to, "to", "", "`URL` of a receiver of logs")
	flags.StringVar(&f.ca, "ca", "", "PEM `file` with the authorities that the receiver's certificate may be from (default: the system's)")
	flags.StringVar(&f.position, "position", "", "`file` that keeps the cursor after the entries that were accepted")
	flags.BoolVar(&f.follow, "follow", false, "wait for new entries")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		selected, err := f.selected(cmd)
		if err != nil {
			return err
		}
		return a.useRecord(cmd, func(r record) error {
			cursor := selected.After
			err := toFile(cmd.OutOrStdout(), cmp.Or(f.output, "-"), func(w io.Writer) error {
				to, err := f.receiver(w)
				if err != nil {
					return err
				}
				x := callexport.Export{
					Find: r.find, To: to, Follow: f.follow,
					Accepted: func(accepted string) error {
						cursor = accepted
						return f.keep(cursor)
					},
					Warn: func(err error) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), "thoughtgate:", err) },
				}
				err = x.Run(cmd.Context(), selected)
				if f.follow && cmd.Context().Err() != nil {
					err = nil // interrupted
				}
				return err
			})
			_, failed := fmt.Fprintln(cmd.ErrOrStderr(), "cursor", cursor)
			return errors.Join(err, failed)
		})
	}
	return cmd
}

// selected returns the filter of the flags, and reports flags that exclude each other.
func (f *exportFlags) selected(cmd *cobra.Command) (callrecord.Filter, error) {
	selected, err := f.calls.selected(cmd, time.Now())
	if err != nil {
		return selected, err
	}
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{f.output != "" && f.to != "", "give --output or --to, not both"},
		{f.output != "" && f.position != "", "--position is not for --output: a file that is incomplete is removed"},
		{f.position != "" && selected.After != "", "give --position or --after, not both"},
		{f.ca != "" && f.to == "", "--ca needs --to"},
	} {
		if c.wrong {
			return selected, &usageError{cmd.CommandPath(), errors.New(c.text)}
		}
	}
	if f.position == "" {
		return selected, nil
	}
	kept, err := os.ReadFile(f.position)
	if errors.Is(err, fs.ErrNotExist) {
		return selected, nil
	}
	selected.After = strings.TrimSpace(string(kept))
	return selected, err
}

// receiver returns what the entries are sent to.
func (f *exportFlags) receiver(stdout io.Writer) (callexport.Receiver, error) {
	if f.to == "" {
		return callexport.Lines{Writer: stdout}, nil
	}
	secure, err := config.TLS{CAFile: f.ca}.Client()
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	name := "OTEL_EXPORTER_OTLP_LOGS_HEADERS"
	value := os.Getenv(name)
	if value == "" {
		name = "OTEL_EXPORTER_OTLP_HEADERS"
		value = os.Getenv(name)
	}
	headers, err := callexport.ParseHeaders(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	host, _ := os.Hostname() // is only shown
	to, err := callexport.Open(callexport.Target{URL: f.to, Headers: headers, TLS: secure, Host: host, Version: version.This().Version})
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return to, nil
}

// keep writes the cursor to the file of --position.
func (f *exportFlags) keep(cursor string) error {
	if f.position == "" {
		return nil
	}
	return replaceFile(f.position, []byte(cursor+"\n"))
}
