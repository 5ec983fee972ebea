package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func newGrants(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants [ID]",
		Short: "List standing approvals, or show one",
		Long: "List the standing approvals that calls can use, newest first, or show one with the calls that it let run.\n\n" +
			"An ID may be shortened as long as it is unique.",
		Args: positional(cobra.MaximumNArgs(1)),
	}
	all := cmd.Flags().Bool("all", false, "also list those that are used up, over or revoked")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := g.client()
		if err != nil {
			return err
		}
		out := newScreen(cmd.OutOrStdout())
		if len(args) == 1 {
			return showGrant(cmd, c, out, args[0], *asJSON)
		}
		state := "active"
		if *all {
			state = "all"
		}
		listed, err := c.Grants(cmd.Context(), state)
		switch {
		case err != nil:
			return explained(err)
		case *asJSON:
			return out.json(map[string]any{"grants": listed})
		case len(listed) == 0:
			return out.line("No standing approvals.")
		default:
			return out.grantTable(listed, time.Now())
		}
	}
	return cmd
}

// showGrant prints one standing approval.
func showGrant(cmd *cobra.Command, c *client.Client, out *screen, text string, asJSON bool) error { //nolint:revive // the flag is the user's
	id, err := c.FindGrant(cmd.Context(), text)
	if err != nil {
		return explained(err)
	}
	one, err := c.Grant(cmd.Context(), id)
	if err != nil {
		return explained(err)
	}
	if asJSON {
		return out.json(one)
	}
	return out.grant(one, time.Now())
}

func newRevoke(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a standing approval",
		Long:  "Revoke a standing approval, on every replica at once. A call that it let in and that has not begun does not run.",
		Args:  positional(cobra.ExactArgs(1)),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := g.client()
		if err != nil {
			return err
		}
		id, err := c.FindGrant(cmd.Context(), args[0])
		if err != nil {
			return explained(err)
		}
		one, err := c.Revoke(cmd.Context(), id, *reason)
		if err != nil {
			return explained(err)
		}
		return newScreen(cmd.OutOrStdout()).line("revoked %s: used %d of %d times", one.ID, one.Used, one.MaxUses)
	}
	return cmd
}

// grantFlags say which standing approval is given with an approval.
type grantFlags struct {
	length time.Duration
	uses   int
	free   []string
}

func addGrantFlags(cmd *cobra.Command) *grantFlags {
	f := &grantFlags{}
	cmd.Flags().DurationVar(&f.length, "allow-for", 0, "also allow further calls like this one, without asking, for this `time`, such as 30m")
	cmd.Flags().IntVar(&f.uses, "allow-uses", 1, "`number` of further calls to allow, with --allow-for")
	cmd.Flags().StringArrayVar(&f.free, "allow-any", nil, "`argument` that may have any value of the same type in them; all others must be as shown (repeatable)")
	return f
}

// wish returns what the flags ask for, or nil.
func (f *grantFlags) wish(cmd *cobra.Command) (*task.GrantTerms, error) {
	if f.length > 0 {
		return &task.GrantTerms{Uses: f.uses, Free: f.free}, nil
	}
	if f.length < 0 || len(f.free) > 0 || cmd.Flags().Changed("allow-uses") {
		return nil, &usageError{cmd.CommandPath(), errors.New("--allow-uses and --allow-any need --allow-for with a positive time")}
	}
	return nil, nil //nolint:nilnil // no wish is no error
}

// text says what the standing approval allows, before it is given. It is empty if
// none is wanted.
func (f *grantFlags) text() string {
	if f.length <= 0 {
		return ""
	}
	text := fmt.Sprintf("This also allows %d more within %v, without asking anybody: the same agent and tool, and the arguments as shown",
		f.uses, f.length)
	if len(f.free) > 0 {
		text += ", with ANY value for " + oneLine(strings.Join(f.free, ", "), maxCell)
	}
	return text + ".\n"
}

// tellGrant prints the standing approval that was given with an approval of a call.
func tellGrant(cmd *cobra.Command, c *client.Client, out *screen, a casefile.Approval) error {
	if a.State == task.InputRequired {
		return out.line("The standing approval counts once all who must approve this call have given one.")
	}
	x, err := c.Context(cmd.Context(), a.ID)
	if err != nil {
		return explained(err)
	}
	if len(x.Given) == 0 {
		return errors.New("the call is approved, but there is no standing approval: not all who approved gave one, or the gate could not keep it")
	}
	return out.line("standing approval %s: %s", x.Given[0].ID, grantText(x.Given[0], time.Now()))
}

// grantText says how far a standing approval goes.
func grantText(g casefile.Grant, now time.Time) string {
	if g.State != casefile.GrantActive {
		return fmt.Sprintf("%s, used %d of %d times", oneLine(string(g.State), 20), g.Used, g.MaxUses)
	}
	return fmt.Sprintf("used %d of %d times, %s left", g.Used, g.MaxUses, span(g.Until.Sub(now)))
}

// grantArguments returns the pinned arguments and the free ones on one line.
func grantArguments(g casefile.Grant) string {
	text := oneLine(string(g.Arguments), 60)
	if g.ArgumentsTruncated {
		text = argumentStart(casefile.Approval{Arguments: g.Arguments}, 60)
	}
	if len(g.Free) > 0 {
		text += " ANY " + oneLine(strings.Join(g.Free, ", "), 60)
	}
	return strings.TrimSpace(text)
}

// grantTable prints standing approvals.
func (s *screen) grantTable(all []casefile.Grant, now time.Time) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tTOOL\tAGENT\tARGUMENTS\tGIVEN BY\tSTATE")
	for _, g := range all {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(string(g.ID), maxCell), markedName(g.Tool, 60), markedName(g.Principal, 60),
			grantArguments(g), oneLine(strings.Join(g.By, ", "), 60), grantText(g, now))
	}
	_ = w.Flush() // a builder does not fail
	return s.print(b.String())
}

// grant prints everything about one standing approval.
func (s *screen) grant(g casefile.Grant, now time.Time) error {
	free := "none"
	if len(g.Free) > 0 {
		free = "any value for " + oneLine(strings.Join(g.Free, ", "), maxText)
	}
	var uses []string
	for _, u := range g.Uses {
		became := strings.ReplaceAll(oneLine(u.Became, 40), "_", " ")
		if u.Became == casefile.UseNotMade {
			became = "counted, but the gate stopped before it made the call: it never ran"
		}
		uses = append(uses, u.At.UTC().Format(time.DateTime)+" "+oneLine(string(u.Task), maxCell)+" "+became)
	}
	revoked := ""
	if r := g.Revoked; r != nil {
		revoked = strings.TrimSpace(oneLine(r.By, maxCell) + " " + span(now.Sub(r.At)) + " ago " + oneLine(r.Reason, maxCell))
	}
	text := row("id", string(g.ID)) + row("state", grantText(g, now)) +
		row("tool", markedName(g.Tool, maxText)+" (on upstream "+oneLine(g.Upstream, maxCell)+")") +
		row("agent", markedName(g.Principal, maxCell)) + row("workflow", oneLine(g.Workflow, maxCell)) +
		row("given by", oneLine(strings.Join(g.By, ", "), maxText)+" with the approval of "+oneLine(string(g.From), maxCell)) +
		row("until", g.Until.UTC().Format(time.DateTime)+" UTC") + row("revoked", revoked) +
		row("pinned", argumentText(casefile.Approval{Arguments: g.Arguments, ArgumentsTruncated: g.ArgumentsTruncated})) + row("free", free)
	if len(g.AlsoSent) > 0 {
		text += row("also sent", argumentText(casefile.Approval{Arguments: g.AlsoSent, ArgumentsTruncated: g.AlsoSent.Kind() == '"'}))
	}
	return s.print(text + row("uses", strings.Join(uses, "\n")))
}
