package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
)

func newCalls() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "calls",
		Short: "Read and verify the record of all calls",
		Long: "Read the record of calls: what policy decided about each call, and what became of it. Held calls also have the steps in \"audit\".\n\n" +
			"By default the commands ask a running gate at --url, with an admin's token. With --config they read the configured\n" +
			"store; a SQLite file can be read only while no gate uses it. A gate writes the calls of the last second together.",
	})
	a := newAuditFlags(cmd.PersistentFlags())
	cmd.AddCommand(newCallsList(a), newCallsSummary(a), newCallsExport(a), newCallsVerify(a))
	return cmd
}

// A record is the open record of calls of a gate or a store.
type record struct {
	find   callrecord.Finder
	verify func(context.Context, ...callrecord.Link) (callrecord.Report, error)
}

// useRecord opens the record of calls, calls f, and closes it.
func (a auditFlags) useRecord(cmd *cobra.Command, f func(record) error) error {
	if err := a.check(cmd); err != nil {
		return err
	}
	if *a.config == "" {
		c, err := a.gate.client()
		if err != nil {
			return err
		}
		return clientError(f(record{c.Calls, c.VerifyCalls}))
	}
	store, err := a.openStore(cmd, "the record of calls")
	if err != nil {
		return err
	}
	err = f(record{
		func(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
			return callrecord.Find(ctx, store, f)
		},
		func(ctx context.Context, known ...callrecord.Link) (callrecord.Report, error) {
			return callrecord.Verify(ctx, store, known...)
		},
	})
	return errors.Join(err, store.Close())
}

// callFlags select entries of the record of calls.
type callFlags struct {
	times  timeFlags
	filter callrecord.Filter // without times
}

func newCallFlags(cmd *cobra.Command) *callFlags {
	f := &callFlags{filter: callrecord.Filter{Limit: 1000}}
	flags := cmd.Flags()
	flags.StringVar(&f.filter.ID, "id", "", "only entries of the held call with this `id`")
	flags.StringVar(&f.filter.Name, "tool", "", "only calls of this `tool`, prompt or URI")
	flags.StringVar(&f.filter.Upstream, "upstream", "", "only calls to this `upstream`")
	flags.StringVar(&f.filter.Principal, "principal", "", "only calls by this `agent`")
	flags.StringVar(&f.filter.Action, "action", "", "only calls that policy decided to forward, approve or deny")
	flags.StringVar(&f.filter.Outcome, "outcome", "", "only entries with this `outcome`, such as success, error, denied, held or completed")
	flags.StringVar((*string)(&f.filter.Event), "event", "", "only entries of this `event`: judged, or ended for the ends of held calls")
	flags.StringVar(&f.filter.By, "by", "", "only entries of calls that this `approver` decided")
	flags.StringVar(&f.filter.Text, "text", "", "only entries with all of these `words` in names, recorded arguments or the reason of the decision")
	f.times.add(flags)
	return f
}

// selected returns the filter of the flags.
func (f *callFlags) selected(cmd *cobra.Command, now time.Time) (filter callrecord.Filter, err error) {
	filter = f.filter
	filter.Since, filter.Until, err = f.times.parse(cmd, now)
	return filter, err
}

func newCallsList(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, oldest first",
		Args:  noArguments,
	}
	flags := newCallFlags(cmd)
	last := cmd.Flags().Int("last", 100, "list only the last `n` entries; 0 lists all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := flags.selected(cmd, time.Now())
		if err != nil {
			return err
		}
		if *last < 0 {
			return &usageError{cmd.CommandPath(), errors.New("--last must not be negative")}
		}
		return a.useRecord(cmd, func(r record) error {
			var all []callrecord.Entry
			for page, err := range callrecord.Pages(cmd.Context(), r.find, f) {
				if err != nil {
					return err
				}
				all = append(all, page.Entries...)
				if *last > 0 {
					all = all[max(0, len(all)-*last):]
				}
			}
			return newScreen(cmd.OutOrStdout()).calls(all)
		})
	}
	return cmd
}

// calls prints a line for each entry.
func (s *screen) calls(all []callrecord.Entry) error {
	if len(all) == 0 {
		return s.line("No calls.")
	}
	t := newTable("TIME", "UPSTREAM", "TOOL", "PRINCIPAL", "ACTION", "RULE", "OUTCOME", "TOOK", "ID", "BY")
	for i := range all {
		e := &all[i]
		action := string(e.Action)
		if e.Observed != "" {
			action += " (would " + string(e.Observed) + ")"
		}
		took := ""
		if e.Took > 0 {
			took = e.Took.Round(time.Microsecond).String()
		}
		t.add(
			e.Time.Local().Format(time.RFC3339), oneLine(e.Upstream, 60), oneLine(e.Name, 60), dash(e.Principal), action, dash(e.Rule), oneLine(e.Outcome, 60),
			dash(took), dash(cmp.Or(e.ID, e.Ref)), dash(strings.Join(e.By, ", ")))
	}
	return s.print(t.text())
}

func newCallsSummary(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Count calls, and list what was only observed",
		Long: "Count the calls of the last day, or of another time, by what became of them. List the calls that were forwarded only because\n" +
			"of \"mode: observe\", with the agents that made them and the rules that would have held or denied them.",
		Args: noArguments,
	}
	var times timeFlags
	times.add(cmd.Flags())
	cmd.Flags().Lookup("since").DefValue = "1d"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now := time.Now()
		times.since = cmp.Or(times.since, "1d")
		since, until, err := times.parse(cmd, now)
		if err != nil {
			return err
		}
		if until.IsZero() {
			until = now
		}
		return a.useRecord(cmd, func(r record) error {
			s, err := callrecord.Summarize(callrecord.Entries(cmd.Context(), r.find, callrecord.Filter{Since: since, Until: until, Limit: 1000}), since, until, 1)
			if err != nil {
				return err
			}
			return newScreen(cmd.OutOrStdout()).numbers(s)
		})
	}
	return cmd
}

// numbers prints the numbers of calls, and a line for each group of observed calls.
func (s *screen) numbers(sum callrecord.Summary) error {
	if err := s.line("%s", sum.Total.Text()); err != nil || len(sum.Observed) == 0 {
		return err
	}
	t := newTable("WOULD BE", "CALLS", "UPSTREAM", "TOOL", "PRINCIPAL", "RULE")
	for _, n := range sum.Observed {
		t.add(n.Would(), strconv.Itoa(n.Calls), oneLine(n.Upstream, 60), oneLine(n.Name, 60), dash(n.Principal), dash(n.Rule))
	}
	return s.print(t.text())
}

func newCallsVerify(a auditFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the record of calls is unchanged",
		Long: "Verify that no calls were changed, removed or reordered in the record, and print those that were. Each process of a gate\n" +
			"writes its own chain of blocks. The oldest blocks are deleted after record.retention.\n\n" +
			"Anyone who can write to the store can remove a whole chain or its end. To detect that, keep a head elsewhere (this\n" +
			"command and the gate's own log print it) and pass it with --head.",
		Args: noArguments,
	}
	head := cmd.Flags().String("head", "", "a block that the record must contain, as `CHAIN:SEQ:HASH`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var known []callrecord.Link
		if *head != "" {
			l, err := callrecord.ParseLink(*head)
			if err != nil {
				return &usageError{cmd.CommandPath(), fmt.Errorf("--head: %w", err)}
			}
			known = append(known, l)
		}
		return a.useRecord(cmd, func(r record) error {
			found, err := r.verify(cmd.Context(), known...)
			if err != nil {
				return err
			}
			return newScreen(cmd.OutOrStdout()).verifiedCalls(found)
		})
	}
	return cmd
}

// verifiedCalls prints a report, and returns an error if it has problems.
func (s *screen) verifiedCalls(r callrecord.Report) error {
	var b strings.Builder
	if r.OK() {
		fmt.Fprintf(&b, "%s: %s in %s", s.paint(green, "ok"), count(r.Entries, "entry"), count(r.Blocks, "block"))
		if r.Deleted > 0 {
			fmt.Fprintf(&b, ", after %d deleted ones", r.Deleted)
		}
		if r.Dropped > 0 {
			fmt.Fprintf(&b, "; %d could not be recorded", r.Dropped)
		}
		b.WriteString("\n")
		for _, l := range r.Heads {
			fmt.Fprintf(&b, "head %s\n", l)
		}
		return s.print(b.String())
	}
	for _, p := range r.Problems {
		b.WriteString(s.paint(red, oneLine(p, maxCell)) + "\n")
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", r.More)
	}
	return cmp.Or(s.print(b.String()), errors.New("the record of calls does not verify"))
}
