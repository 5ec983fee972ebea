package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// minShown is how much of a digest names what was shown: 64 bits of it.
const minShown = 16

func newApprove(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve ID [--shown DIGEST]",
		Short: "Approve a held call",
		Long: "Approve a held call.\n\n" +
			"On a terminal, the command shows the whole call and asks you to confirm. Otherwise pass --shown with the\n" +
			"digest that \"approvals show\" prints. If the call has changed since then, it is not approved.\n\n" +
			"With --allow-for, further calls like this one run without anybody being asked: by the same agent, of the same\n" +
			"tool, with the same arguments but those that --allow-any names. The workflow must allow that.",
		Args: positional(cobra.ExactArgs(1)),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	shown := cmd.Flags().String("shown", "", "`digest` that \"approvals show\" printed, or at least its first 16 characters")
	grant := addGrantFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wish, err := grant.wish(cmd)
		if err != nil {
			return err
		}
		if *shown != "" && len(*shown) < minShown {
			return &usageError{cmd.CommandPath(), fmt.Errorf("--shown needs at least %d characters of the digest", minShown)}
		}
		c, id, err := g.find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a, err := c.Show(cmd.Context(), id)
		if err != nil {
			return explained(err)
		}
		if err := confirm(cmd, c, a, *shown, grant); err != nil {
			return err
		}
		if wish != nil {
			wish.Until = time.Now().Add(grant.length) // from when it is confirmed
		}
		return decide(cmd, c, id, approval.Ruling{Decision: approval.Approve, Reason: *reason, Shown: a.ShownDigest, Gives: wish})
	}
	return cmd
}

// confirm returns nil if the approver has seen a and means to approve it: the
// approver names the digest of a, or answers yes to a as it is shown here.
func confirm(cmd *cobra.Command, c *client.Client, a casefile.Approval, shown string, grant *grantFlags) error {
	switch {
	case a.State != task.InputRequired:
		return nil // the gate says what became of it
	case shown != "" && strings.HasPrefix(a.ShownDigest, shown):
		return nil
	case shown != "":
		return fmt.Errorf("this call differs from the one you were shown; run \"thoughtgate approvals show %s\"", a.ID)
	case !isTerminal(os.Stdin):
		return &usageError{cmd.CommandPath(), errors.New("pass --shown with the digest that \"approvals show\" prints, or run this on a terminal")}
	}
	around, err := c.Context(cmd.Context(), a.ID)
	if err != nil {
		return explained(err)
	}
	q := newQuestion(cmd)
	if err := q.show(a, around, grant.text()); err != nil {
		return err
	}
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // no answer is not yes
	if strings.TrimSpace(strings.ToLower(answer)) != "yes" {
		return errors.New("not approved; the call is still pending")
	}
	return nil
}

// A question asks an approver whether to approve a call.
type question struct{ call, text *screen } // where the call is shown, and where the rest

// newQuestion returns a question on the terminal, wherever else output may go. If no
// output goes to a terminal, a program reads the call and the question.
func newQuestion(cmd *cobra.Command) question {
	out, side := newScreen(cmd.OutOrStdout()), newScreen(cmd.ErrOrStderr())
	switch {
	case out.columns > 0:
		return question{out, out}
	case side.columns > 0:
		return question{side, side}
	default:
		return question{out, side}
	}
}

// show prints a call, what else its approval allows, and the question. If the call
// does not fit the screen, its beginning may be out of sight, so show says so and
// repeats what matters, the cautions first.
func (q question) show(a casefile.Approval, around casefile.Context, allows string) error {
	const ask = "Approve this call? Type yes to approve: "
	call := q.call.cautions(around) + q.call.record(a, time.Now())
	text := allows
	if n := len(breakLines(call, q.call.columns)); q.call.columns > 0 && n+len(breakLines(allows+ask, q.call.columns)) > q.call.lines {
		text = fmt.Sprintf("\nThis call takes %d lines, more than fit on the screen. Scroll up and read\n"+
			"all of it, or answer no and read it page by page with\n"+
			"\"thoughtgate approvals watch\". You are asked about:\n", n) + q.text.cautions(around) +
			row("warning", q.text.shortWarning(a)) + q.text.summary(a) + allows
	}
	if err := errors.Join(q.call.print(call), q.text.print(text)); err != nil {
		return err
	}
	_, err := io.WriteString(q.text.w, ask)
	return err
}

func newReject(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reject ID",
		Short: "Reject a held call",
		Args:  positional(cobra.ExactArgs(1)),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason; the requester can read it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, id, err := g.find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return decide(cmd, c, id, approval.Ruling{Decision: approval.Reject, Reason: *reason})
	}
	return cmd
}

// decide sends a decision and prints what it came to.
func decide(cmd *cobra.Command, c *client.Client, id task.ID, r approval.Ruling) error {
	a, err := c.Decide(cmd.Context(), id, r)
	if err != nil {
		return undecided(cmd.Context(), c, id, err)
	}
	out := newScreen(cmd.OutOrStdout())
	if err := out.line("%s %s %s", out.standing(a), a.ID, callText(a)); err != nil {
		return err
	}
	if a.Next != "" {
		if err := out.line("%s", oneLine(a.Next, maxCell)); err != nil {
			return err
		}
	}
	if r.Gives == nil {
		return nil
	}
	return tellGrant(cmd, c, out, a)
}

// undecided returns why a decision was not taken. If another one was faster, it
// says which.
func undecided(ctx context.Context, c *client.Client, id task.ID, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Type != "already_decided" && refused.Type != "ended" && refused.Type != "expired" {
		return explained(err)
	}
	a, failed := c.Show(ctx, id)
	if failed != nil {
		return explained(err)
	}
	if a.State == task.InputRequired { // and yet it is decided: as far as this approver goes
		return fmt.Errorf("you have already approved this call (%d of %d approvals)", len(a.Approvals), a.Quorum)
	}
	return fmt.Errorf("too late: %s", fate(a, time.Now()))
}
