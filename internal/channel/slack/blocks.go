package slack

import (
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Limits of Slack in characters, or less where several texts share a limit.
const (
	maxHeader  = 150
	maxField   = 300
	maxSection = 2900
	maxValue   = 2000 // of a button
	maxLabel   = 40   // of a label before a text
)

// Identifiers of buttons, windows and blocks.
const (
	actionApprove = "approve"
	actionReject  = "reject"
	actionOpen    = "open"
	blockReason   = "reason"
	blockDecide   = "decide"
	viewReject    = "thoughtgate_reject"
)

// summary returns the text of a notification, without arguments.
func summary(q channel.Question) string {
	return cut(q.Headline()+": "+q.Approval.Tool+" for "+q.Approval.Principal, maxField)
}

// reminder returns the text of a reminder, without arguments.
func reminder(q channel.Question) string {
	a := q.Approval
	text := "Still waiting for a decision: " + cut(a.Tool, maxField) + " for " + cut(a.Principal, maxField) + "."
	if q.NewlyEscalated {
		text = "Still waiting, and escalated: " + cut(a.Tool, maxField) + " for " + cut(a.Principal, maxField) +
			". The approvers of the workflow " + q.Escalated + " may now decide as well."
	}
	return text + " Decide before " + a.ExpiresAt.UTC().Format("2 January 15:04 UTC") + "."
}

// blocks returns the message about a question.
func blocks(q channel.Question) []slack.Block {
	a := q.Approval
	all := []slack.Block{
		slack.NewHeaderBlock(plainText(q.Headline()+": "+a.Tool, maxHeader)),
		slack.NewSectionBlock(nil, facts(q), nil),
	}
	if len(a.Warnings) > 0 {
		all = append(all, slack.NewSectionBlock(plainText("Caution: "+strings.Join(a.Warnings, " "), maxSection), nil, nil))
	}
	if q.Changed != nil {
		all = append(all, slack.NewSectionBlock(plainText("Caution: "+q.Changed.Text()+".", maxSection), nil, nil))
	}
	text, whole := contentText(a)
	//mutate:swap " && q.Changed == nil" "" TestChangedToolNotApprovedInSlack a call of a changed tool is approved in Slack
	//mutate:swap "fits(a)" "(fits(a) || whole)" TestLongNameNotApprovedInSlack a call with a truncated name is approved in Slack
	whole = whole && fits(a) && q.Changed == nil // the inbox shows the new description
	missing := "This does not show the whole call. Open it to read and approve it."
	if a.Confirm != "" {
		whole, missing = false, "Approving needs your passkey. Open the call to approve it."
	}
	all = append(all, preformatted(text))
	if q.Stage != channel.Pending {
		return append(all, outcome(a)...)
	}
	value, err := json.Marshal(buttonValue{ID: string(a.ID), Shown: a.ShownDigest})
	//mutate:swap "whole" "whole && false" TestHostileTextStaysText a call that was not shown as a whole is approved in Slack
	if !whole || err != nil || len(value) > maxValue {
		hint := slack.NewSectionBlock(plainText(missing, maxSection), nil, nil)
		return append(all, hint, slack.NewActionBlock(blockDecide, otherButtons(q, string(value))...))
	}
	return append(all, slack.NewActionBlock(blockDecide, append([]slack.BlockElement{approveButton(string(value))}, otherButtons(q, string(value))...)...))
}

// fits reports whether the message shows the names and warnings of a call without truncating
// them.
func fits(a review.Approval) bool {
	short := func(text string, most int) bool { return utf8.RuneCountInString(text) <= most-maxLabel }
	return short(a.Tool, maxHeader) && short(a.Principal, maxField) && short(a.Upstream, maxField) && short(a.Method, maxField) &&
		short(strings.Join(a.Warnings, " "), maxSection)
}

// facts returns the fields of a message, such as the requester and the reason for holding.
func facts(q channel.Question) []*slack.TextBlockObject {
	a := q.Approval
	fields := []*slack.TextBlockObject{
		plainText("Requested by: "+a.Principal, maxField),
		plainText("Server: "+a.Upstream, maxField),
		plainText("Request: "+a.Method, maxField),
		plainText("Held because: "+a.Reason, maxField),
	}
	if a.Risk != "" {
		fields = append(fields, plainText("Risk: "+string(a.Risk), maxField))
	}
	if q.Stage == channel.Pending && !a.ExpiresAt.IsZero() {
		fields = append(fields, plainText("Decide before "+a.ExpiresAt.UTC().Format("2 January 15:04 UTC"), maxField))
	}
	if q.Escalated != "" && q.Stage == channel.Pending {
		fields = append(fields, plainText("Escalated to: "+q.Escalated, maxField))
	}
	if a.ClientReason != nil {
		fields = append(fields, plainText("The agent says (not verified): "+a.ClientReason.Text, maxField))
	}
	return fields
}

// contentText returns the arguments and the other content of a call, and whether it is
// complete.
func contentText(a review.Approval) (text string, whole bool) {
	text = indented(a.Arguments)
	if len(a.AlsoSent) > 0 {
		text += "\nAlso sent:\n" + indented(a.AlsoSent)
	}
	if text == "" {
		text = "no arguments"
	}
	short := cut(text, maxSection)
	return short, short == text && !a.ArgumentsTruncated && a.UnreadBytes == 0
}

func indented(v jsontext.Value) string {
	if len(v) == 0 {
		return ""
	}
	v = v.Clone()
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return string(v)
	}
	return string(v)
}

// preformatted returns a block that shows a text without interpreting markup.
func preformatted(text string) slack.Block {
	return slack.NewRichTextBlock("arguments", &slack.RichTextPreformatted{
		Type:     slack.RTEPreformatted,
		Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement(text, nil)},
	})
}

// outcome returns the decisions and the failure of a call.
func outcome(a review.Approval) []slack.Block {
	var lines []string
	for _, d := range a.Approvals {
		lines = append(lines, "Approved by "+d.ByText())
	}
	if a.Rejection != nil {
		lines = append(lines, "Rejected by "+a.Rejection.ByText()+": "+a.Rejection.Reason)
	}
	if a.Failure != nil && isFailure(a) {
		lines = append(lines, "It failed: "+a.Failure.Reason)
	}
	if len(lines) == 0 {
		return nil
	}
	return []slack.Block{slack.NewSectionBlock(plainText(strings.Join(lines, "\n"), maxSection), nil, nil)}
}

// isFailure reports whether an approved call failed or did not run in time. Rejected and
// withdrawn calls have a Failure too.
func isFailure(a review.Approval) bool {
	approved := len(a.Approvals) >= max(1, a.Quorum)
	return a.State == task.Failed || a.State == task.Expired && approved
}

// A buttonValue is the value of a button, and the metadata of the window for a reason.
type buttonValue struct {
	ID      string `json:"id"`
	Shown   string `json:"shown"`            // the digest of the shown call
	Channel string `json:"channel,omitzero"` // the id of the Slack channel, in windows only
}

// approveButton is the button of messages that show the whole call.
func approveButton(value string) slack.BlockElement {
	approve := slack.NewButtonBlockElement(actionApprove, value, plainText("Approve", maxField))
	approve.Style = slack.StylePrimary
	return approve
}

// otherButtons are the buttons of all messages.
func otherButtons(q channel.Question, value string) []slack.BlockElement {
	reject := slack.NewButtonBlockElement(actionReject, value, plainText("Reject", maxField))
	reject.Style = slack.StyleDanger
	open := slack.NewButtonBlockElement(actionOpen, "", plainText("Open in the inbox", maxField))
	open.URL = q.Page
	return []slack.BlockElement{reject, open}
}

// rejection returns the window for the reason of a rejection.
func rejection(p buttonValue) slack.ModalViewRequest {
	metadata, _ := json.Marshal(p) // cannot fail for strings
	input := slack.NewPlainTextInputBlockElement(nil, blockReason)
	input.Multiline, input.MaxLength = true, review.MaxReason
	reason := slack.NewInputBlock(blockReason, plainText("Why? The agent will read this.", maxField), nil, input)
	reason.Optional = true
	return slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: viewReject, PrivateMetadata: string(metadata),
		Title: plainText("Reject the call", 24), Submit: plainText("Reject", 24), Close: plainText("Cancel", 24),
		Blocks: slack.Blocks{BlockSet: []slack.Block{reason}},
	}
}

// plainText returns a text without markup and without emoji codes.
func plainText(text string, most int) *slack.TextBlockObject {
	if strings.TrimSpace(text) == "" {
		text = "–"
	}
	return slack.NewTextBlockObject(slack.PlainTextType, cut(text, most), false, false)
}

// cut returns a text of at most the given number of characters, with an ellipsis if it was
// truncated.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
