// Package push is a channel to the phones and desktops of approvers. A browser in which
// an approver has subscribed shows a notification, also while the inbox is closed (Web
// Push).
//
// A message has the tool, the requester and the time that is left, but no arguments. It
// is encrypted for the browser (RFC 8291), so the push service of the browser's vendor
// cannot read it. A tap opens the page of the call, where the approver decides.
package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Config configures [New]. All fields are required.
type Config struct {
	Records gatestore.Records
	Client  *http.Client // must not reach addresses that only the gate may reach
	Contact string       // a mailto: or https: URL for the operators of push services

	// FindOperator returns the operator of a session, as [operator.Auth.FindOperator]
	// does.
	FindOperator func(ctx context.Context, session string) (operator.Operator, error)

	// MayDecide reports whether an operator may decide about a call, or has decided
	// about it.
	MayDecide func(ctx context.Context, id task.ID, o operator.Operator) (bool, error)

	Now func() time.Time
	Log *slog.Logger
}

// A Push is a channel that sends notifications to subscribed browsers.
type Push struct {
	cfg Config

	lookups sync.WaitGroup // of owners of subscriptions

	mu     sync.Mutex
	signer *signer // nil until the key has been read
}

// New returns a channel.
func New(c Config) *Push { return &Push{cfg: c} }

// Address implements [channel.Channel].
func (*Push) Address() string { return "push" }

// loadSigner returns the signer of requests to push services.
func (p *Push) loadSigner(ctx context.Context) (*signer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signer != nil {
		return p.signer, nil
	}
	key, err := readKey(ctx, p.cfg.Records)
	if err != nil {
		return nil, err
	}
	p.signer, err = newSigner(key, p.cfg.Contact)
	return p.signer, err
}

// Key returns the public key that browsers need in order to subscribe.
func (p *Push) Key(ctx context.Context) (string, error) {
	s, err := p.loadSigner(ctx)
	if err != nil {
		return "", err
	}
	return s.public, nil
}

// Ask implements [channel.Channel].
func (p *Push) Ask(ctx context.Context, q channel.Question) (string, error) {
	return "", p.notify(ctx, q)
}

// Remind implements [channel.Channel].
func (p *Push) Remind(ctx context.Context, _ string, q channel.Question) error {
	return p.notify(ctx, q)
}

// Update implements [channel.Channel]. It replaces the notification without a sound.
func (p *Push) Update(ctx context.Context, _ string, q channel.Question) error {
	return p.notify(ctx, q)
}

// A notification is shown by the browser.
type notification struct {
	ID     task.ID `json:"id"`
	Title  string  `json:"title"`
	Body   string  `json:"body"`
	Silent bool    `json:"silent,omitzero"`
}

const (
	maxName = 80            // characters of a name in a notification
	keepFor = 6 * time.Hour // how long a push service keeps the message that a call has ended
)

// notificationOf returns the notification about q.
func notificationOf(q channel.Question, now time.Time) notification {
	a := q.Approval
	n := notification{ID: a.ID, Title: q.Headline(), Body: safetext.Truncate(a.Tool, maxName) + " for " + safetext.Truncate(a.Principal, maxName)}
	switch {
	case q.Stage != channel.Pending:
		n.Silent = true
	case q.Reminder > 0:
		n.Title = "Still waiting for a decision"
		fallthrough
	default:
		n.Body += fmt.Sprintf(", %d min left", max(0, int(a.ExpiresAt.Sub(now)/time.Minute)))
	}
	return n
}

// maxSends is the number of messages sent at the same time.
const maxSends = 8

// notify sends the notification about q to all operators who may decide. It fails only if
// no browser received it: a message that some received is not sent to all again.
func (p *Push) notify(ctx context.Context, q channel.Question) error {
	m, err := p.message(ctx, q)
	if err != nil {
		return channel.NotSent(err)
	}
	to, skipped, err := p.receivers(ctx, q.Approval.ID)
	if err != nil {
		return channel.NotSent(err)
	}
	sent, err := p.sendAll(ctx, m, to)
	if sent || err != nil {
		return err
	}
	return channel.NotSent(skipped)
}

// topic returns the topic of messages about a call. For a browser that is offline, a push
// service keeps only the last message of each topic.
func topic(id task.ID) string {
	sum := sha256.Sum256([]byte(id))
	return encoding.EncodeToString(sum[:])[:32]
}

// A message is a notification for push services.
type message struct {
	signer *signer
	text   []byte
	ttl    time.Duration
	topic  string
}

// message returns the message about q.
func (p *Push) message(ctx context.Context, q channel.Question) (message, error) {
	s, err := p.loadSigner(ctx)
	if err != nil {
		return message{}, err
	}
	text, err := json.Marshal(notificationOf(q, p.cfg.Now()))
	m := message{signer: s, text: text, ttl: keepFor, topic: topic(q.Approval.ID)}
	if q.Stage == channel.Pending {
		m.ttl = max(time.Minute, q.Approval.ExpiresAt.Sub(p.cfg.Now()))
	}
	return m, err
}

// sendAll sends a message to browsers, and reports whether any push service accepted it.
// If none did, it returns one of the errors. Errors after which the message may have
// arrived come first.
func (p *Push) sendAll(ctx context.Context, m message, to []storedSubscription) (bool, error) {
	var sends errgroup.Group
	sends.SetLimit(maxSends)
	var accepted atomic.Bool
	failures := make([]error, len(to))
	for i, s := range to {
		sends.Go(func() error {
			sent, err := p.send(ctx, m, s)
			if sent {
				accepted.Store(true)
			}
			failures[i] = err
			return nil
		})
	}
	_ = sends.Wait() // always nil
	var failure error
	for _, err := range failures {
		if err == nil {
			continue
		}
		p.cfg.Log.WarnContext(ctx, "push message not sent", "err", err)
		if _, notSent := errors.AsType[*channel.NotSentError](err); failure == nil || !notSent {
			failure = err
		}
	}
	if accepted.Load() {
		return true, nil
	}
	return false, failure
}

// send sends a message to one browser, and reports whether the push service accepted it.
// It removes a subscription that the push service no longer knows.
func (p *Push) send(ctx context.Context, m message, s storedSubscription) (bool, error) {
	r, err := p.request(ctx, m, s.Subscription)
	if errors.Is(err, ErrEndpoint) {
		return false, channel.NotSent(p.remove(ctx, s, "it does not name a push service"))
	}
	if err != nil {
		return false, channel.NotSent(err)
	}
	res, err := webhook.Send(p.cfg.Client, r)
	if err != nil {
		return false, fmt.Errorf("push service %s cannot be reached: %w", r.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }()
	err = webhook.ResponseError("push service "+r.URL.Host, res)
	if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone {
		return false, channel.NotSent(p.remove(ctx, s, "the push service no longer knows it"))
	}
	return err == nil, err
}

// request returns the request that gives a push service a message for one browser.
func (p *Push) request(ctx context.Context, m message, s Subscription) (*http.Request, error) {
	to, err := s.parse()
	if err != nil {
		return nil, err
	}
	body, err := encrypt(m.text, to.key, to.secret)
	if err != nil {
		return nil, err
	}
	authorization, err := m.signer.authorization(to.endpoint, p.cfg.Now())
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Authorization": authorization, "Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream",
		"TTL": strconv.Itoa(int(m.ttl / time.Second)), "Urgency": "high", "Topic": m.topic,
	} {
		r.Header.Set(name, value)
	}
	return r, nil
}
