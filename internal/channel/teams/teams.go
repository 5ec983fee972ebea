// Package teams is a channel that posts questions and their outcomes to Microsoft Teams, as
// Adaptive Cards with a link to the inbox. It uses the webhook of a workflow, which only
// posts: nobody decides in Teams, and cards are not edited, since both need a registered bot.
//
// Texts are sent in text runs, in which Teams interprets no markup.
package teams

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Kind is the kind of channel that posts cards to Microsoft Teams.
func Kind() config.ChannelKind {
	return config.ChannelKind{Name: "teams", New: func() config.Section { return new(Settings) }, Reports: true}
}

// Settings are the settings of a Teams channel.
type Settings struct {
	URL     *url.URL // of the webhook; it is a credential
	Private bool     // the URL may resolve to a private address; not a setting
}

// Settings implements [config.Section].
func (s *Settings) Settings() config.Group {
	return config.Group{{Key: "url", To: config.Required(config.URL(&s.URL))}}
}

// Check implements [config.Section].
func (*Settings) Check(*config.Check) {}

// Open implements [channel.Settings].
func (s *Settings) Open(_ channel.Gate, _ []channel.Channel) (channel.Channel, error) {
	if s.Private {
		return &Teams{webhook.NewAPI("Teams", "", s.URL, nil)}, nil
	}
	return &Teams{webhook.NewAPI("Teams", s.URL.String(), nil, nil)}, nil
}

// A Teams is a channel of Microsoft Teams.
type Teams struct{ api *webhook.API }

// A message is the body of a request to the webhook. Teams allows 28 KB.
type message struct {
	Type        string       `json:"type"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	ContentType string `json:"contentType"`
	Content     card   `json:"content"`
}

// A card is an Adaptive Card.
type card struct {
	Schema  string   `json:"$schema"`
	Type    string   `json:"type"`
	Version string   `json:"version"`
	Body    []block  `json:"body"`
	Actions []action `json:"actions"`
}

type block struct {
	Type    string `json:"type"`
	Inlines []run  `json:"inlines"`
}

type run struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Weight string `json:"weight,omitzero"`
	Size   string `json:"size,omitzero"`
}

type action struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// Ask implements [channel.Channel].
func (t *Teams) Ask(ctx context.Context, q channel.Question) (string, error) {
	return "", t.post(ctx, q, "")
}

// Update implements [channel.Channel].
func (t *Teams) Update(ctx context.Context, _ string, q channel.Question) error {
	return t.post(ctx, q, "")
}

// Remind implements [channel.Channel].
func (t *Teams) Remind(ctx context.Context, _ string, q channel.Question) error {
	return t.post(ctx, q, q.ReminderText(channel.ChatLimits.Fact))
}

// Report implements [channel.Reporter].
func (t *Teams) Report(ctx context.Context, r channel.Report) error {
	return t.send(ctx, r.Title, r.Lines, []action{})
}

// Address implements [channel.Channel].
func (t *Teams) Address() string { return t.api.URL }

// Close implements [channel.Closer].
func (t *Teams) Close() { t.api.Close() }

// post posts a card about a question. The card does not have the arguments, since people
// decide in the inbox.
func (t *Teams) post(ctx context.Context, q channel.Question, reminder string) error {
	text := q.Text(channel.ChatLimits)
	lines := slices.Concat([]string{reminder}, text.Facts, text.Cautions, []string{text.Outcome})
	button := "Open in the inbox"
	if q.Stage == channel.Pending {
		button = "Sign in and decide"
	}
	return t.send(ctx, text.Title, lines, []action{{"Action.OpenUrl", button, q.Page}})
}

// send sends a card.
func (t *Teams) send(ctx context.Context, title string, lines []string, actions []action) error {
	body := []block{{"RichTextBlock", []run{{Type: "TextRun", Text: title, Weight: "bolder", Size: "medium"}}}}
	for _, line := range lines {
		if line != "" {
			body = append(body, block{"RichTextBlock", []run{{Type: "TextRun", Text: line}}})
		}
	}
	m := message{"message", []attachment{{"application/vnd.microsoft.card.adaptive", card{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", Body: body, Actions: actions,
	}}}}
	_, err := t.api.Exchange(ctx, http.MethodPost, "", m)
	return err
}
