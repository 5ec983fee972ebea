package slack

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Limits of Slack, in characters, and less where several texts share one.
const (
	maxHeader  = 150
	maxField   = 300
	maxSection = 2900
	maxValue   = 2000 // of a button
	maxLabel   = 40   // of what stands before a text
)

// The actions of people.
const (
	actionApprove = "approve"
	actionReject  = "reject"
	actionOpen    = "open"
	blockReason   = "reason"
	blockDecide   = "decide"
	viewReject    = "thoughtgate_reject"
)

// summary is what a notification shows. It has nothing of the arguments.
func summary(q channel.Question) string {
	return cut(q.Headline()+": "+q.Approval.Tool+" for "+q.Approval.Principal, maxField)
}

// reminder is the text for people who have not decided yet. It has nothing of the
// arguments.
func reminder(q channel.Question) string {
	a := q.Approval
	text := "Still waiting for a decision: " + cut(a.Tool, maxField) + " for " + cut(a.Principal, maxField) + "."
	if q.NewlyEscalated {
		text = "Nobody has decided yet: " + cut(a.Tool, maxField) + " for " + cut(a.Principal, maxField) +
			". The approvers of the workflow " + q.Escalated + " may decide now as well."
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
		all = append(all, slack.NewSectionBlock(plainText("Caution: "+q.Changed.Caution()+".", maxSection), nil, nil))
	}
	text, whole := sent(a)
	whole = whole && fits(a) && q.Changed == nil // its new description is in the inbox
	all = append(all, preformatted(text))
	if q.Stage != channel.Pending {
		return append(all, outcome(a)...)
	}
	value, err := json.Marshal(pressed{ID: string(a.ID), Shown: a.ShownDigest})
	if !whole || err != nil || len(value) > maxValue {
		hint := slack.NewSectionBlock(plainText("This does not show the whole call. Open it to read and approve it.", maxSection), nil, nil)
		return append(all, hint, slack.NewActionBlock(blockDecide, otherButtons(q, string(value))...))
	}
	return append(all, slack.NewActionBlock(blockDecide, append([]slack.BlockElement{approveButton(string(value))}, otherButtons(q, string(value))...)...))
}

// fits reports whether the message shows the names and cautions of a call without
// cutting any of them.
func fits(a casefile.Approval) bool {
	short := func(text string, most int) bool { return utf8.RuneCountInString(text) <= most-maxLabel }
	return short(a.Tool, maxHeader) && short(a.Principal, maxField) && short(a.Upstream, maxField) && short(a.Method, maxField) &&
		short(strings.Join(a.Warnings, " "), maxSection)
}

// facts returns who asks for what, and why it is held.
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

// sent returns what reaches the server, and whether that is all of it.
func sent(a casefile.Approval) (text string, whole bool) {
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

// preformatted returns a text that Slack shows as it is: such a block has no markup.
func preformatted(text string) slack.Block {
	return slack.NewRichTextBlock("arguments", &slack.RichTextPreformatted{
		Type:     slack.RTEPreformatted,
		Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement(text, nil)},
	})
}

// outcome returns who decided, and what came of it.
func outcome(a casefile.Approval) []slack.Block {
	var lines []string
	for _, d := range a.Approvals {
		lines = append(lines, "Approved by "+d.By)
	}
	if a.Rejection != nil {
		lines = append(lines, "Rejected by "+a.Rejection.By+": "+a.Rejection.Reason)
	}
	if a.Failure != nil && failed(a) {
		lines = append(lines, "It failed: "+a.Failure.Reason)
	}
	if len(lines) == 0 {
		return nil
	}
	return []slack.Block{slack.NewSectionBlock(plainText(strings.Join(lines, "\n"), maxSection), nil, nil)}
}

// failed reports whether a call failed or was not run in time, although nobody had
// rejected or withdrawn it. What ended otherwise has a reason too, which is no failure.
func failed(a casefile.Approval) bool {
	approved := len(a.Approvals) >= max(1, a.Quorum)
	return a.State == task.Failed || a.State == task.Expired && approved
}

// A pressed is what a button says about its message, and what the window for a reason
// says about the button.
type pressed struct {
	ID      string `json:"id"`
	Shown   string `json:"shown"`            // the digest of what the message shows
	Channel string `json:"channel,omitzero"` // the id of the message's channel; of a button, Slack itself says that
}

// approveButton is for a message that shows the whole call.
func approveButton(value string) slack.BlockElement {
	approve := slack.NewButtonBlockElement(actionApprove, value, plainText("Approve", maxField))
	approve.Style = slack.StylePrimary
	return approve
}

// otherButtons are for every message.
func otherButtons(q channel.Question, value string) []slack.BlockElement {
	reject := slack.NewButtonBlockElement(actionReject, value, plainText("Reject", maxField))
	reject.Style = slack.StyleDanger
	open := slack.NewButtonBlockElement(actionOpen, "", plainText("Open in the inbox", maxField))
	open.URL = q.Page
	return []slack.BlockElement{reject, open}
}

// rejection returns the window in which people say why they reject a call.
func rejection(p pressed) slack.ModalViewRequest {
	metadata, _ := json.Marshal(p) // texts
	input := slack.NewPlainTextInputBlockElement(nil, blockReason)
	input.Multiline, input.MaxLength = true, casefile.MaxReason
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

// cut returns the beginning of a text, with a sign that something was left out.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return fmt.Sprintf("%s…", string(runes[:most-1]))
}
