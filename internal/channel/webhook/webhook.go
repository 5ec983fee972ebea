// Package webhook is a channel to other systems. It posts each question and its outcome
// as a signed message to a URL. A system that is configured as an approver answers with a
// signed request: see [Webhook.Receive].
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/publicip"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Config says where questions go. Private, AnswerKey and Approver may be zero.
type Config struct {
	Name    string // of the channel in the configuration
	URL     *url.URL
	Key     Key
	Private bool          // the URL may resolve to a private address
	Timeout time.Duration // for one message
	Now     func() time.Time

	AnswerKey Key               // verifies answers; nil if the system may not answer
	Approver  approval.Approver // the identity of the system when it decides
}

// A Webhook is a channel that posts to a URL.
type Webhook struct {
	cfg    Config
	client *http.Client
}

// New returns a webhook.
func New(c Config) *Webhook {
	return &Webhook{cfg: c, client: NewClient(ClientConfig{c.Timeout, c.Private})}
}

// A ClientConfig configures [NewClient].
type ClientConfig struct {
	Timeout time.Duration // for one request
	Private bool          // allow connections to private addresses
}

// NewClient returns a client for URLs of other systems. It does not follow redirects.
func NewClient(c ClientConfig) *http.Client {
	dialer := &net.Dialer{Timeout: c.Timeout, Control: publicOnly}
	if c.Private {
		dialer.Control = nil
	}
	return &http.Client{
		Timeout: c.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: c.Timeout, ForceAttemptHTTP2: true,
			MaxIdleConns: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
		},
		//mutate:swap "http.ErrUseLastResponse" "nil" internal/app.TestWebhookPostsToPublicAddressesOnly a webhook follows redirects
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// publicOnly refuses connections to private addresses.
func publicOnly(network, address string, conn syscall.RawConn) error {
	if err := publicip.Only(network, address, conn); err != nil {
		return fmt.Errorf("%w: set allow_private to allow it", err)
	}
	return nil
}

// A Message is the body of a request to the URL.
type Message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      Data      `json:"data"`
}

// Data is the question of a [Message].
type Data struct {
	Stage    channel.Stage   `json:"stage"`
	Page     string          `json:"page"`     // the URL of the call in the inbox
	Approval review.Approval `json:"approval"` // as in GET /api/approvals/{id}

	Changed   *review.ToolChange `json:"changed,omitzero"`   // see [channel.Question]
	Escalated string             `json:"escalated,omitzero"` // see [channel.Question]
}

// The types of messages.
const (
	typeAsked    = "approval.requested"
	typeUpdated  = "approval.updated"
	typeReminder = "approval.reminder"
)

// Ask implements [channel.Channel].
func (w *Webhook) Ask(ctx context.Context, q channel.Question) (string, error) {
	return "", w.post(ctx, typeAsked, q)
}

// Update implements [channel.Channel].
func (w *Webhook) Update(ctx context.Context, _ string, q channel.Question) error {
	return w.post(ctx, typeUpdated, q)
}

// Remind implements [channel.Channel].
func (w *Webhook) Remind(ctx context.Context, _ string, q channel.Question) error {
	return w.post(ctx, typeReminder, q)
}

// Address implements [channel.Channel].
func (w *Webhook) Address() string { return w.cfg.URL.String() }

func (w *Webhook) post(ctx context.Context, kind string, q channel.Question) error {
	body, err := json.Marshal(&Message{Type: kind, Timestamp: q.At.UTC(), Data: Data{q.Stage, q.Page, q.Approval, q.Changed, q.Escalated}})
	if err != nil {
		return channel.NotSent(err)
	}
	body = []byte(safetext.Escape(string(body))) // so that all characters are visible in logs of the receiver
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL.String(), bytes.NewReader(body))
	if err != nil {
		return channel.NotSent(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ThoughtGate")
	w.cfg.Key.Sign(r.Header, q.MessageID(), w.cfg.Now(), body)
	res, err := Send(w.client, r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return ResponseError("receiver", res)
}

// Send sends a request. The error does not contain the URL, which may hold a secret. It is
// a [channel.NotSentError] if no connection could be made.
func Send(client *http.Client, r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	res, err := client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace))) //nolint:gosec // the client says which addresses may be reached
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if !connected.Load() {
		err = channel.NotSent(err)
	}
	return res, err
}

// maxBody is the part of a response body that is read so that the connection can be used
// again.
const maxBody = 64 << 10

// ResponseError reads the body of a response, and returns an error unless the receiver
// accepted the message.
func ResponseError(receiver string, res *http.Response) error {
	_, _ = io.CopyN(io.Discard, res.Body, maxBody)
	err := fmt.Errorf("%s answered %s", receiver, res.Status)
	switch res.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return channel.NotSent(fmt.Errorf("%w: redirects are not followed", err))
	case 4:
		err = channel.NotSent(err)
	}
	if seconds, bad := strconv.ParseFloat(res.Header.Get("Retry-After"), 64); bad == nil && seconds > 0 {
		return &channel.RetryError{After: time.Duration(min(seconds, 3600) * float64(time.Second)), Err: err}
	}
	return err
}

// An Answer is a decision of the system.
type Answer struct {
	ID          task.ID `json:"id"`
	Decision    string  `json:"decision"` // approve or reject
	Reason      string  `json:"reason,omitzero"`
	ShownDigest string  `json:"shownDigest,omitzero"`
	UnreadBytes int     `json:"unreadBytes,omitzero"`
}

// A SignedAnswer is the body of a request with an answer.
type SignedAnswer struct {
	Type string `json:"type"` // approval.decision
	Data Answer `json:"data"`
}

var errBody = errors.New(`the body must be {"type": "approval.decision", "data": {"id": "…", "decision": "approve" or "reject", "shownDigest": "…"}}`)

// Receive implements [channel.Receiver].
//
// Questions and answers have different keys, so that no message of the gate can be replayed
// as an answer. A repeated answer has no effect: a call is decided once, and an approver
// counts once.
func (w *Webhook) Receive(_ context.Context, h http.Header, body []byte) (channel.Answer, error) {
	if err := w.cfg.AnswerKey.Verify(h, body, w.cfg.Now()); err != nil {
		return channel.Answer{}, err
	}
	var a SignedAnswer
	if err := json.Unmarshal(body, &a, json.RejectUnknownMembers(true)); err != nil {
		return channel.Answer{}, errBody
	}
	valid := a.Data.Decision == "approve" || a.Data.Decision == "reject"
	if a.Type != "approval.decision" || a.Data.ID == "" || !valid {
		return channel.Answer{}, errBody
	}
	return channel.Answer{ID: a.Data.ID, By: w.cfg.Approver, Ruling: approval.Ruling{
		Decision: approval.Decision(a.Data.Decision), Reason: a.Data.Reason, Shown: a.Data.ShownDigest, Unread: a.Data.UnreadBytes,
		Via: gatetask.Via{Kind: gatetask.ViaChannel, Channel: w.cfg.Name},
	}}, nil
}
