// Package webhook is a channel to other systems: it posts each question, and how
// it ends, as a signed message to a URL. A system that is registered as an
// approver answers with a signed message of its own: see [Answers].
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
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// A Config says where questions go. All fields but Private must be given.
type Config struct {
	URL     *url.URL
	Key     Key
	Private bool          // the URL may lead to a private address
	Timeout time.Duration // for one message
	Now     func() time.Time
}

// A Webhook is a channel that posts to a URL.
type Webhook struct {
	cfg    Config
	client *http.Client
}

// New returns a webhook.
func New(c Config) *Webhook {
	return &Webhook{cfg: c, client: NewClient(Reach{c.Timeout, c.Private})}
}

// A Reach says how far a client goes.
type Reach struct {
	Timeout time.Duration // for one exchange
	Private bool          // private addresses may be connected to
}

// NewClient returns a client for URLs that lead to other systems. It follows no
// redirect.
func NewClient(r Reach) *http.Client {
	dialer := &net.Dialer{Timeout: r.Timeout, Control: publicOnly}
	if r.Private {
		dialer.Control = nil
	}
	return &http.Client{
		Timeout: r.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: r.Timeout, ForceAttemptHTTP2: true,
			MaxIdleConns: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A Message is the body of what a webhook posts.
type Message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      Data      `json:"data"`
}

// Data is the question of a [Message].
type Data struct {
	Stage    channel.Stage     `json:"stage"`
	Page     string            `json:"page"`     // where a person looks at the call
	Approval casefile.Approval `json:"approval"` // as GET /api/approvals/{id} has it

	// Changed is the last approved call of the tool, if the tool was defined
	// otherwise then, or if that is not known.
	Changed *casefile.Precedent `json:"changed,omitzero"`

	// Escalated is the workflow whose approvers may decide now as well.
	Escalated string `json:"escalated,omitzero"`
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

// maxAnswer is how much of an answer is read so that its connection can be used
// again.
const maxAnswer = 64 << 10

func (w *Webhook) post(ctx context.Context, kind string, q channel.Question) error {
	body, err := json.Marshal(&Message{Type: kind, Timestamp: q.At.UTC(), Data: Data{q.Stage, q.Page, q.Approval, q.Changed, q.Escalated}})
	if err != nil {
		return channel.Unsent(err)
	}
	body = []byte(plain.Escape(string(body))) // no character is hidden from those who read it in a log
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL.String(), bytes.NewReader(body))
	if err != nil {
		return channel.Unsent(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ThoughtGate")
	w.cfg.Key.Sign(r.Header, q.MessageID(), w.cfg.Now(), body)
	res, err := Send(w.client, r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // nothing depends on it
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	return refused(res)
}

// Send sends a request. The error does not have the URL, in which there may be a secret.
// It is a [channel.UnsentError] if there was no connection over which to send anything.
func Send(client *http.Client, r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	res, err := client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace))) //nolint:gosec // the client says which addresses may be reached
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if !connected.Load() {
		err = channel.Unsent(err)
	}
	return res, err
}

// refused returns an error unless the receiver took the message.
func refused(res *http.Response) error {
	err := fmt.Errorf("the receiver answered %s", res.Status)
	switch res.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return channel.Unsent(fmt.Errorf("%w: redirects are not followed", err))
	case 4:
		err = channel.Unsent(err)
	}
	if seconds, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && seconds > 0 {
		return &channel.RetryError{After: time.Duration(min(seconds, 3600)) * time.Second, Err: err}
	}
	return err
}

// errPrivate is the error of an address that only configuration may allow.
var errPrivate = errors.New("the address is private: set allow_private to allow it")

// publicOnly refuses connections to addresses that are not public. It is called
// with the address that a name was resolved to, so that no name can hide it.
func publicOnly(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return errPrivate
	}
	for _, reserved := range reservedNetworks {
		if reserved.Contains(ip) {
			return errPrivate
		}
	}
	return nil
}

// reservedNetworks are those that lead to the inside of something, and that
// package netip counts as global: shared addresses of providers, networks for
// tests, benchmarks and protocols, and IPv6 addresses with an IPv4 one inside.
var reservedNetworks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"),
}
