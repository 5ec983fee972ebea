package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

func newApprovals() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "approvals",
		Short: "List, show and decide held calls",
		Long: "List the calls that a running gate holds, show them, and approve or reject them.\n\n" +
			"An ID may be shortened as long as it is unique. The operator token is read from the environment variable\n" +
			tokenVariable + " or from a file, never from the command line, which other processes can read.\n" +
			"Without a URL and a token, the inbox of your own gates is used; see thoughtgate desk.",
	})
	g := newGateFlags(cmd.PersistentFlags(), "the operator token")
	cmd.AddCommand(newList(g), newShow(g), newApprove(g), newReject(g), newWatch(g), newGrants(g), newRevoke(g), newChanges(g), newAccept(g))
	return cmd
}

func newList(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held calls",
		Long: "List the calls that a gate holds, pending ones with the least time left first, others newest first.\n\n" +
			"RISK is what a call may do, according to the tool's server; the gate has not checked it.",
		Args: noArguments,
	}
	var s client.Selection
	cmd.Flags().StringVar(&s.State, "state", "pending", "pending, all, or a `state` such as rejected")
	cmd.Flags().StringVar(&s.Tool, "tool", "", "only calls of tools with this `text` in their name")
	cmd.Flags().StringVar(&s.Agent, "agent", "", "only calls of agents with this `text` in their name")
	cmd.Flags().StringVar(&s.Workflow, "workflow", "", "only calls of workflows with this `text` in their name")
	cmd.Flags().StringVar(&s.Text, "text", "", "only calls that have all these `words` in their names, arguments or reasons")
	order := cmd.Flags().String("sort", "", "`order` of the list: left (least time left first) or newest (default: left for pending calls, otherwise newest)")
	completeFlag(cmd, "state", words(stateNames()...))
	completeFlag(cmd, "tool", g.complete(toolNames))
	completeFlag(cmd, "agent", g.complete(agentNames))
	completeFlag(cmd, "workflow", g.complete(workflowNames))
	completeFlag(cmd, "sort", words("left", "newest"))
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	byTimeLeft := false
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if byTimeLeft, err = sortsByTimeLeft(*order, s.State); err == nil {
			err = oneOf("state", s.State, stateNames()...)
		}
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return nil
	}
	return g.run(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		listed, err := c.List(cmd.Context(), s)
		if err != nil {
			return err
		}
		if byTimeLeft {
			sortByTimeLeft(listed)
		}
		out := newScreen(cmd.OutOrStdout())
		switch {
		case *asJSON:
			return out.json(review.Page{Approvals: listed})
		case len(listed) > 0:
			return out.table(listed, time.Now())
		case s != client.Selection{State: s.State}:
			return out.line("No such approvals.")
		case s.State == "pending":
			return out.line("No pending approvals.")
		default:
			return out.line("No approvals in this state.")
		}
	})
}

// stateNames returns the values of --state.
func stateNames() []string {
	names := []string{"pending", "all"}
	for _, state := range task.States() {
		names = append(names, string(state))
	}
	return names
}

// sortsByTimeLeft reports whether --sort, or its default for the state, lists the calls
// with the least time left first.
func sortsByTimeLeft(order, state string) (bool, error) {
	switch order {
	case "":
		return state == "pending", nil
	case "left", "newest":
		return order == "left", nil
	default:
		return false, oneOf("sort", order, "left", "newest")
	}
}

// sortByTimeLeft puts the calls with the least time left first.
func sortByTimeLeft(calls []review.Approval) {
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].ExpiresAt.Before(calls[j].ExpiresAt) }) // slices.SortFunc would be compiled again for this large type
}

func newShow(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one held call with its arguments",

		ValidArgsFunction: g.completeOne(callIDs("all")),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	return runOne(g, cmd, (*client.Client).Find, func(cmd *cobra.Command, c *client.Client, id task.ID) error {
		a, err := c.Show(cmd.Context(), id)
		if err != nil {
			return err
		}
		out := newScreen(cmd.OutOrStdout())
		if *asJSON {
			return out.json(a)
		}
		around, err := c.Context(cmd.Context(), id)
		if err != nil {
			return err
		}
		now := time.Now()
		return out.print(out.cautions(around) + out.details(a, now) + background(around, now))
	})
}

func newChanges(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "List tools that have changed",
		Long: "List the tools whose definition differs from the first one, if policy uses their hints, or from the lock file, if no\n" +
			"operator has accepted the change.",
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	return g.run(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		out := newScreen(cmd.OutOrStdout())
		listed, err := c.Changes(cmd.Context())
		switch {
		case err != nil:
			return err
		case *asJSON:
			return out.json(map[string]any{"changes": listed})
		case len(listed) == 0:
			return out.line("No tool has changed.")
		}
		t := newTable("ID", "SERVER", "TOOL", "SINCE", "CHANGE")
		for _, one := range listed {
			t.add(oneLine(one.ID, maxCell), oneLine(one.Upstream, maxCell), oneLine(one.Tool, maxCell), formatDuration(time.Since(one.At))+" ago", oneLine(one.What, maxText))
		}
		text := []string{t.text()}
		for _, one := range listed {
			if one.Diff != "" {
				text = append(text, oneLine(one.ID, maxCell)+"\n"+paragraph(one.Diff)+"\n")
			}
		}
		_, err = io.WriteString(cmd.OutOrStdout(), strings.Join(text, "\n"))
		return err
	})
}

func newAccept(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept ID",
		Short: "Accept the changed definition of a tool",
		Long: "Accept the changed definition of a tool: from now on, policy uses it, on every replica. Calls that policy then\n" +
			"forwards run without approval. The audit log records this. Needs the role admin.\n\n" +
			"\"thoughtgate approvals changes\" lists the IDs, which may be shortened.",
		ValidArgsFunction: g.completeOne(changeIDs),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	return runOne(g, cmd, (*client.Client).FindChange, func(cmd *cobra.Command, c *client.Client, id string) error {
		one, err := c.AcceptChange(cmd.Context(), id, *reason)
		if err != nil {
			return err
		}
		return newScreen(cmd.OutOrStdout()).line("accepted the tool %s of %s: %s", oneLine(one.Tool, maxCell), oneLine(one.Upstream, maxCell), oneLine(one.What, maxText))
	})
}

// The environment variables that select a gate, and its default address.
const (
	urlVariable   = "THOUGHTGATE_OPERATORS_URL"
	tokenVariable = "THOUGHTGATE_OPERATOR_TOKEN"
	defaultURL    = "http://127.0.0.1:8081"
)

// gateFlags select a gate.
type gateFlags struct{ url, tokenFile *string }

func newGateFlags(flags *pflag.FlagSet, token string) gateFlags {
	return gateFlags{
		url:       flags.String("url", "", "`URL` of the gate's operators' address (default: "+urlVariable+", or "+defaultURL+")"),
		tokenFile: flags.String("token-file", "", "`file` with "+token+" (default: the token in "+tokenVariable+")"),
	}
}

// client returns a client of that gate.
func (g gateFlags) client() (*client.Client, error) {
	c, err := g.config()
	if err != nil {
		return nil, err
	}
	return client.New(c)
}

// run makes cmd call a function with a client of that gate.
func (g gateFlags) run(cmd *cobra.Command, do func(cmd *cobra.Command, c *client.Client, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := g.client()
		if err != nil {
			return err
		}
		return clientError(do(cmd, c, args))
	}
	return cmd
}

// runOne is like run, for a command whose only argument is the ID of an object, which may be
// shortened.
func runOne[ID any](
	g gateFlags, cmd *cobra.Command, find func(*client.Client, context.Context, string) (ID, error),
	do func(cmd *cobra.Command, c *client.Client, id ID) error,
) *cobra.Command {
	cmd.Args = oneArgument
	return g.run(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		id, err := find(c, cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return do(cmd, c, id)
	})
}

// config returns the settings for a client of that gate.
func (g gateFlags) config() (client.Config, error) {
	token := os.Getenv(tokenVariable)
	if *g.tokenFile != "" {
		text, err := os.ReadFile(*g.tokenFile)
		if err != nil {
			return client.Config{}, err
		}
		if token = string(bytes.TrimSpace(text)); token == "" {
			return client.Config{}, fmt.Errorf("no token in %s", *g.tokenFile)
		}
		showProcess()
	}
	url := cmp.Or(*g.url, os.Getenv(urlVariable))
	if token == "" && url == "" {
		inbox, err := findInbox() // the one that all gates of the user share
		if !errors.Is(err, localdesk.ErrNoDesk) {
			showProcess()
			return client.Config{URL: inbox.URL, Token: cmp.Or(inbox.SignIn, inbox.Token)}, err
		}
	}
	if token == "" {
		return client.Config{}, errors.New("no token: set " + tokenVariable + " or pass --token-file FILE")
	}
	return client.Config{URL: cmp.Or(url, defaultURL), Token: token}, nil
}

// clientError returns an error of the gate as a text for approvers.
func clientError(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		return err
	case refused.Type == "unauthorized":
		return errors.New("the gate does not accept this token; one that serve generated is valid until the gate stops or has operators")
	default:
		return errors.New(oneLine(refused.Error(), maxCell))
	}
}

func newWatch(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show held calls as they arrive, and decide them",
		Long: "On a terminal, show the pending calls on a live screen. You can read each call and approve or reject it. New calls\n" +
			"also cause a desktop notification if notify-send or osascript is installed.\n\n" +
			"Otherwise, or with --plain, print one line for each pending call, for each new one, and for each one that is\n" +
			"decided or expires. Press Ctrl-C to stop. A lost connection is reopened.",
		Args: noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print each event as a line of JSON")
	asLines := cmd.Flags().Bool("plain", false, "print lines even on a terminal")
	quiet := cmd.Flags().Bool("no-notify", false, "show no desktop notifications")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := g.config()
		if err != nil {
			return err
		}
		if *asJSON || *asLines || !isTerminal(cmd.OutOrStdout()) || !isTerminal(os.Stdin) || os.Getenv("TERM") == "dumb" {
			return watchLines(cmd, cfg, *asJSON)
		}
		notify := func(review.Approval) {}
		if !*quiet {
			notify = newNotifier(cmd.Context(), exec.LookPath).notify
		}
		return runTUI(cmd.Context(), cfg, notify)
	}
	return cmd
}

// watchLines prints a line for each event.
func watchLines(cmd *cobra.Command, cfg client.Config, asJSON bool) error { //nolint:revive // the flag is the user's
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	out := newScreen(cmd.OutOrStdout())
	show := out.event
	if asJSON {
		show = out.jsonEvent
	}
	for e, err := range c.Watch(cmd.Context()) {
		if lost, ok := errors.AsType[*client.LostError](err); ok {
			note := oneLine(lost.Error(), maxCell)
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s; trying again in %s\n", note, human.Duration(lost.Retry))
			continue
		}
		if err != nil {
			return clientError(err)
		}
		if err := show(e, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// event prints one line.
func (s *screen) event(e client.Event, now time.Time) error {
	a := e.Approval
	clock := now.Format(time.TimeOnly)
	switch e.Kind {
	case client.Pending:
		return s.line("%s  %s  %s  %s  for %s, %s left", clock, s.status(a), a.ID, callText(a), requester(a), formatDuration(a.ExpiresAt.Sub(now)))
	case client.Settled:
		return s.line("%s  %s  %s  %s", clock, s.status(a), a.ID, callText(a))
	case client.Gone:
		return s.line("%s  %s  %s  %s", clock, s.paint(dim, "no longer known to the gate"), a.ID, callText(a))
	default: // of a newer gate
		return nil
	}
}

func (s *screen) jsonEvent(e client.Event, _ time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.w, safetext.Escape(string(text)))
	return err
}

func newGrants(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants [ID]",
		Short: "List standing approvals, or show one",
		Long: "List the active standing approvals, newest first, or show one with the calls that used it.\n\n" +
			"An ID may be shortened as long as it is unique.",
		Args: optionalArgument,

		ValidArgsFunction: g.completeOne(grantIDs),
	}
	all := cmd.Flags().Bool("all", false, "also list those that are used up, expired or revoked")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	return g.run(cmd, func(cmd *cobra.Command, c *client.Client, args []string) error {
		out := newScreen(cmd.OutOrStdout())
		if len(args) == 1 {
			id, err := c.FindGrant(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			one, err := c.Grant(cmd.Context(), id)
			if err != nil {
				return err
			}
			if *asJSON {
				return out.json(one)
			}
			return out.grant(one, time.Now())
		}
		state := "active"
		if *all {
			state = "all"
		}
		listed, err := c.Grants(cmd.Context(), state)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return out.json(map[string]any{"grants": listed})
		case len(listed) == 0:
			return out.line("No standing approvals.")
		default:
			return out.grantTable(listed, time.Now())
		}
	})
}

func newRevoke(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a standing approval",
		Long:  "Revoke a standing approval, on every replica at once. A call that it allowed and that has not started does not run.",

		ValidArgsFunction: g.completeOne(grantIDs),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	return runOne(g, cmd, (*client.Client).FindGrant, func(cmd *cobra.Command, c *client.Client, id gatetask.GrantID) error {
		one, err := c.Revoke(cmd.Context(), id, *reason)
		if err != nil {
			return err
		}
		return newScreen(cmd.OutOrStdout()).line("revoked %s: %s", one.ID, usesText(one))
	})
}

// grantFlags describe the standing approval to give with an approval.
type grantFlags struct {
	length time.Duration
	uses   int
	free   []string
	below  []string // ARGUMENT=DIRECTORY
	reach  string
}

func addGrantFlags(cmd *cobra.Command) *grantFlags {
	f := &grantFlags{}
	cmd.Flags().DurationVar(&f.length, "allow-for", 0, "also allow further calls like this one, without asking, for this `time`, such as 30m")
	cmd.Flags().IntVar(&f.uses, "allow-uses", 1, "`number` of further calls to allow, with --allow-for")
	cmd.Flags().StringArrayVar(&f.free, "allow-any", nil, "`argument` that may have any value of the same type in them; all others must be as shown (repeatable)")
	cmd.Flags().StringArrayVar(&f.below, "allow-below", nil, "`ARGUMENT=DIRECTORY`: the argument may be any path below the directory in them (repeatable)")
	cmd.Flags().StringVar(&f.reach, "allow-tools", "", "allow other `tools` too, with any arguments: read_only (those of this server), server (all of them), or agent (all of all servers)")
	return f
}

// terms returns the standing approval that the flags ask for, or nil.
func (f *grantFlags) terms(cmd *cobra.Command) (*gatetask.GrantTerms, error) {
	if f.length <= 0 {
		if f.length < 0 || len(f.free) > 0 || len(f.below) > 0 || f.reach != "" || cmd.Flags().Changed("allow-uses") {
			return nil, &usageError{cmd.CommandPath(), errors.New("--allow-uses, --allow-any, --allow-below and --allow-tools need --allow-for with a positive time")}
		}
		return nil, nil // without a standing approval
	}
	shape := gatetask.GrantShape{Free: f.free, Reach: gatetask.GrantReach(f.reach)}
	for _, text := range f.below {
		// Names of arguments may have any characters, directories have no equals sign here.
		at := strings.LastIndex(text, "=/")
		if at < 0 {
			return nil, &usageError{cmd.CommandPath(), errors.New("--allow-below needs ARGUMENT=/DIRECTORY")}
		}
		shape.Below = append(shape.Below, gatetask.GrantBelow{Argument: text[:at], Directory: text[at+1:]})
	}
	return &gatetask.GrantTerms{Uses: f.uses, GrantShape: shape}, nil
}

// coverage describes what a standing approval would have covered, and completes its terms.
func (f *grantFlags) coverage(cmd *cobra.Command, c *client.Client, id task.ID, wish *gatetask.GrantTerms) (string, error) {
	if wish.Reach == gatetask.ReachReadOnly {
		around, err := c.Context(cmd.Context(), id)
		if err != nil {
			return "", err
		}
		if around.GrantOffer != nil {
			wish.Tools = around.GrantOffer.Tools
		}
	}
	wish.Until = time.Now().Add(f.length)
	known, err := c.Coverage(cmd.Context(), id, *wish)
	if err != nil {
		return "", err
	}
	return coverageText(known), nil
}

// coverageText describes what a standing approval would have covered.
func coverageText(c approval.Coverage) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Since %s it would have let %d of %s run", c.Since.Local().Format(time.DateTime), c.Covered, count(c.Recorded, "recorded call"))
	if c.Rejected > 0 {
		fmt.Fprintf(&text, "; people rejected %d of them", c.Rejected)
	}
	text.WriteString(".\n")
	if c.Unknown > 0 {
		text.WriteString(count(c.Unknown, "more call") + " cannot be judged: the arguments are not recorded in full.\n")
	}
	if c.Waiting > 0 {
		text.WriteString(count(c.Waiting, "call") + " like these wait now; they stay held.\n")
	}
	for _, x := range c.Examples {
		fmt.Fprintf(&text, "  %s %s on %s %s %s\n", x.Time.Local().Format(time.DateTime), oneLine(x.Tool, 60), oneLine(x.Server, 60), oneLine(strings.Join(x.Paths, " "), 200), oneLine(x.Outcome, 40))
	}
	return text.String()
}

// text describes the calls that the standing approval allows. It is empty without one.
func (f *grantFlags) text(offer *review.Offer) string {
	if f.length <= 0 {
		return ""
	}
	text := fmt.Sprintf("This also allows %s within %s without approval: from the same agent", count(f.uses, "more call"), human.Duration(f.length))
	if f.reach == "" {
		text += ", to the same tool, with the arguments as shown"
	} else {
		text += ", to " + reachText(gatetask.GrantReach(f.reach)) + ", with ANY arguments"
	}
	if len(f.free) > 0 {
		text += ", with ANY value for " + oneLine(strings.Join(f.free, ", "), maxCell)
	}
	if len(f.below) > 0 {
		text += ", with any path below: " + oneLine(strings.Join(f.below, ", "), maxCell)
	}
	text += ".\n"
	if f.reach == string(gatetask.ReachReadOnly) && offer != nil {
		text += "Read-only tools: " + oneLine(strings.Join(offer.ReadOnly, ", "), maxText) + "\n"
	}
	if offer != nil && offer.Caution != "" {
		text += oneLine(offer.Caution, maxText) + "\n"
	}
	return text
}

// reachText describes the tools of a reach.
func reachText(r gatetask.GrantReach) string {
	switch r {
	case gatetask.ReachReadOnly:
		return "the read-only tools of this server"
	case gatetask.ReachServer:
		return "ALL tools of this server"
	case gatetask.ReachAgent:
		return "ALL tools of ALL servers"
	default:
		return oneLine(string(r), 40)
	}
}

// printGrant prints the standing approval that was given with the approval of a call.
func printGrant(cmd *cobra.Command, c *client.Client, out *screen, a review.Approval) error {
	if a.State == task.InputRequired {
		return out.line("The standing approval takes effect when all required approvers have given one.")
	}
	x, err := c.Context(cmd.Context(), a.ID)
	if err != nil {
		return err
	}
	if len(x.Grants) == 0 {
		return errors.New("the call is approved, but there is no standing approval: not all approvers gave one, or the gate could not store it")
	}
	given := x.Grants[0]
	if err := out.line("standing approval %s: %s", given.ID, grantText(given, time.Now())); err != nil || given.Caution == "" {
		return err
	}
	return out.line("%s", oneLine(given.Caution, maxText))
}

// grantText returns the state of a standing approval.
func grantText(g review.Grant, now time.Time) string {
	if g.State != review.GrantActive {
		return oneLine(string(g.State), 20) + ", " + usesText(g)
	}
	return usesText(g) + ", " + formatDuration(g.Until.Sub(now)) + " left"
}

func usesText(g review.Grant) string {
	return fmt.Sprintf("used %d of %s", g.Used, count(g.MaxUses, "time"))
}

// grantArguments returns one line: the arguments that every call must repeat, as JSON, and the
// names of those that may have any value.
func grantArguments(g review.Grant) string {
	text := oneLine(string(g.Arguments), 60)
	if g.ArgumentsTruncated {
		text = argumentStart(review.Approval{Arguments: g.Arguments}, 60)
	}
	if len(g.Free) > 0 {
		text += " ANY " + oneLine(strings.Join(g.Free, ", "), 60)
	}
	if len(g.Below) > 0 {
		text += " " + belowText(g)
	}
	if g.Reach != gatetask.ReachTool {
		text += " ANY, " + reachText(g.Reach)
	}
	return strings.TrimSpace(text)
}

// belowText returns the paths that may be below a directory.
func belowText(g review.Grant) string {
	var all []string
	for _, b := range g.Below {
		all = append(all, oneLine(b.Argument, 60)+" BELOW "+oneLine(b.Directory, maxCell))
	}
	return strings.Join(all, ", ")
}

// grantTable prints standing approvals.
func (s *screen) grantTable(all []review.Grant, now time.Time) error {
	t := newTable("ID", "TOOL", "AGENT", "ARGUMENTS", "GIVEN BY", "STATE")
	for _, g := range all {
		t.add(oneLine(string(g.ID), maxCell), markedName(g.Tool, 60), markedName(g.Principal, 60),
			grantArguments(g), oneLine(strings.Join(g.By, ", "), 60), grantText(g, now))
	}
	return s.print(t.text())
}

// grant prints everything about one standing approval.
func (s *screen) grant(g review.Grant, now time.Time) error {
	free := "none"
	if len(g.Free) > 0 {
		free = "any value for " + oneLine(strings.Join(g.Free, ", "), maxText)
	}
	if len(g.Below) > 0 {
		free = strings.TrimPrefix(free+", "+belowText(g), "none, ")
	}
	if g.Reach != gatetask.ReachTool {
		free = "any arguments, for " + reachText(g.Reach)
	}
	var uses []string
	for _, u := range g.Uses {
		outcome := strings.ReplaceAll(oneLine(u.Outcome, 40), "_", " ")
		if u.Outcome == review.UseNotMade {
			outcome = "counted, but the gate stopped before it sent the call: it never ran"
		}
		uses = append(uses, u.At.Local().Format(time.DateTime)+" "+oneLine(string(u.Task), maxCell)+" "+outcome)
	}
	revoked := ""
	if r := g.Revoked; r != nil {
		revoked = strings.TrimSpace(oneLine(r.By, maxCell) + " " + formatDuration(now.Sub(r.At)) + " ago " + oneLine(r.Reason, maxCell))
	}
	text := row("id", string(g.ID)) + row("state", grantText(g, now)) +
		row("tool", markedName(g.Tool, maxText)+" (on upstream "+oneLine(g.Upstream, maxCell)+")") +
		row("agent", markedName(g.Principal, maxCell)) + row("caution", oneLine(g.Caution, maxText)) + row("workflow", oneLine(g.Workflow, maxCell)) +
		row("given by", oneLine(strings.Join(g.By, ", "), maxText)+" with the approval of "+oneLine(string(g.From), maxCell)) +
		row("until", g.Until.Local().Format("2006-01-02 15:04:05 MST")) + row("revoked", revoked) +
		row("pinned", argumentText(review.Approval{Arguments: g.Arguments, ArgumentsTruncated: g.ArgumentsTruncated})) + row("free", free)
	if len(g.AlsoSent) > 0 {
		text += row("also sent", argumentText(review.Approval{Arguments: g.AlsoSent, ArgumentsTruncated: g.AlsoSent.Kind() == '"'}))
	}
	return s.print(text + row("uses", strings.Join(uses, "\n")))
}
