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

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// minShown is the least number of characters of a shown digest: 64 bits.
const minShown = 16

func newApprove(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve ID [--shown DIGEST]",
		Short: "Approve a held call",
		Long: "Approve a held call.\n\n" +
			"On a terminal, the command shows the whole call and asks you to confirm. Otherwise pass --shown with the\n" +
			"digest that \"approvals show\" prints in its line shown. If the call has changed since then, it is not approved.\n\n" +
			"With --allow-for, further calls like this one run without approval: from the same agent, to the same tool, with\n" +
			"the same arguments except those in --allow-any and --allow-below; with --allow-tools also to other tools. The workflow\n" +
			"must allow standing approvals.",
		ValidArgsFunction: g.completeOne(callIDs("pending")),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	shown := cmd.Flags().String("shown", "", "`digest` in the line shown of \"approvals show\", or at least its first 16 characters")
	grant := addGrantFlags(cmd)
	preview := cmd.Flags().Bool("preview", false, "with --allow-for, only show what the standing approval would have covered")
	var wish *gatetask.GrantTerms
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *shown != "" && len(*shown) < minShown {
			return &usageError{cmd.CommandPath(), fmt.Errorf("--shown needs at least %d characters of the digest", minShown)}
		}
		wish, err = grant.terms(cmd)
		if err == nil && wish == nil && *preview {
			err = &usageError{cmd.CommandPath(), errors.New("--preview needs --allow-for")}
		}
		return err
	}
	return runOne(g, cmd, (*client.Client).Find, func(cmd *cobra.Command, c *client.Client, id task.ID) error {
		a, err := c.Show(cmd.Context(), id)
		if err != nil {
			return err
		}
		covers := ""
		if wish != nil {
			covers, err = grant.coverage(cmd, c, id, wish) // the gate refuses the decision too if the terms are wrong
		}
		if *preview {
			if err != nil {
				return decisionError(cmd.Context(), c, id, err)
			}
			return newScreen(cmd.OutOrStdout()).print(covers)
		}
		if err := confirm(cmd, c, a, *shown, toApprove(grant, covers)); err != nil {
			return err
		}
		if wish != nil {
			wish.Until = time.Now().Add(grant.length) // counts from the confirmation
		}
		return decide(cmd, c, id, approval.Ruling{Decision: approval.Approve, Reason: *reason, Shown: a.ShownDigest, Gives: wish})
	})
}

// A consent is what an approver is asked.
type consent struct {
	text  func(review.Context) string // what is approved besides, or instead
	ask   string
	title string // a word for it
}

// toApprove asks for an approval, with the standing approval of the flags and what it covers.
func toApprove(grant *grantFlags, covers string) consent {
	return consent{func(around review.Context) string { return grant.text(around.GrantOffer) + covers }, "Approve this call? Type yes to approve: ", "approved"}
}

// toCorrect asks for a rejection with a correction.
func toCorrect(arguments jsontext.Value) consent {
	text := "\nThis call is rejected. One call with exactly these arguments is approved instead:\n" + safetext.Escape(string(arguments)) + "\n"
	return consent{func(review.Context) string { return text }, "Reject this call and approve the other? Type yes to do so: ", "decided"}
}

// confirm returns nil if the approver has seen a and confirms the decision, either with the
// digest of a, or by answering yes on the terminal.
func confirm(cmd *cobra.Command, c *client.Client, a review.Approval, shown string, what consent) error {
	switch {
	case a.State != task.InputRequired:
		return nil // the gate refuses the decision with the reason
	case shown != "" && strings.HasPrefix(a.ShownDigest, shown):
		return nil
	case shown != "":
		if strings.HasPrefix(a.Digest.String(), shown) {
			return fmt.Errorf("that is the call digest; --shown needs the digest in the line shown of \"thoughtgate approvals show %s\"", a.ID)
		}
		return fmt.Errorf("this call differs from the one you were shown; run \"thoughtgate approvals show %s\"", a.ID)
	case !isTerminal(os.Stdin):
		return &usageError{cmd.CommandPath(), errors.New("pass --shown with the digest in the line shown of \"approvals show\", or run this on a terminal")}
	}
	around, err := c.Context(cmd.Context(), a.ID)
	if err != nil {
		return err
	}
	q := newQuestion(cmd)
	if err := q.show(a, around, what); err != nil {
		return err
	}
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // an error leaves no "yes"
	if strings.TrimSpace(strings.ToLower(answer)) != "yes" {
		return errors.New("not " + what.title + "; the call is still pending")
	}
	return nil
}

// A question asks an approver whether to approve a call.
type question struct{ call, text *screen } // for the call, and for the other text

// newQuestion returns a question on the terminal: standard output, or standard error if
// output is redirected. Without a terminal, the call goes to standard output.
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

// show prints a call, what its approval also allows, and the question. If the call does not
// fit on the screen, show says so and repeats the cautions and a summary after it.
func (q question) show(a review.Approval, around review.Context, what consent) error {
	allows, ask := what.text(around), what.ask
	call := q.call.cautions(around) + q.call.details(a, time.Now())
	text := allows
	if n := len(breakLines(call, q.call.columns)); q.call.columns > 0 && n+len(breakLines(allows+ask, q.call.columns)) > q.call.lines {
		text = fmt.Sprintf("\nThis call takes %d lines, more than fit on the screen. Scroll up and read\n"+
			"all of it, or answer no and read it page by page with\n"+
			//mutate:swap "q.text.cautions(around)" `""` TestQuestionRepeatsTheCautions a call that does not fit the screen is approved without its cautions
			"\"thoughtgate approvals watch\". You are asked about:\n", n) + q.text.cautions(around) +
			//mutate:swap "q.text.summary(a) + " "" TestQuestionNamesTheCall a call that does not fit on the screen is not named in the question
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
		Long: "Reject a held call.\n\n" +
			"With --correct, you approve one call with other arguments instead: the agent reads them, and if it makes exactly\n" +
			"that call, nobody is asked again. That needs what an approval needs, such as --shown outside of a terminal.",
		ValidArgsFunction: g.completeOne(callIDs("pending")),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason; the requester can read it")
	correct := cmd.Flags().String("correct", "", "`arguments` that you approve instead: a JSON object, with all of them")
	shown := cmd.Flags().String("shown", "", "`digest` in the line shown of \"approvals show\", with --correct")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		value, corrects := jsontext.Value(strings.TrimSpace(*correct)), cmd.Flags().Changed("correct")
		switch {
		case corrects && (value.Kind() != '{' || !value.IsValid()):
			return &usageError{cmd.CommandPath(), errors.New("--correct needs all arguments of the call as one JSON object, in which no name occurs twice")}
		case cmd.Flags().Changed("shown") && (!corrects || len(*shown) < minShown):
			return &usageError{cmd.CommandPath(), fmt.Errorf("--shown needs --correct, and at least %d characters of the digest", minShown)}
		default:
			return nil
		}
	}
	return runOne(g, cmd, (*client.Client).Find, func(cmd *cobra.Command, c *client.Client, id task.ID) error {
		r := approval.Ruling{Decision: approval.Reject, Reason: *reason}
		if *correct == "" {
			return decide(cmd, c, id, r)
		}
		a, err := c.Show(cmd.Context(), id)
		if err != nil {
			return err
		}
		r.Shown, r.Correction = a.ShownDigest, jsontext.Value(strings.TrimSpace(*correct))
		if err := confirm(cmd, c, a, *shown, toCorrect(r.Correction)); err != nil {
			return err
		}
		return decide(cmd, c, id, r)
	})
}

// decide sends a decision and prints the result.
func decide(cmd *cobra.Command, c *client.Client, id task.ID, r approval.Ruling) error {
	a, err := c.Decide(cmd.Context(), id, r)
	if err != nil {
		return decisionError(cmd.Context(), c, id, err)
	}
	out := newScreen(cmd.OutOrStdout())
	text := fmt.Sprintf("%s %s %s\n", out.status(a), a.ID, callText(a))
	if a.Next != "" {
		text += oneLine(a.Next, maxCell) + "\n"
	}
	if err := out.print(text); err != nil || r.Gives == nil {
		return err
	}
	return printGrant(cmd, c, out, a)
}

// decisionError returns why a decision was refused. If another decision was faster, the
// error names it.
func decisionError(ctx context.Context, c *client.Client, id task.ID, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Type != "already_decided" && refused.Type != "ended" && refused.Type != "expired" {
		return clientError(err)
	}
	a, failed := c.Show(ctx, id)
	if failed != nil {
		return clientError(err)
	}
	if a.State == task.InputRequired { // other approvals are still missing
		return fmt.Errorf("you have already approved this call (%d of %d approvals)", len(a.Approvals), a.Quorum)
	}
	return fmt.Errorf("too late: %s", stateText(a, time.Now()))
}
