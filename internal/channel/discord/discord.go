// Package discord is a channel to approvers in Discord. It posts each question as a message
// with buttons, and edits the message when the call is decided or ends. Clicks arrive as
// requests that Discord signs with the key of the application.
//
// Punctuation of agents and upstreams is escaped, so that it is shown and has no effect. A
// message that does not show the whole call has no button to approve it.
package discord

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// A Discord is a channel of Discord.
type Discord struct {
	cfg  *Settings
	gate channel.Gate
	api  *webhook.API
}

// Address implements [channel.Channel].
func (d *Discord) Address() string { return d.api.URL + "/" + d.cfg.Channel }

// Close implements [channel.Closer].
func (d *Discord) Close() { d.api.Close() }

// A message is the body of a request that posts or edits a message. Discord does not post a
// message again that has the nonce of another one of the last minutes.
type message struct {
	Content    string      `json:"content"`
	Embeds     []embed     `json:"embeds"`
	Components []component `json:"components"`
	Mentions   mentions    `json:"allowed_mentions"`
	Flags      int         `json:"flags,omitzero"`
	Nonce      string      `json:"nonce,omitzero"`
	Enforce    bool        `json:"enforce_nonce,omitzero"`
	Reference  *reference  `json:"message_reference,omitzero"`
}

// mentions without members let a message notify no one in particular.
type mentions struct {
	Parse []string `json:"parse"`
}

type reference struct {
	Message string `json:"message_id"`
	Fail    bool   `json:"fail_if_not_exists"`
}

type embed struct {
	Description string `json:"description"`
}

// A component is a row of buttons, a button, or a part of a window.
type component struct {
	Type       int         `json:"type"`
	Components []component `json:"components,omitzero"`
	Component  *component  `json:"component,omitzero"`
	Style      int         `json:"style,omitzero"`
	Label      string      `json:"label,omitzero"`
	ID         string      `json:"custom_id,omitzero"`
	URL        string      `json:"url,omitzero"`
	Required   *bool       `json:"required,omitzero"`
	MaxLength  int         `json:"max_length,omitzero"`
	Value      string      `json:"value,omitzero"` // what a person has entered
}

// Types and styles of components.
const (
	typeRow, typeButton, typeInput, typeLabel       = 1, 2, 4, 18
	styleSuccess, styleDanger, styleLink, styleText = 3, 4, 5, 2
)

// Ask implements [channel.Channel]. The reference is the id of the message.
func (d *Discord) Ask(ctx context.Context, q channel.Question) (string, error) {
	m := messageOf(q)
	m.Nonce, m.Enforce = d.nonce(string(q.Approval.ID)), true
	return d.send(ctx, http.MethodPost, "", m)
}

// Update implements [channel.Channel]. It ignores messages that were deleted.
func (d *Discord) Update(ctx context.Context, ref string, q channel.Question) error {
	if ref == "" {
		var err error
		if ref, err = d.Ask(ctx, q); err != nil { // finds the message, if it was posted
			return err
		}
	}
	_, err := d.send(ctx, http.MethodPatch, "/"+ref, messageOf(q))
	if errors.Is(err, errUnknownMessage) {
		return nil
	}
	return err
}

// Remind implements [channel.Channel]. It replies to the message.
func (d *Discord) Remind(ctx context.Context, ref string, q channel.Question) error {
	m := message{Content: escape(q.ReminderText(channel.ChatLimits.Fact)), Components: buttons(q), Nonce: d.nonce(q.MessageID()), Enforce: true}
	if ref != "" {
		m.Reference = &reference{Message: ref}
	}
	_, err := d.send(ctx, http.MethodPost, "", m)
	return err
}

// Report implements [channel.Reporter].
func (d *Discord) Report(ctx context.Context, r channel.Report) error {
	m := message{Content: escape(r.Title), Embeds: []embed{{Description: escape(r.Text(maxReport))}}, Nonce: d.nonce(r.ID), Enforce: true}
	_, err := d.send(ctx, http.MethodPost, "", m)
	return err
}

// maxReport is the greatest length of a summary before it is escaped.
const maxReport = 2000

// nonce returns the nonce of a message. It has at most 25 characters. It is another one in another
// channel of Discord, since a nonce counts in all of them.
func (d *Discord) nonce(id string) string {
	sum := sha256.Sum256([]byte(d.cfg.Channel + " " + id))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

var errUnknownMessage = errors.New("the message was deleted")

// unknownMessage is Discord's code for a message that does not exist.
const unknownMessage = 10008

// send posts or edits a message, and returns its id.
func (d *Discord) send(ctx context.Context, method, path string, m message) (string, error) {
	m.Mentions.Parse = []string{}
	answer, err := d.api.Exchange(ctx, method, "/channels/"+d.cfg.Channel+"/messages"+path, m)
	var said struct {
		ID      string `json:"id"`
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	unreadable := json.Unmarshal(answer, &said)
	if said.Code == unknownMessage {
		return "", errUnknownMessage
	}
	if err == nil && (unreadable != nil || said.ID == "") {
		err = errors.New("the answer of Discord has no id of a message")
	}
	return said.ID, webhook.Advise(err, said.Message)
}

// messageOf returns the message about a question.
func messageOf(q channel.Question) message {
	t := q.Text(channel.ChatLimits)
	// A grave accent can only occur in strings of JSON, where its escape has the same meaning.
	content := strings.ReplaceAll(t.Content, "`", `\u0060`)
	block := channel.Cut(content, maxBlock)
	//mutate:false TestDiscord a call whose escapes do not fit is approved in Discord
	if block != content && q.Stage == channel.Pending {
		t.Hint = cmp.Or(t.Hint, channel.NotWhole)
	}
	m := message{Content: escape(t.Title), Embeds: []embed{{escape(strings.Join(t.Lines(), "\n"))}, {"```\n" + block + "\n```"}}}
	switch {
	case q.Stage != channel.Pending:
		m.Components = buttons(q)
	//mutate:true TestDiscord a call that was not shown as a whole is approved in Discord
	case t.Hint == "":
		m.Components = buttons(q, pressed(q, styleSuccess, "Approve", approval.Approve), pressed(q, styleDanger, "Reject", approval.Reject))
	default:
		m.Components = buttons(q, pressed(q, styleDanger, "Reject", approval.Reject))
	}
	return m
}

// pressed returns a button for a decision.
func pressed(q channel.Question, style int, label string, d approval.Decision) component {
	return component{Type: typeButton, Style: style, Label: label, ID: channel.NewPress(d, q.Approval).String()}
}

// buttons returns the row of buttons of a message: the given ones, and one that opens the page of
// the call.
func buttons(q channel.Question, row ...component) []component {
	return []component{{Type: typeRow, Components: append(row, component{Type: typeButton, Style: styleLink, Label: "Open in the inbox", URL: q.Page})}}
}

// maxBlock is the greatest length of the content with escaped grave accents.
const maxBlock = 2000

// escape returns a text that Discord shows as it is: it precedes ASCII punctuation with a
// backslash, so that it begins no markup, link or mention.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r > ' ' && r < 0x7f && !strings.ContainsRune(letters, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// An interaction is a request of Discord: a ping, a click, or a window with a reason.
type interaction struct {
	Type    int    `json:"type"`
	Channel string `json:"channel_id"`
	Member  struct {
		User user `json:"user"`
	} `json:"member"`
	User user `json:"user"` // in a direct message
	Data struct {
		ID         string      `json:"custom_id"`
		Components []component `json:"components"`
	} `json:"data"`
}

type user struct {
	ID  string `json:"id"`
	Bot bool   `json:"bot"`
}

// Types of interactions, and of the replies to them.
const (
	ping, click                               = 1, 3
	replyPong, replyTell, replyDone, replyAsk = 1, 4, 6, 9
	ephemeral                                 = 64 // the flag of messages that only one user sees
)

// A reply is the answer to an interaction.
type reply struct {
	Type int `json:"type"`
	Data any `json:"data,omitzero"`
}

// reasonWindow asks for the reason of a rejection.
type reasonWindow struct {
	ID         string      `json:"custom_id"`
	Title      string      `json:"title"`
	Components []component `json:"components"`
}

const (
	tolerance  = 5 * time.Minute         // of the time of a signature
	timeToRule = 2500 * time.Millisecond // Discord waits three seconds for an answer
)

var errBody = errors.New("the body must be an interaction of Discord")

// Receive implements [channel.Receiver]. A repeated interaction has no effect: a call is
// decided once, and an approver counts once.
func (d *Discord) Receive(ctx context.Context, h http.Header, body []byte) (channel.Answer, error) {
	if !d.signed(h, body) {
		return channel.Answer{}, channel.ErrUnsigned
	}
	var i interaction
	if err := json.Unmarshal(body, &i); err != nil {
		return channel.Answer{}, errBody
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeToRule)
	defer stop()
	text, err := json.Marshal(d.reply(ctx, i))
	return channel.Answer{Reply: text}, err
}

// signed reports whether Discord has signed a request recently.
func (d *Discord) signed(h http.Header, body []byte) bool {
	at := h.Get("X-Signature-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	signature, bad := hex.DecodeString(h.Get("X-Signature-Ed25519"))
	//mutate:swap "> tolerance" "> 1000*tolerance" TestForgedInteractions an old interaction decides
	if err != nil || bad != nil || d.gate.Now().Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	//mutate:true TestForgedInteractions a forged interaction decides
	return ed25519.Verify(d.cfg.PublicKey, append([]byte(at), body...), signature)
}

// reply handles an interaction, and returns the answer.
func (d *Discord) reply(ctx context.Context, i interaction) reply {
	if i.Type == ping {
		return reply{Type: replyPong}
	}
	who := cmp.Or(i.Member.User, i.User)
	by := channel.Account{
		Chat: "discord", ID: who.ID, Bot: who.Bot, Elsewhere: i.Channel != d.cfg.Channel, People: d.cfg.People, Reason: entered(i.Data.Components),
	}
	press, _ := channel.ParsePress(i.Data.ID)
	if i.Type == click && press.Decision == approval.Reject && by.Refusal(i.Data.ID) == "" {
		return reply{replyAsk, reasonWindow{i.Data.ID, "Reject the call", reasonInput()}}
	}
	told := d.gate.Press(ctx, by, i.Data.ID)
	if told == "" {
		return reply{Type: replyDone} // the message will be edited
	}
	return reply{replyTell, message{Content: escape(told), Flags: ephemeral, Mentions: mentions{Parse: []string{}}}}
}

// reasonInput returns the input of the window for a reason.
func reasonInput() []component {
	optional := false
	input := component{Type: typeInput, ID: "reason", Style: styleText, Required: &optional, MaxLength: review.MaxReason}
	return []component{{Type: typeLabel, Label: "Why? The agent will read this.", Component: &input}}
}

// entered returns the text that a person has entered in a window.
func entered(parts []component) string {
	for _, p := range parts {
		if p.Component != nil && p.Component.ID == "reason" {
			return p.Component.Value
		}
	}
	return ""
}
