// Package push is a channel to the phones and desktops of approvers: the inbox, as an
// installed app or in a browser, shows a notification also while it is closed (Web Push).
//
// A message has the tool, the requester and the time that is left, and nothing of the
// arguments. It is encrypted for the browser (RFC 8291), so that the push service of the
// browser's vendor reads none of it. A tap opens the page of the call; nobody decides in
// a notification.
package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config is what a [Push] is made of. All fields must be given.
type Config struct {
	Records task.Records
	Client  *http.Client // must not reach addresses that only the gate may reach
	Contact string       // whom the operators of a push service can ask: a mailto: or https: URL

	// Recall returns whose login it is, as they are now. The error is that of
	// [operator.Auth.Recall].
	Recall func(ctx context.Context, login string) (operator.Operator, error)

	// MayDecide reports whether somebody may decide about a call, or could before
	// they did.
	MayDecide func(ctx context.Context, id task.ID, who operator.Operator) (bool, error)

	Now func() time.Time
	Log *slog.Logger
}

// A Push is a channel that sends notifications to subscribed browsers.
type Push struct {
	cfg Config

	recalling sync.WaitGroup // of owners who are being looked up

	mu     sync.Mutex
	signer *signer // nil until the key has been read
}

// New returns a channel.
func New(c Config) *Push { return &Push{cfg: c} }

// Address implements [channel.Channel].
func (*Push) Address() string { return "push" }

// signing returns what signs requests to push services.
func (p *Push) signing(ctx context.Context) (*signer, error) {
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

// Key returns the key that browsers need in order to subscribe.
func (p *Push) Key(ctx context.Context) (string, error) {
	s, err := p.signing(ctx)
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

// Update implements [channel.Channel]: it replaces the notification, without a sound.
func (p *Push) Update(ctx context.Context, _ string, q channel.Question) error {
	return p.notify(ctx, q)
}

// A notification is what a browser shows.
type notification struct {
	ID     task.ID `json:"id"`
	Title  string  `json:"title"`
	Body   string  `json:"body"`
	Silent bool    `json:"silent,omitzero"`
}

const (
	maxName = 80            // characters of a name in a notification
	keepFor = 6 * time.Hour // how long a push service keeps that a call has ended
)

// show returns the notification about q.
func show(q channel.Question, now time.Time) notification {
	a := q.Approval
	n := notification{ID: a.ID, Title: q.Headline(), Body: plain.Shown(a.Tool, maxName) + " for " + plain.Shown(a.Principal, maxName)}
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

// atOnce is how many push services are asked at the same time.
const atOnce = 8

// notify sends the notification about q to everybody who may decide. It fails if nobody
// could be reached because of errors: what some have got is not sent to all again.
func (p *Push) notify(ctx context.Context, q channel.Question) error {
	m, err := p.message(ctx, q)
	if err != nil {
		return channel.Unsent(err)
	}
	to, err := p.receivers(ctx, q.Approval.ID)
	if err != nil {
		return channel.Unsent(err)
	}
	told, err := p.sendAll(ctx, m, to.known)
	if told || err != nil {
		return err
	}
	return channel.Unsent(to.leftOut)
}

// receivers are the subscriptions of those who may decide about a call, each browser once.
type receivers struct {
	known   []kept
	leftOut error // why some may be missing; nil if none is
}

func (p *Push) receivers(ctx context.Context, id task.ID) (receivers, error) {
	var to receivers
	var failed error
	seen := map[string]bool{}
	err := p.each(ctx, func(k kept, who operator.Operator, unknown error) {
		if unknown != nil {
			to.leftOut = fmt.Errorf("it is not known who may be told: %w", unknown)
			return
		}
		may, err := p.cfg.MayDecide(ctx, id, who)
		if err != nil {
			failed = err
		}
		if may && !seen[k.Endpoint] {
			seen[k.Endpoint] = true
			to.known = append(to.known, k)
		}
	})
	return to, errors.Join(err, failed)
}

// topic returns a name for what is said of a call: a push service keeps only the last
// message of a topic for a browser that is away.
func topic(id task.ID) string {
	sum := sha256.Sum256([]byte(id))
	return encoding.EncodeToString(sum[:])[:32]
}

// A message is what push services are given.
type message struct {
	signer *signer
	text   []byte
	ttl    time.Duration
	topic  string
}

// message returns the message about q.
func (p *Push) message(ctx context.Context, q channel.Question) (message, error) {
	s, err := p.signing(ctx)
	if err != nil {
		return message{}, err
	}
	text, err := json.Marshal(show(q, p.cfg.Now()))
	m := message{signer: s, text: text, ttl: keepFor, topic: topic(q.Approval.ID)}
	if q.Stage == channel.Pending {
		m.ttl = max(time.Minute, q.Approval.ExpiresAt.Sub(p.cfg.Now()))
	}
	return m, err
}

// sendAll sends a message to browsers, and reports whether any of them was told. If none
// was, it returns an error after which one may have been, or else any error that there was.
func (p *Push) sendAll(ctx context.Context, m message, to []kept) (bool, error) {
	var sending errgroup.Group
	sending.SetLimit(atOnce)
	var told atomic.Bool
	failures := make([]error, len(to))
	for i, k := range to {
		sending.Go(func() error {
			sent, err := p.send(ctx, m, k)
			if sent {
				told.Store(true)
			}
			failures[i] = err
			return nil
		})
	}
	_ = sending.Wait() // none returns an error
	var failure error
	for _, err := range failures {
		if err == nil {
			continue
		}
		p.cfg.Log.WarnContext(ctx, "push message not sent", "error", err)
		if _, unsent := errors.AsType[*channel.UnsentError](err); failure == nil || !unsent {
			failure = err
		}
	}
	if told.Load() {
		return true, nil
	}
	return false, failure
}

// maxAnswer is how much of an answer is read so that its connection can be used again.
const maxAnswer = 16 << 10

// send sends a message to one browser, and reports whether the push service took it. A
// subscription that the push service does not know any more is removed.
func (p *Push) send(ctx context.Context, m message, k kept) (bool, error) {
	r, err := p.request(ctx, m, k)
	if errors.Is(err, ErrEndpoint) {
		return false, channel.Unsent(p.remove(ctx, k, "it leads to no push service"))
	}
	if err != nil {
		return false, channel.Unsent(err)
	}
	res, err := webhook.Send(p.cfg.Client, r)
	if err != nil {
		return false, fmt.Errorf("the push service %s cannot be reached: %w", r.URL.Host, err)
	}
	defer res.Body.Close() //nolint:errcheck // nothing depends on it
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	return res.StatusCode/100 == 2, p.answered(ctx, res, k)
}

// request returns the request that gives a push service a message for one browser.
func (p *Push) request(ctx context.Context, m message, k kept) (*http.Request, error) {
	endpoint, key, secret, err := k.parse()
	if err != nil {
		return nil, err
	}
	body, err := encrypt(m.text, key, secret)
	if err != nil {
		return nil, err
	}
	authorization, err := m.signer.authorization(endpoint, p.cfg.Now())
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, k.Endpoint, bytes.NewReader(body))
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

// answered returns an error unless the push service took the message.
func (p *Push) answered(ctx context.Context, res *http.Response, k kept) error {
	err := fmt.Errorf("the push service %s answered %s", res.Request.URL.Host, res.Status)
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return channel.Unsent(p.remove(ctx, k, "the push service does not know it any more"))
	case res.StatusCode < 500:
		err = channel.Unsent(err)
	}
	if seconds, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && seconds > 0 {
		return &channel.RetryError{After: time.Duration(min(seconds, 3600)) * time.Second, Err: err}
	}
	return err
}
