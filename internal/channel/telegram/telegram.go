// Package telegram is a channel to approvers in Telegram. It posts each question as a message
// with buttons, and edits the message when the call is decided or ends. Presses of buttons
// arrive at a webhook, which the channel registers, with a secret that only Telegram and the
// gate know.
//
// Text of agents and upstreams is sent as preformatted text, in which Telegram finds no
// markup, links or mentions. A message that does not show the whole call has no button to
// approve it.
package telegram

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

// A Telegram is a channel of Telegram.
type Telegram struct {
	cfg  *Settings
	gate channel.Gate
	api  *webhook.API
}

// Address implements [channel.Channel].
func (t *Telegram) Address() string { return t.api.URL + "/" + t.cfg.Chat }

// Close implements [channel.Closer].
func (t *Telegram) Close() { t.api.Close() }

// A message is a request that sends or edits a message.
type message struct {
	Chat     string     `json:"chat_id"`
	ID       int64      `json:"message_id,omitzero"` // of the message to edit
	Text     string     `json:"text"`
	Entities []entity   `json:"entities"`
	Preview  preview    `json:"link_preview_options"`
	Reply    *answered  `json:"reply_parameters,omitzero"`
	Buttons  *keyboards `json:"reply_markup,omitzero"`
}

// An entity formats a part of a text. Telegram finds no links and mentions in a "pre".
type entity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"` // in UTF-16, as is the length
	Length int    `json:"length"`
}

type preview struct {
	Disabled bool `json:"is_disabled"`
}

type answered struct {
	ID      int64 `json:"message_id"`
	Without bool  `json:"allow_sending_without_reply"`
}

type keyboards struct {
	Rows [][]button `json:"inline_keyboard"`
}

type button struct {
	Text string `json:"text"`
	URL  string `json:"url,omitzero"`
	Data string `json:"callback_data,omitzero"` // at most 64 bytes
}

// Ask implements [channel.Channel]. The reference is the id of the message. Telegram does
// not show a bot what it has sent, so a message that may have been sent is sent again.
func (t *Telegram) Ask(ctx context.Context, q channel.Question) (string, error) {
	id, err := t.send(ctx, "sendMessage", t.messageOf(q))
	return strconv.FormatInt(id, 10), err
}

// Update implements [channel.Channel]. It ignores messages that were deleted. If the message
// is unknown, it sends one that says how the call ended.
func (t *Telegram) Update(ctx context.Context, ref string, q channel.Question) error {
	m := t.messageOf(q)
	if m.ID = number(ref); m.ID == 0 {
		_, err := t.send(ctx, "sendMessage", m)
		return err
	}
	_, err := t.send(ctx, "editMessageText", m)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// Remind implements [channel.Channel]. It replies to the message.
func (t *Telegram) Remind(ctx context.Context, ref string, q channel.Question) error {
	m := t.plain("Reminder", q.ReminderText(channel.ChatLimits.Fact))
	m.Buttons = buttons(q)
	if id := number(ref); id != 0 {
		m.Reply = &answered{ID: id, Without: true}
	}
	_, err := t.send(ctx, "sendMessage", m)
	return err
}

// Report implements [channel.Reporter].
func (t *Telegram) Report(ctx context.Context, r channel.Report) error {
	_, err := t.send(ctx, "sendMessage", t.plain(r.Title, r.Text(maxReport)))
	return err
}

// maxReport is the greatest length of a summary.
const maxReport = 3900

// number returns the id in a reference, or 0.
func number(ref string) int64 {
	id, _ := strconv.ParseInt(ref, 10, 64)
	return id
}

// errUnchanged reports that a message has the wanted text, or was deleted.
var errUnchanged = errors.New("the message cannot change")

// A result is the answer of Telegram to a request.
type result struct {
	Description string `json:"description"`
	Result      any    `json:"result"`
	Parameters  struct {
		RetryAfter int64 `json:"retry_after"`
	} `json:"parameters"`
}

// call calls a method of the API. The result of the method is stored in to.
func (t *Telegram) call(ctx context.Context, method string, body, to any) error {
	answer, err := t.api.Exchange(ctx, http.MethodPost, "/bot"+t.cfg.BotToken.Reveal()+"/"+method, body)
	said := result{Result: to}
	unreadable := json.Unmarshal(answer, &said)
	if err == nil && unreadable != nil {
		return errors.New("the answer of Telegram cannot be read")
	}
	for _, known := range []string{"message is not modified", "message to edit not found", "MESSAGE_ID_INVALID"} {
		if strings.Contains(said.Description, known) {
			return errUnchanged
		}
	}
	err = webhook.Advise(err, said.Description)
	if seconds := said.Parameters.RetryAfter; err != nil && seconds > 0 {
		return &channel.RetryError{After: time.Duration(min(seconds, 3600)) * time.Second, Err: err}
	}
	return err
}

// send sends or edits a message, and returns its id.
func (t *Telegram) send(ctx context.Context, method string, m message) (int64, error) {
	var sent struct {
		ID int64 `json:"message_id"`
	}
	err := t.call(ctx, method, m, &sent)
	return sent.ID, err
}

// plain returns a message with a title of the gate, and a text without markup.
func (t *Telegram) plain(title, text string) message {
	return message{
		Chat: t.cfg.Chat, Text: title + "\n" + text, Preview: preview{Disabled: true},
		Entities: []entity{{Type: "pre", Offset: utf16Length(title) + 1, Length: utf16Length(text)}},
	}
}

func utf16Length(text string) int { return len(utf16.Encode([]rune(text))) }

// messageOf returns the message about a question.
func (t *Telegram) messageOf(q channel.Question) message {
	text := q.Text(channel.ChatLimits)
	m := t.plain("ThoughtGate", strings.Join(slices.Concat([]string{text.Title}, text.Lines(), []string{text.Content}), "\n"))
	reject := button{Text: "Reject", Data: channel.NewPress(approval.Reject, q.Approval).String()}
	switch {
	case q.Stage != channel.Pending:
		m.Buttons = buttons(q)
	//mutate:true TestTelegram a call that was not shown as a whole is approved in Telegram
	case text.Hint == "":
		m.Buttons = buttons(q, button{Text: "Approve", Data: channel.NewPress(approval.Approve, q.Approval).String()}, reject)
	default:
		m.Buttons = buttons(q, reject)
	}
	return m
}

// buttons returns the buttons of a message: the given ones, and one that opens the page of the call.
func buttons(q channel.Question, row ...button) *keyboards {
	open := []button{{Text: "Open in the inbox", URL: q.Page}}
	if len(row) == 0 {
		return &keyboards{Rows: [][]button{open}}
	}
	return &keyboards{Rows: [][]button{row, open}}
}

// registerPause is the time between two attempts to register the webhook.
const registerPause = 30 * time.Second

// Run implements [channel.Runner]. It registers the webhook; every replica registers the
// same.
func (t *Telegram) Run(ctx context.Context, report func(error)) {
	for ctx.Err() == nil {
		err := t.call(ctx, "setWebhook", map[string]any{
			"url": t.gate.DecisionsURL(), "secret_token": t.secret(), "allowed_updates": []string{"callback_query"},
		}, new(bool))
		if err == nil {
			report(nil)
			<-ctx.Done()
			return
		}
		report(err)
		t.gate.Log.WarnContext(ctx, "Telegram cannot send decisions", "err", err)
		pause.For(ctx, registerPause)
	}
}

// secret returns the secret of the webhook. All replicas have the same.
func (t *Telegram) secret() string {
	mac := hmac.New(sha256.New, []byte(t.cfg.BotToken.Reveal()))
	mac.Write([]byte("thoughtgate webhook"))
	return hex.EncodeToString(mac.Sum(nil))
}

// An update is a request of Telegram.
type update struct {
	Press struct {
		ID   string `json:"id"`
		From struct {
			ID  int64 `json:"id"`
			Bot bool  `json:"is_bot"`
		} `json:"from"`
		Message struct {
			Chat struct {
				ID int64 `json:"id"`
			} `json:"chat"`
		} `json:"message"`
		Data string `json:"data"`
	} `json:"callback_query"`
}

// A callbackAnswer is the reply to an update: a method of the API.
type callbackAnswer struct {
	Method string `json:"method"`
	ID     string `json:"callback_query_id"`
	Text   string `json:"text,omitzero"`
	Alert  bool   `json:"show_alert,omitzero"`
}

const (
	maxAlert   = 200
	timeToRule = 10 * time.Second
)

var errBody = errors.New("the body must be an update of Telegram")

// Receive implements [channel.Receiver]. A repeated update has no effect: a call is decided
// once, and an approver counts once.
func (t *Telegram) Receive(ctx context.Context, h http.Header, body []byte) (channel.Answer, error) {
	//mutate:false TestForgedUpdates a forged update decides
	if !hmac.Equal([]byte(h.Get("X-Telegram-Bot-Api-Secret-Token")), []byte(t.secret())) {
		return channel.Answer{}, channel.ErrUnsigned
	}
	var u update
	if err := json.Unmarshal(body, &u); err != nil {
		return channel.Answer{}, errBody
	}
	if u.Press.ID == "" {
		return channel.Answer{Reply: []byte("{}")}, nil // an update that was not asked for
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeToRule)
	defer stop()
	from := u.Press.From
	told := channel.Cut(t.gate.Press(ctx, channel.Account{
		Chat: "telegram", ID: strconv.FormatInt(from.ID, 10), Bot: from.Bot, People: t.cfg.People,
		Elsewhere: strconv.FormatInt(u.Press.Message.Chat.ID, 10) != t.cfg.Chat,
	}, u.Press.Data), maxAlert)
	text, err := json.Marshal(callbackAnswer{Method: "answerCallbackQuery", ID: u.Press.ID, Text: told, Alert: told != ""})
	return channel.Answer{Reply: text}, err
}
