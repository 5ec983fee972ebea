package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
)

func newApprovals() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List, show and decide held calls",
		Long: "List the calls that a running gate holds, show them, and approve or reject them.\n\n" +
			"An ID may be shortened as long as it is unique. The operator token is read from the environment variable\n" +
			tokenVariable + " or from a file, never from the command line, which other processes can read.\n" +
			"Without a URL and a token, the inbox of your own gates is used; see thoughtgate desk.",
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g := gateFlags{
		url:       cmd.PersistentFlags().String("url", "", "`URL` of the gate's operators' address (default: "+urlVariable+", or "+defaultURL+")"),
		tokenFile: cmd.PersistentFlags().String("token-file", "", "`file` with the operator token (default: the token in "+tokenVariable+")"),
	}
	cmd.AddCommand(newList(g), newShow(g), newApprove(g), newReject(g), newWatch(g), newGrants(g), newRevoke(g))
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
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		byTimeLeft, err := sortsByTimeLeft(*order, s.State)
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		c, err := g.client()
		if err != nil {
			return err
		}
		listed, err := c.List(cmd.Context(), s)
		if err != nil {
			return explained(err)
		}
		if byTimeLeft {
			sortByTimeLeft(listed)
		}
		out := newScreen(cmd.OutOrStdout())
		switch {
		case *asJSON:
			return out.json(casefile.Page{Approvals: listed})
		case len(listed) > 0:
			return out.table(listed, time.Now())
		case s != client.Selection{State: s.State}:
			return out.line("No such approvals.")
		case s.State == "pending":
			return out.line("No pending approvals.")
		default:
			return out.line("No approvals in this state.")
		}
	}
	return cmd
}

// sortsByTimeLeft reports whether calls in a state are listed with the least time
// left first.
func sortsByTimeLeft(order, state string) (bool, error) {
	switch order {
	case "":
		return state == "pending", nil
	case "left", "newest":
		return order == "left", nil
	default:
		return false, fmt.Errorf("--sort must be left or newest, not %q", order)
	}
}

// sortByTimeLeft puts the calls with the least time left first.
func sortByTimeLeft(calls []casefile.Approval) {
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].ExpiresAt.Before(calls[j].ExpiresAt) }) // slices.SortFunc would be compiled for this large type alone
}

func newShow(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one held call with its arguments",
		Args:  positional(cobra.ExactArgs(1)),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, id, err := g.find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a, err := c.Show(cmd.Context(), id)
		if err != nil {
			return explained(err)
		}
		out := newScreen(cmd.OutOrStdout())
		if *asJSON {
			return out.json(a)
		}
		around, err := c.Context(cmd.Context(), id)
		if err != nil {
			return explained(err)
		}
		now := time.Now()
		return out.print(out.cautions(around) + out.record(a, now) + background(around, now))
	}
	return cmd
}
