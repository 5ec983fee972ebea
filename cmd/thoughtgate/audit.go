package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

func newAudit() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "audit",
		Short: "Read and verify the audit log of held calls",
		Long: "Read the audit log: every step of every held call, and every change of policy and of tools, with its actor and its outcome.\n\n" +
			"By default the commands ask a running gate at --url, with an admin's token. With --config they read the configured\n" +
			"store; a SQLite file can be read only while no gate uses it.",
	})
	a := newAuditFlags(cmd.PersistentFlags())
	cmd.AddCommand(newAuditList(a), newAuditExport(a), newAuditVerify(a))
	return cmd
}

// auditFlags select a gate or a store.
type auditFlags struct {
	gate   gateFlags
	config *string
}

func newAuditFlags(flags *pflag.FlagSet) auditFlags {
	return auditFlags{
		gate:   newGateFlags(flags, "an admin's token"),
		config: flags.StringP("config", "c", "", "configuration `file`; read its store instead of asking a gate"),
	}
}

// A journal is an open journal of a gate or a store.
type journal struct {
	audit.Source

	find  audit.Finder
	close func() error
}

func (a auditFlags) open(cmd *cobra.Command) (journal, error) {
	if err := a.check(cmd); err != nil {
		return journal{}, err
	}
	if *a.config == "" {
		c, err := a.gate.client()
		if err != nil {
			return journal{}, err
		}
		return journal{c, c.Audit, func() error { return nil }}, nil
	}
	store, err := a.openStore(cmd, "the audit log")
	if err != nil {
		return journal{}, err
	}
	find := func(ctx context.Context, f audit.Filter) (audit.Page, error) { return audit.Find(ctx, store, f) }
	return journal{store, find, store.Close}, nil
}

// check reports flags that exclude each other.
func (a auditFlags) check(cmd *cobra.Command) error {
	if *a.config != "" && (*a.gate.url != "" || *a.gate.tokenFile != "") {
		return &usageError{cmd.CommandPath(), errors.New("give --config to read a store, or --url and --token-file to ask a gate, not both")}
	}
	return nil
}

// openStore opens the configured store, which no gate uses.
func (a auditFlags) openStore(cmd *cobra.Command, what string) (*sealedstore.Store, error) {
	cfg, _, err := config.LoadStorage(config.Sources{File: *a.config, Environ: os.Environ()})
	if err != nil {
		return nil, err
	}
	s := app.Storage(cfg)
	if !s.Durable() {
		return nil, errors.New("the store is memory:, so only the running gate has " + what + "; pass --url instead of --config")
	}
	store, err := mustExist(storage.Settings.OpenUnverified)(s, cmd.Context()) // held calls may be encrypted with another key
	if storage.InUse(err) {
		err = fmt.Errorf("%w (to ask the gate that uses it, pass --url)", err)
	}
	return store, err
}

// use opens the journal, calls f, and closes the journal.
func (a auditFlags) use(cmd *cobra.Command, f func(journal) error) error {
	l, err := a.open(cmd)
	if err != nil {
		return err
	}
	return errors.Join(clientError(f(l)), l.close())
}

// filterFlags select entries.
type filterFlags struct {
	times  timeFlags
	filter audit.Filter // without times
}

func newFilterFlags(cmd *cobra.Command, gate gateFlags) *filterFlags {
	f := &filterFlags{filter: audit.Filter{Limit: 1000}}
	flags := cmd.Flags()
	flags.StringVar((*string)(&f.filter.Task), "task", "", "only entries of the held call with this `id` or id prefix")
	flags.StringVar(&f.filter.Tool, "tool", "", "only entries of calls to this `tool`")
	flags.StringVar(&f.filter.Requester, "requester", "", "only entries of calls by this `principal`")
	flags.StringVar(&f.filter.Approver, "approver", "", "only decisions by this `person`")
	flags.StringVar((*string)(&f.filter.Grant), "grant", "", "only entries about the standing approval with this `id` or id prefix")
	flags.BoolVar(&f.filter.Suspicious, "suspicious", false, "only decisions that an agent may have made by itself, and those that were refused for that")
	completeFlag(cmd, "task", gate.complete(callIDs("all")))
	completeFlag(cmd, "tool", gate.complete(toolNames))
	completeFlag(cmd, "requester", gate.complete(agentNames))
	f.times.add(flags)
	return f
}

// selected returns the filter of the flags.
func (f *filterFlags) selected(cmd *cobra.Command, now time.Time) (filter audit.Filter, err error) {
	filter = f.filter
	filter.Since, filter.Until, err = f.times.parse(cmd, now)
	return filter, err
}

// timeFlags select entries by their times.
type timeFlags struct{ since, until string }

func (f *timeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.since, "since", "", "only entries since this `time`, such as 2026-11-15T06:00:00Z, or 7d for the last week")
	flags.StringVar(&f.until, "until", "", "only entries before this `time`")
}

// parse returns the times of the flags.
func (f *timeFlags) parse(cmd *cobra.Command, now time.Time) (since, until time.Time, err error) {
	for _, bound := range []struct {
		name, text string
		to         *time.Time
	}{{"since", f.since, &since}, {"until", f.until, &until}} {
		if bound.text == "" {
			continue
		}
		var failed error
		if *bound.to, failed = pastTime(bound.text, now); failed != nil {
			err = &usageError{cmd.CommandPath(), fmt.Errorf("--%s %w", bound.name, failed)}
		}
	}
	return since, until, err
}

// pastTime returns the time that a text names, or the time before now if it is a duration.
func pastTime(text string, now time.Time) (time.Time, error) {
	if n, err := strconv.ParseUint(strings.TrimSuffix(text, "d"), 10, 16); err == nil && strings.HasSuffix(text, "d") {
		return now.AddDate(0, 0, -int(n)), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		err = fmt.Errorf("%q is neither a time nor a duration", text)
	}
	return at, err
}

func newAuditList(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List audit entries, oldest first",
		Args:  noArguments,
	}
	flags := newFilterFlags(cmd, a.gate)
	last := cmd.Flags().Int("last", 100, "list only the last `n` entries; 0 lists all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := flags.selected(cmd, time.Now())
		if err != nil {
			return err
		}
		if *last < 0 {
			return &usageError{cmd.CommandPath(), errors.New("--last must not be negative")}
		}
		return a.use(cmd, func(l journal) error {
			entries, err := latest(cmd.Context(), l, f, *last)
			if err != nil {
				return err
			}
			return newScreen(cmd.OutOrStdout()).steps(entries)
		})
	}
	return cmd
}

// latest returns the last n entries that f selects, or all if n is 0.
func latest(ctx context.Context, l journal, f audit.Filter, n int) ([]auditlog.Entry, error) {
	if n > 0 && f.SelectsAll() {
		ends, err := l.Ends(ctx)
		if err != nil {
			return nil, err
		}
		f.After = max(f.After, ends.Head.Seq-int64(n))
	}
	var found []auditlog.Entry
	for e, err := range audit.All(ctx, l.find, f) {
		if err != nil {
			return nil, err
		}
		if found = append(found, e); n > 0 && len(found) > n {
			found = found[1:]
		}
	}
	return found, nil
}

// steps prints a line for each entry.
func (s *screen) steps(entries []auditlog.Entry) error {
	if len(entries) == 0 {
		return s.line("No entries.")
	}
	t := newTable("SEQ", "TIME", "ID", "STEP", "TOOL", "REQUESTER", "BY", "OUTCOME", "RAN", "VIA", "REASON")
	for _, e := range entries {
		t.add(
			strconv.FormatInt(e.Seq, 10), e.At.Local().Format(time.RFC3339), oneLine(string(e.Task), maxCell), oneLine(e.Step, 60), oneLine(e.Tool, 60),
			oneLine(e.Requester, 60), oneLine(e.Actor, 60), oneLine(outcomeText(e), 60), dash(string(e.Ran)), dash(e.ViaText()), oneLine(e.Reason, maxCell))
	}
	return s.print(t.text())
}

func dash(text string) string { return oneLine(cmp.Or(text, "-"), 60) }

func newAuditExport(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit log as lines of JSON",
		Long: "Write the audit log, one line of JSON for each entry, oldest first.\n\n" +
			"If no filter is given, \"audit verify FILE\" can verify the file later, with the head that is printed to standard error.",
		Args: noArguments,
	}
	flags := newFilterFlags(cmd, a.gate)
	output := cmd.Flags().StringP("output", "o", "", "`file` to write, which must not exist (default: standard output)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := flags.selected(cmd, time.Now())
		if err != nil {
			return err
		}
		return a.use(cmd, func(l journal) error {
			head, err := export(cmd, l, f, *output)
			if err == nil && f.SelectsAll() {
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), "head", head)
			}
			return err
		})
	}
	return cmd
}

// export writes entries, and returns the link of the last one.
func export(cmd *cobra.Command, l journal, f audit.Filter, output string) (head auditlog.Link, err error) {
	err = toFile(cmd.OutOrStdout(), cmp.Or(output, "-"), func(w io.Writer) error {
		head, err = writeLines(cmd.Context(), w, l, f)
		return err
	})
	return head, err
}

func writeLines(ctx context.Context, out io.Writer, l journal, f audit.Filter) (head auditlog.Link, err error) {
	w := bufio.NewWriter(out)
	var line []byte
	for e, err := range audit.All(ctx, l.find, f) {
		if err != nil {
			return head, errors.Join(err, w.Flush())
		}
		if line, err = audit.AppendLine(line[:0], e); err != nil {
			return head, err
		}
		if _, err := w.Write(line); err != nil {
			return head, err
		}
		head = e.Link()
	}
	return head, w.Flush()
}

func newAuditVerify(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify that the audit log is unchanged",
		Long: "Verify that no entry of the audit log was changed, removed, moved or inserted, and print those that were.\n" +
			"With FILE, read the entries from a file that \"audit export\" wrote.\n\n" +
			"Anyone who can write to the store can rewrite the whole log. To detect that, keep a head elsewhere (this command and\n" +
			"the gate's own log print it) and pass it with --head.",
		Args: optionalArgument,
	}
	head := cmd.Flags().String("head", "", "an entry that the log must contain, as `SEQ:HASH`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var known auditlog.Link
		if *head != "" {
			var err error
			if known, err = auditlog.ParseLink(*head); err != nil || known.Seq == 0 {
				return &usageError{cmd.CommandPath(), fmt.Errorf("--head: %q is not SEQ:HASH", *head)}
			}
		}
		if len(args) > 0 {
			return a.verifyFile(cmd, args[0], known)
		}
		return a.use(cmd, func(l journal) error {
			r, err := audit.Verify(cmd.Context(), l, known)
			if err != nil {
				return err
			}
			return newScreen(cmd.OutOrStdout()).verified(r)
		})
	}
	return cmd
}

// verifyFile verifies the entries in a file, without a gate or a store.
func (a auditFlags) verifyFile(cmd *cobra.Command, name string, known auditlog.Link) error {
	if *a.config != "" || *a.gate.url != "" || *a.gate.tokenFile != "" {
		return &usageError{cmd.CommandPath(), errors.New("give FILE, or the flags of a store or a gate, not both")}
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	r, err := audit.VerifyLines(file, known)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return newScreen(cmd.OutOrStdout()).verified(r)
}

// verified prints a report, and returns an error if it has problems.
func (s *screen) verified(r audit.Report) error {
	if r.OK() {
		after := ""
		if r.After.Seq > 0 {
			after = fmt.Sprintf(", after %d deleted or omitted ones", r.After.Seq)
		}
		if r.Signatures > 0 {
			after += fmt.Sprintf(", %s by a passkey", count(r.Signatures, "approval"))
		}
		if r.Unknown > 0 {
			after += fmt.Sprintf(" (%d by one that was added before these entries: compare its operator yourself)", r.Unknown)
		}
		return s.line("%s: %s%s\nhead %s", s.paint(green, "ok"), count(r.Entries, "entry"), after, r.Head)
	}
	var b strings.Builder
	for _, p := range r.Problems {
		b.WriteString(s.paint(red, p) + "\n")
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", r.More)
	}
	return cmp.Or(s.print(b.String()), errors.New("the audit log does not verify"))
}
