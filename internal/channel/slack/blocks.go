package slack

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// Limits of Slack in characters, or less where several texts share a limit.
const (
	maxHeader  = 150
	maxField   = 300
	maxSection = 2900
	maxValue   = 2000 // of a button
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

// limits are the limits of the parts of a message.
var limits = channel.Limits{Title: maxHeader, Fact: maxField, Note: maxSection, Content: maxSection}

// blocks returns the message about a question.
func blocks(q channel.Question) []slack.Block {
	text := q.Text(limits)
	all := []slack.Block{slack.NewHeaderBlock(plainText(text.Title, maxHeader)), slack.NewSectionBlock(nil, fields(text.Facts), nil)}
	for _, caution := range text.Cautions {
		all = append(all, slack.NewSectionBlock(plainText(caution, maxSection), nil, nil))
	}
	all = append(all, preformatted(text.Content))
	if q.Stage != channel.Pending {
		if text.Outcome != "" {
			all = append(all, slack.NewSectionBlock(plainText(text.Outcome, maxSection), nil, nil))
		}
		return append(all, slack.NewActionBlock(blockDecide, openButton(q)))
	}
	value, err := json.Marshal(buttonValue{ID: string(q.Approval.ID), Shown: q.Approval.ShownDigest})
	buttons := otherButtons(q, string(value))
	if text.Hint == "" && err == nil && len(value) <= maxValue {
		return append(all, slack.NewActionBlock(blockDecide, append([]slack.BlockElement{approveButton(string(value))}, buttons...)...))
	}
	return append(all, slack.NewSectionBlock(plainText(text.Hint, maxSection), nil, nil), slack.NewActionBlock(blockDecide, buttons...))
}

// fields returns facts as the fields of a section.
func fields(facts []string) []*slack.TextBlockObject {
	var all []*slack.TextBlockObject
	for _, fact := range facts {
		all = append(all, plainText(fact, maxField))
	}
	return all
}

// preformatted returns a block that shows a text without interpreting markup.
func preformatted(text string) slack.Block {
	return slack.NewRichTextBlock("arguments", &slack.RichTextPreformatted{
		Type:     slack.RTEPreformatted,
		Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement(text, nil)},
	})
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

// otherButtons are the other buttons of the message about a pending call.
func otherButtons(q channel.Question, value string) []slack.BlockElement {
	reject := slack.NewButtonBlockElement(actionReject, value, plainText("Reject", maxField))
	reject.Style = slack.StyleDanger
	return []slack.BlockElement{reject, openButton(q)}
}

// openButton is the button that opens the page of the call.
func openButton(q channel.Question) slack.BlockElement {
	open := slack.NewButtonBlockElement(actionOpen, "", plainText("Open in the inbox", maxField))
	open.URL = q.Page
	return open
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
	return slack.NewTextBlockObject(slack.PlainTextType, channel.Cut(text, most), false, false)
}
